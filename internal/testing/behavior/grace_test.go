package behavior_test

import (
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// withReaders returns every Locker, and that of readers.
func withReaders() map[string]maker {
	all := maps.Clone(everyLocker())
	all["Read"] = func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		read, _, err := redlatch.NewReadWrite(c, opts...)
		return read, err
	}
	return all
}

// TestALockEndsAGraceBeforeItsLease: until = start + TTL − drift − grace, after a grant, an
// extension and an adoption. The next owner gets the key only when the whole TTL has passed.
func TestALockEndsAGraceBeforeItsLease(t *testing.T) {
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		const grace = 3 * time.Second
		l := w.locker(t, redlatch.WithoutRenewal(), redlatch.WithGrace(grace))
		warm := mustLock(t, l, "warm")
		require.NoError(t, warm.Unlock(t.Context()))
		begin := time.Now()
		lock := mustLock(t, l, "k")
		require.WithinDuration(t, begin.Add(10*time.Second-102*time.Millisecond-grace), lock.Until(), time.Millisecond)
		time.Sleep(2 * time.Second)
		begin = time.Now()
		require.NoError(t, lock.Extend(t.Context(), 20*time.Second))
		require.WithinDuration(t, begin.Add(20*time.Second-202*time.Millisecond-grace), lock.Until(), time.Millisecond)
		require.ErrorIs(t, lock.Extend(t.Context(), grace), redlatch.ErrInvalid)
		if w.name != "Migration" {
			begin = time.Now()
			adopted, err := l.Adopt(t.Context(), "k", lock.Token(), redlatch.WithTTL(30*time.Second), redlatch.WithGrace(10*time.Second))
			require.NoError(t, err)
			require.WithinDuration(t, begin.Add(30*time.Second-302*time.Millisecond-10*time.Second), adopted.Until(), time.Millisecond)
			require.NoError(t, adopted.Unlock(t.Context()))
			lock = mustLock(t, l, "k", redlatch.WithTTL(20*time.Second))
		}
		<-lock.Done()
		ended := time.Now()
		other := w.locker(t)
		if w.name == "Read" {
			_, write, err := redlatch.NewReadWrite(w.Client(t))
			require.NoError(t, err)
			other = write
		}
		next, err := other.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(ended), grace)
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestAGraceLeavesRenewalsTheirTime: a lock is renewed while its grace is most of the TTL, and after
// an outage it ends a grace before others can start.
func TestAGraceLeavesRenewalsTheirTime(t *testing.T) {
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		const grace = 8 * time.Second
		l, link := w.linked(t, redlatch.WithGrace(grace), redlatch.WithOpTimeout(200*time.Millisecond))
		lock := mustLock(t, l, "k")
		time.Sleep(time.Minute)
		require.NoError(t, lock.Err())
		link.refuse()
		<-lock.Done()
		ended := time.Now()
		other := w.locker(t)
		if w.name == "Read" {
			_, other, _ = redlatch.NewReadWrite(w.Client(t))
		}
		next, err := other.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(ended), grace)
		link.heal()
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestALockIsHandedOverWithAGrace: a claim is longer by the grace, so that a lock with a grace
// beyond the usual claim is handed over, and is extended.
func TestALockIsHandedOverWithAGrace(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		const grace = 5 * time.Second
		holder := mustLock(t, w.locker(t), "k")
		got := make(chan *redlatch.Lock, 1)
		locking(t, got, w.locker(t, redlatch.WithGrace(grace)), "k")
		time.Sleep(5 * time.Second)
		begin := time.Now()
		require.NoError(t, holder.Unlock(t.Context()))
		lock := await(t, got, "its turn")
		require.Less(t, time.Since(begin), 100*time.Millisecond, "handed over")
		require.InDelta(t, 1.9, time.Until(lock.Until()).Seconds(), 0.2)
		time.Sleep(time.Second)
		require.Greater(t, time.Until(lock.Until()), 3*time.Second, "extended")
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestGraceOfEachReaderLasts: readers that share a permit have the grace to stop when it is lost. The key is released when
// the last of them has unlocked.
func TestGraceOfEachReaderLasts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		readers, _ := locktest.ReadWrite(t, s.Client(t),
			redlatch.WithTTL(6*time.Second), redlatch.WithGrace(4*time.Second), redlatch.WithoutRenewal())
		begun := time.Now()
		one, other := mustLock(t, readers, "k"), mustLock(t, readers, "k") // which share a permit
		_, writers := locktest.ReadWrite(t, s.Client(t))
		writer := waitInLine(t, writers, "k")
		<-one.Done()
		require.ErrorIs(t, one.Unlock(t.Context()), redlatch.ErrLost)
		time.Sleep(5*time.Second - time.Since(begun))
		require.Empty(t, writer, "the other reader has its grace")
		require.ErrorIs(t, other.Unlock(t.Context()), redlatch.ErrLost)
		require.NoError(t, (<-writer).Unlock(t.Context()))
		require.Less(t, time.Since(begun), 5500*time.Millisecond)
	})
}
