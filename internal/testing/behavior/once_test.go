package behavior_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

var stress = flag.Duration("behavior.stress", time.Second/2, "how long handles end together on a real server")

// TestReadersThatEndInOneInstant: whatever ends the locks of all readers of a process at once, and
// whatever each does then, their permit is given back once. So each later call of the Locker gets
// its own reply, and nobody reads beside a writer.
func TestReadersThatEndInOneInstant(t *testing.T) {
	const readers, rounds = 16, 10
	for name, end := range map[string]struct {
		opts     []redlatch.Option
		deletes  bool
		commands int64 // of all readers together, from the end of their locks on
	}{
		"max hold": {[]redlatch.Option{redlatch.WithMaxHold(time.Second)}, false, 1},
		"lease":    {[]redlatch.Option{redlatch.WithTTL(time.Second), redlatch.WithoutRenewal()}, false, 1},
		"deletion": {[]redlatch.Option{redlatch.WithTTL(3 * time.Second)}, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
				client, tap := locktest.Tapped(t, s)
				read, _ := locktest.ReadWrite(t, client, end.opts...)
				_, write := pair()
				locktest.Warm(t, read)
				for range rounds {
					key := mustLock(t, read, "k") // the first of those that share its permit
					var before int64
					together(readers, func(i int) {
						lock := key
						if i > 0 {
							lock = mustLock(t, read, "k")
						}
						if end.deletes && i == 0 {
							assert.NoError(t, s.Direct.Del(t.Context(), "k").Err())
						}
						<-lock.Done()
						if i == 0 {
							before = tap.Sent.Load()
						}
						endedHandle(t, lock, i)
					})
					require.LessOrEqual(t, tap.Sent.Load()-before, end.commands)

					held := mustLock(t, write, "k")
					together(readers, func(i int) {
						_, err := read.TryLock(t.Context(), "k")
						requireOnly(t, err, redlatch.ErrNotAcquired)
						own, err := read.TryLock(t.Context(), fmt.Sprint("free ", i))
						if assert.NoError(t, err) {
							assert.Equal(t, fmt.Sprint("free ", i), own.Key())
							assert.NoError(t, own.Err())
							assert.NoError(t, own.Unlock(t.Context()))
						}
					})
					unlock(t, held)
				}
			})
		})
	}
}

// endedHandle uses a handle whose lock was lost, in one of several ways.
func endedHandle(t *testing.T, lock *redlatch.Lock, way int) {
	ctx := t.Context()
	switch way % 4 {
	case 0:
		assert.ErrorIs(t, lock.Extend(ctx, time.Minute), redlatch.ErrLost)
	case 1:
		assert.ErrorIs(t, lock.UnlockAfter(ctx, time.Minute), redlatch.ErrLost)
	case 2:
		var both sync.WaitGroup
		both.Go(func() { assert.Error(t, lock.Unlock(ctx)) })
		defer both.Wait()
	}
	assert.Error(t, lock.Unlock(ctx))
	assert.ErrorIs(t, lock.Unlock(ctx), redlatch.ErrReleased)
	assert.ErrorIs(t, lock.Err(), redlatch.ErrLost)
}

// TestDoOfReadersThatEndInOneInstant: each returns, and reports the loss.
func TestDoOfReadersThatEndInOneInstant(t *testing.T) {
	onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
		read, _ := pair(redlatch.WithMaxHold(time.Second))
		for range 20 {
			together(16, func(int) {
				err := redlatch.Do(t.Context(), read, "k", func(ctx context.Context, _ *redlatch.Lock) error {
					<-ctx.Done()
					return nil
				})
				assert.ErrorIs(t, err, redlatch.ErrMaxHold)
			})
		}
	})
}

// TestHandlesEndTogetherOnARealServer: under load, with leases that end by themselves, what each
// handle does then disturbs no other call. Every night this goes on for longer.
func TestHandlesEndTogetherOnARealServer(t *testing.T) {
	kinds := only("SetNXPX", "Semaphore", "Write")
	kinds["Read"] = readers["Read"]
	onRedis(t, kinds, func(t *testing.T, w *world) {
		lockers := []redlatch.Locker{
			w.locker(t, redlatch.WithMaxHold(20*time.Millisecond)),
			w.locker(t, redlatch.WithTTL(30*time.Millisecond), redlatch.WithoutRenewal()),
		}
		for until := time.Now().Add(*stress); time.Now().Before(until); {
			together(32, func(i int) {
				l, key := lockers[i%2], fmt.Sprint(i%4)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				lock, err := l.Lock(ctx, key)
				if err != nil {
					assert.Nil(t, lock)
					return
				}
				if i%8 > 1 {
					<-lock.Done()
				}
				assert.Equal(t, key, lock.Key())
				assert.NotZero(t, lock.Fence())
				if i%3 == 0 {
					_ = lock.UnlockAfter(ctx, time.Millisecond)
				}
				_ = lock.Extend(ctx, time.Second)
				_ = lock.Unlock(ctx)
				assert.ErrorIs(t, lock.Unlock(ctx), redlatch.ErrReleased)
				assert.Error(t, lock.Err())
			})
		}
		direct := w.Direct
		require.NoError(t, direct.FlushAll(t.Context()).Err())
		other := w.over(t, w.Client(t))
		lock, err := other.TryLock(t.Context(), "free", redlatch.WithMaxHold(time.Minute))
		require.NoError(t, err)
		unlock(t, lock)
	})
}

// together runs f n times at once.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
