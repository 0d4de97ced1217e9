package behavior_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// readers makes a Locker for readers.
var readers = map[string]maker{"Read": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	read, _, err := redlatch.NewReadWrite(c, opts...)
	return read, err
}}

// sides returns both Lockers of one process.
type sides func(opts ...redlatch.Option) (read, write redlatch.Locker)

// onReadWrite runs a test on miniredis in a bubble, with pairs of Lockers that have a client of
// their own.
func onReadWrite(t *testing.T, test func(t *testing.T, s *locktest.Site, pair sides)) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		test(t, s, func(opts ...redlatch.Option) (read, write redlatch.Locker) {
			return locktest.ReadWrite(t, s.Client(t), opts...)
		})
		onlyFences(t, s.Direct)
	})
}

func unlock(t *testing.T, locks ...*redlatch.Lock) {
	t.Helper()
	for _, lock := range locks {
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// TestManyReadOrOneWrites: of any process. Fences of writers are above all before, and those of
// readers above all of writers.
func TestManyReadOrOneWrites(t *testing.T) {
	onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
		read, write := pair()
		read2, write2 := pair()
		a := mustLock(t, read, "k")
		time.Sleep(2 * time.Millisecond) // tokens have whole ms
		b := mustLock(t, read2, "k")
		for _, l := range []redlatch.Locker{write, write2} {
			_, err := l.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
		}
		st, err := read.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 2, st.Holders)
		requireHolding(t, st, a, b)
		unlock(t, a, b)

		w := mustLock(t, write, "k")
		require.Greater(t, w.Fence(), max(a.Fence(), b.Fence()))
		for _, l := range []redlatch.Locker{read, read2, write, write2} {
			_, err := l.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
		}
		st, err = read.Inspect(t.Context(), "k")
		require.NoError(t, err)
		requireHolding(t, st, w)
		require.Equal(t, 1, st.Holders)
		unlock(t, w)
		a = mustLock(t, read, "k")
		require.Greater(t, a.Fence(), w.Fence())
		unlock(t, a)
	})
}

// TestReadersAndWritersWaitInOrder: a reader who comes after a writer waits for it, and the readers
// behind a writer come together.
func TestReadersAndWritersWaitInOrder(t *testing.T) {
	onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
		queue := func(writes bool) <-chan *redlatch.Lock {
			read, write := pair()
			if writes {
				return waitInLine(t, write, "k")
			}
			return waitInLine(t, read, "k")
		}
		read, _ := pair()
		first := mustLock(t, read, "k")
		time.Sleep(time.Second) // others do not join
		w1, r1, r2, w2, r3 := queue(true), queue(false), queue(false), queue(true), queue(false)
		_, err := read.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
		unlock(t, first)
		writer := <-w1
		for _, later := range []<-chan *redlatch.Lock{r1, r2, w2, r3} {
			require.Empty(t, later)
		}
		unlock(t, writer)
		a, b := <-r1, <-r2
		require.Empty(t, r3, "a writer waits before it")
		unlock(t, a)
		require.Empty(t, w2)
		unlock(t, b)
		unlock(t, <-w2)
		unlock(t, <-r3)
	})
}

// TestReadersOfAProcessShareAPermit: those in line are granted it together, and others join for 5
// ms without a command. The last one releases it.
func TestReadersOfAProcessShareAPermit(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		var commands atomic.Int64
		client := s.Client(t)
		client.AddHook(locktest.Count(&commands))
		read, _ := locktest.ReadWrite(t, client)
		_, write := pair()
		first := mustLock(t, write, "k")
		var waits []<-chan *redlatch.Lock
		for range 10 {
			waits = append(waits, locktest.Standing(t, read))
		}
		time.Sleep(time.Second)
		before := commands.Load()
		unlock(t, first)
		var locks []*redlatch.Lock
		for _, wait := range waits {
			locks = append(locks, <-wait)
		}
		time.Sleep(4 * time.Millisecond)
		locks = append(locks, mustLock(t, read, "k"))
		late, err := read.Lock(t.Context(), "k")
		require.NoError(t, err)
		locks = append(locks, late)
		require.Equal(t, before, commands.Load(), "no command was needed")
		for _, lock := range locks {
			require.Equal(t, locks[0].Fence(), lock.Fence())
		}
		requireHolders(t, read, 1)

		time.Sleep(time.Millisecond)
		own := mustLock(t, read, "k")
		require.Greater(t, own.Fence(), late.Fence(), "it came too late to join")
		other := mustLock(t, read, "k", redlatch.WithMaxHold(time.Minute))
		require.Greater(t, other.Fence(), own.Fence(), "it has an option")
		requireHolders(t, read, 3)
		unlock(t, own, other)

		next := waitInLine(t, write, "k")
		before = commands.Load()
		for _, lock := range locks[:len(locks)-1] {
			unlock(t, lock)
			require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
		}
		require.Equal(t, before, commands.Load())
		require.NoError(t, late.Err())
		require.Empty(t, next)
		unlock(t, late)
		unlock(t, <-next)
	})
}

// TestReadersShareALease: what one of them extends lasts for all. One who keeps writers out keeps
// them out when the others have left.
func TestReadersShareALease(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		read, _ := pair(redlatch.WithTTL(3 * time.Second))
		_, write := pair()
		a, b, c := mustLock(t, read, "k"), mustLock(t, read, "k"), mustLock(t, read, "k")
		require.Equal(t, a.Fence(), c.Fence())
		time.Sleep(10 * time.Second)
		require.NoError(t, b.Err())
		require.NoError(t, b.Extend(t.Context(), time.Minute))
		require.Equal(t, b.Until(), c.Until())
		require.NoError(t, a.UnlockAfter(t.Context(), 10*time.Second))
		require.NoError(t, b.Err())
		unlock(t, b, c)
		begin := time.Now()
		other := mustLock(t, read, "k")
		w, err := write.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
		require.Nil(t, w)
		unlock(t, other)
		w, err = write.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, 10, time.Since(begin).Seconds(), 1)
		unlock(t, w)

		a, b = mustLock(t, read, "k"), mustLock(t, read, "k")
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		for _, lock := range []*redlatch.Lock{a, b} {
			<-lock.Done()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		}
	})
}

// TestReaderWhoseLockHasEndedHoldsNobodyUp: it may never call Unlock.
func TestReaderWhoseLockHasEndedHoldsNobodyUp(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		read, _ := pair(redlatch.WithTTL(3*time.Second), redlatch.WithMaxHold(2*time.Second))
		a, b := mustLock(t, read, "k"), mustLock(t, read, "k")
		<-a.Done()
		require.ErrorIs(t, b.Err(), redlatch.ErrMaxHold)
		require.ErrorIs(t, a.Unlock(t.Context()), redlatch.ErrMaxHold)
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
		require.ErrorIs(t, b.Unlock(t.Context()), redlatch.ErrMaxHold)
	})
}

// TestReadersRenewTheirPermitOnce: however many share it.
func TestReadersRenewTheirPermitOnce(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		client, tap := locktest.Tapped(t, s)
		var renewed atomic.Int64
		read, _ := locktest.ReadWrite(t, client, redlatch.WithTTL(3*time.Second), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(context.Context, redlatch.Event) { renewed.Add(1) },
		}))
		_, write := pair()
		locktest.Warm(t, read)
		first := mustLock(t, write, "k")
		var locks []*redlatch.Lock
		var waits []<-chan *redlatch.Lock
		for range 64 {
			waits = append(waits, locktest.Standing(t, read))
		}
		unlock(t, first)
		for _, wait := range waits {
			locks = append(locks, <-wait)
		}
		renewed.Store(0)
		before := tap.Sent.Load()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, tap.Sent.Load()-before, int64(61))
		require.Equal(t, tap.Sent.Load()-before, renewed.Load())
		unlock(t, locks[1:]...)
		time.Sleep(time.Minute)
		require.NoError(t, locks[0].Err())
		unlock(t, locks[0])
	})
}

// TestReaderKeepsWritersOutWhileOthersRead: what Unlock has confirmed is in Redis, whatever becomes
// of those who share the permit.
func TestReaderKeepsWritersOutWhileOthersRead(t *testing.T) {
	for name, others := range map[string]func(t *testing.T, lock *redlatch.Lock){
		"until they leave":         func(t *testing.T, lock *redlatch.Lock) { unlock(t, lock) },
		"until their lock is lost": func(_ *testing.T, lock *redlatch.Lock) { <-lock.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
				read, _ := pair(redlatch.WithTTL(3*time.Second), redlatch.WithoutRenewal())
				_, write := pair()
				a, b := mustLock(t, read, "k"), mustLock(t, read, "k")
				begin := time.Now()
				require.NoError(t, a.UnlockAfter(t.Context(), 20*time.Second))
				others(t, b)
				for time.Since(begin) < 19*time.Second {
					_, err := write.TryLock(t.Context(), "k")
					requireOnly(t, err, redlatch.ErrNotAcquired)
					unlock(t, mustLock(t, read, "k"))
					time.Sleep(time.Second)
				}
				w, err := write.Lock(t.Context(), "k")
				require.NoError(t, err)
				require.InDelta(t, 20, time.Since(begin).Seconds(), 0.1)
				unlock(t, w)
			})
		})
	}
}

// TestLastReaderKeepsNobodyOut: if nobody has asked for that, the release hands the key to the next
// writer.
func TestLastReaderKeepsNobodyOut(t *testing.T) {
	onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
		read, _ := pair()
		_, write := pair()
		for range 50 {
			var locks []*redlatch.Lock
			for range 8 {
				locks = append(locks, mustLock(t, read, "k"))
			}
			next := waitInLine(t, write, "k")
			begin := time.Now()
			together(len(locks), func(i int) { assert.NoError(t, locks[i].Unlock(t.Context())) })
			unlock(t, <-next)
			require.Zero(t, time.Since(begin))
		}
	})
}

// TestNoReaderOrWriterIsToldOfEachHolder: the one that is named changes often where a key has
// several.
func TestNoReaderOrWriterIsToldOfEachHolder(t *testing.T) {
	onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
		var moved atomic.Int64
		hooks := redlatch.WithHooks(redlatch.Hooks{Moved: func(context.Context, redlatch.Event) { moved.Add(1) }})
		short := redlatch.WithTTL(3 * time.Second)
		read1, _ := pair(short)
		read2, _ := pair(short)
		_, write := pair(hooks)
		a, b := mustLock(t, read1, "k"), mustLock(t, read2, "k")
		next := locktest.Standing(t, write)
		time.Sleep(time.Minute)
		require.Zero(t, moved.Load())
		unlock(t, a, b)
		unlock(t, <-next)
	})
}

// TestNoReaderWaitsForTheHookOfAnother: who notices that the lock of all readers is lost calls its
// own hook, and those of the others run beside it.
func TestNoReaderWaitsForTheHookOfAnother(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		read, _ := pair()
		lost := make(chan string, 2)
		reader := func(name string, works time.Duration) *redlatch.Lock {
			return mustLock(t, read, "k", redlatch.WithHooks(redlatch.Hooks{Lost: func(context.Context, redlatch.Event) {
				time.Sleep(works)
				lost <- name
			}}))
		}
		slow, quick := reader("slow", time.Minute), reader("quick", time.Second)
		require.Equal(t, slow.Token(), quick.Token(), "they share a permit")
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		begin := time.Now()
		require.ErrorIs(t, quick.Extend(t.Context(), time.Minute), redlatch.ErrLost)
		require.Equal(t, time.Second, time.Since(begin), "its own hook runs in its goroutine")
		require.Equal(t, "quick", <-lost)
		require.Equal(t, "slow", <-lost)
		require.ErrorIs(t, slow.Err(), redlatch.ErrLost)
	})
}

// TestMigrationToReadWriteLocks: each side of a fleet that migrates takes the old lock too, so
// readers exclude each other until all processes use the new Lockers.
func TestMigrationToReadWriteLocks(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		old := newLocker(t, s.Client(t))
		read, write := pair(redlatch.WithKeyPrefix("v2:"))
		reader, writer := made(redlatch.NewMigration(old, read)), made(redlatch.NewMigration(old, write))
		for _, l := range []redlatch.Locker{reader, writer} {
			lock := mustLock(t, l, "k")
			for _, other := range []redlatch.Locker{old, reader, writer, write} {
				_, err := other.TryLock(t.Context(), "k")
				requireOnly(t, err, redlatch.ErrNotAcquired)
			}
			unlock(t, lock)
		}
		shared := mustLock(t, read, "k") // of a process that has migrated
		lock := mustLock(t, reader, "k")
		_, err := writer.TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrNotAcquired)
		unlock(t, lock, shared)
	})
}

// TestAdoptedReaderHasAPermitOfItsOwn: the Unlock of one reader does not end the lock of another.
func TestAdoptedReaderHasAPermitOfItsOwn(t *testing.T) {
	onReadWrite(t, func(t *testing.T, _ *locktest.Site, pair sides) {
		read, write := pair()
		read2, write2 := pair()
		a, b := mustLock(t, read, "k"), mustLock(t, read, "k")
		next := waitInLine(t, write2, "k")
		adopted, err := read2.Adopt(t.Context(), "k", a.Token())
		require.NoError(t, err)
		require.NotEqual(t, a.Token(), adopted.Token())
		requireHolders(t, read, 2)
		unlock(t, a, b)
		require.NoError(t, adopted.Err())
		for _, token := range []redlatch.Token{a.Token(), b.Token(), "", "!" + a.Token()} {
			_, err = read2.Adopt(t.Context(), "k", token)
			require.Error(t, err)
		}
		_, err = write.Adopt(t.Context(), "k", adopted.Token())
		requireOnly(t, err, redlatch.ErrLost)
		require.Empty(t, next)
		unlock(t, adopted)
		w := <-next
		_, err = read.Adopt(t.Context(), "k", w.Token())
		requireOnly(t, err, redlatch.ErrLost)
		again, err := write.Adopt(t.Context(), "k", w.Token())
		require.NoError(t, err)
		require.Greater(t, again.Fence(), w.Fence())
		unlock(t, again)
		require.ErrorIs(t, w.Unlock(t.Context()), redlatch.ErrLost)
	})
}

// TestSecondLockInOneCallIsRefused: a reader cannot become a writer, and a second reader would wait
// for itself if a writer came in between.
func TestSecondLockInOneCallIsRefused(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		read, write := pair()
		for _, outer := range []redlatch.Locker{read, write} {
			require.NoError(t, redlatch.Do(t.Context(), outer, "k", func(ctx context.Context, _ *redlatch.Lock) error {
				for _, inner := range []redlatch.Locker{read, write} {
					_, err := inner.Lock(ctx, "k")
					requireOnly(t, err, redlatch.ErrInvalid)
				}
				return nil
			}))
		}
		for _, opt := range []redlatch.Option{redlatch.WithoutQueue(), redlatch.WithOwner("!api")} {
			_, _, err := redlatch.NewReadWrite(s.Client(t), opt)
			requireOnly(t, err, redlatch.ErrInvalid)
		}
		_, _, err := redlatch.NewReadWrite(nil)
		requireOnly(t, err, redlatch.ErrInvalid)
	})
}

// TestWorkerThatWantsMaintenanceIsRefused: the write Locker excludes the permits of a semaphore, and
// the reverse. With the ctx of the one, a call of the other could only wait for itself. On another
// key, under another prefix, and once the lock has ended, it is served. Permits do not exclude each
// other, so a reader and a worker may hold both.
func TestWorkerThatWantsMaintenanceIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client := s.Client(t)
		workers := newSemaphore(t, client, 5)
		read, maintenance := locktest.ReadWrite(t, client)
		_, second := locktest.ReadWrite(t, client)
		_, elsewhere := locktest.ReadWrite(t, client, redlatch.WithKeyPrefix("v2:"))
		refused := func(ctx context.Context, l redlatch.Locker) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err := l.Lock(ctx, "queue")
			requireOnly(t, err, redlatch.ErrInvalid)
			require.ErrorContains(t, err, "wait for itself")
		}
		granted := func(ctx context.Context, l redlatch.Locker, key string) {
			t.Helper()
			lock, err := l.Lock(ctx, key)
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(ctx))
		}
		worker := mustLock(t, workers, "queue")
		ctx := worker.Context(t.Context())
		refused(ctx, maintenance)
		refused(context.WithoutCancel(ctx), maintenance)
		granted(ctx, workers, "queue")
		granted(ctx, read, "queue")
		granted(ctx, maintenance, "other")
		granted(ctx, elsewhere, "queue")
		require.NoError(t, worker.Unlock(t.Context()))
		granted(context.WithoutCancel(ctx), maintenance, "queue")

		repair := mustLock(t, maintenance, "queue")
		refused(repair.Context(t.Context()), workers)
		refused(repair.Context(t.Context()), second)
		require.NoError(t, repair.Unlock(t.Context()))
	})
}

// TestLeaverLetsReadersBy: a writer that leaves the queue has kept them back, and so has one whose
// process is silent.
func TestLeaverLetsReadersBy(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		read, write := pair()
		first := mustLock(t, read, "k")
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		left := make(chan error, 1)
		go func() { _, err := write.Lock(ctx, "k"); left <- err }() // ends with ctx
		time.Sleep(100 * time.Millisecond)
		read2, _ := pair()
		begin := time.Now()
		second, err := read2.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, 0.6, time.Since(begin).Seconds(), 0.05)
		requireOnly(t, <-left, redlatch.ErrNotAcquired)

		entry := redis.Z{Score: 1, Member: "2000:2147483647 -redlatch:nobody !somebody"}
		require.NoError(t, s.Direct.ZAdd(t.Context(), "{k}:permits:k", entry).Err())
		begin = time.Now()
		third, err := read.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, 4, time.Since(begin).Seconds(), 1)
		unlock(t, first, second, third)
	})
}

// TestNobodyOvertakesAWriterBehindManyReaders: a script that finds the key free does not get as far as the writer.
func TestNobodyOvertakesAWriterBehindManyReaders(t *testing.T) {
	onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
		late, write := pair()
		mustLock(t, write, "k", redlatch.WithoutRenewal())
		var readers []<-chan *redlatch.Lock
		for range 40 {
			read, _ := pair()
			readers = append(readers, waitInLine(t, read, "k"))
		}
		_, write = pair()
		writer := waitInLine(t, write, "k")
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		_, err := late.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "overtaken")
		for _, served := range readers {
			unlock(t, await(t, served, "a reader"))
		}
		unlock(t, await(t, writer, "the writer"))
	})
}

// TestNobodyReadsWhileSomebodyWrites: under load, in many processes, on a real server too.
func TestNobodyReadsWhileSomebodyWrites(t *testing.T) {
	onRedis(t, readers, func(t *testing.T, w *world) {
		var inside [3]struct{ readers, writers atomic.Int64 }
		var reads, writes atomic.Int64
		var crowd sync.WaitGroup
		for range 4 {
			read, write := locktest.ReadWrite(t, w.Client(t))
			for i := range 8 {
				crowd.Go(func() {
					for n := range 60 {
						in, key := &inside[n%3], string(rune('a'+n%3))
						l, mine, done := read, &in.readers, &reads
						if (n+i)%10 == 0 {
							l, mine, done = write, &in.writers, &writes
						}
						lock, err := l.Lock(bounded(t), key)
						if !assert.NoError(t, err) {
							return
						}
						n := mine.Add(1)
						assert.False(t, in.writers.Load() > 1 || in.writers.Load() == 1 && in.readers.Load() > 0, n)
						done.Add(1)
						time.Sleep(100 * time.Microsecond)
						mine.Add(-1)
						assert.NoError(t, lock.Unlock(t.Context()))
					}
				})
			}
		}
		crowd.Wait()
		require.Positive(t, reads.Load())
		require.Positive(t, writes.Load())
	})
}

// TestReaderThatKeepsWritersOutLeavesLast: if the others leave while its command is under way, its own release
// has kept writers out for what was left.
func TestReaderThatKeepsWritersOutLeavesLast(t *testing.T) {
	const keep, timeout = 12 * time.Second, time.Second // longer than the TTL
	never := errors.New("a command was lost")
	for name, tt := range map[string]struct {
		leaves, arrives time.Duration // of the last reader, and of the command
		deleted         bool          // the key, before the last reader leaves
		cut             bool          // the release does not arrive
		want            error
	}{
		"the others leave first":                {100 * time.Millisecond, 600 * time.Millisecond, false, false, nil},
		"they leave afterwards":                 {600 * time.Millisecond, 100 * time.Millisecond, false, false, nil},
		"the key was deleted":                   {100 * time.Millisecond, 150 * time.Millisecond, true, false, redlatch.ErrLost},
		"the key was deleted, and is another's": {250 * time.Millisecond, 600 * time.Millisecond, true, false, redlatch.ErrLost},
		"the release was lost":                  {100 * time.Millisecond, 600 * time.Millisecond, false, true, redlatch.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			onReadWrite(t, func(t *testing.T, s *locktest.Site, pair sides) {
				client, tap := locktest.Tapped(t, s)
				read, _ := locktest.ReadWrite(t, client, redlatch.WithOpTimeout(timeout))
				_, write := pair()
				locktest.Warm(t, read)
				a, b := mustLock(t, read, "k"), mustLock(t, read, "k")
				next := waitInLine(t, write, "k")
				begin := time.Now()
				var sent atomic.Int64
				tap.Set(func(_ context.Context, send func() error) error {
					switch {
					case sent.Add(1) == 1:
						time.Sleep(tt.arrives)
					case tt.cut:
						return never
					}
					return send()
				})
				kept, left := make(chan error, 1), make(chan error, 1)
				go func() { kept <- a.UnlockAfter(t.Context(), keep) }()
				time.Sleep(tt.leaves)
				if tt.deleted {
					require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
				}
				go func() { left <- b.Unlock(t.Context()) }()
				if err := <-kept; tt.want == nil {
					require.NoError(t, err)
				} else {
					requireOnly(t, err, tt.want)
				}
				require.LessOrEqual(t, time.Since(begin), 2*timeout)
				require.NoError(t, <-left, "nothing is sent, or writers are kept out")
				unlock(t, <-next)
				if !tt.deleted {
					require.GreaterOrEqual(t, time.Since(begin), keep)
				}
			})
		})
	}
}

// TestPermitThatSeemsToLastAgainLetsNobodyIn: the lease of a reader that has ended lasts again if the clock of Redis was set
// back. A writer that was granted the key meanwhile is still alone, and so is what keeps others out after it.
func TestPermitThatSeemsToLastAgainLetsNobodyIn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		readers, writers := locktest.ReadWrite(t, s.Client(t), longTTL)
		lock := mustLock(t, writers, "k")
		again := func() {
			now, err := s.Direct.Time(t.Context()).Result()
			require.NoError(t, err)
			ended := redis.Z{Score: float64(now.Add(time.Minute).UnixMicro()), Member: "gone/" + uuid.NewString()}
			require.NoError(t, s.Direct.ZAdd(t.Context(), "k", ended).Err())
		}
		again()
		_, err := readers.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, lock.UnlockAfter(t.Context(), time.Hour))
		again()
		_, err = readers.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	})
}
