package behavior_test

import (
	"context"
	"fmt"
	"net"
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
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// busy has processes lock a key again and again, each for a while, until the test stops them.
type busy struct {
	mu     sync.Mutex // guards the fields below
	held   time.Time  // until when the key was held; zero: by nobody yet
	holds  int
	grants int
	gap    time.Duration // the longest time without a holder
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func (b *busy) begin(t *testing.T, hold time.Duration, lockers ...redlatch.Locker) {
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	for _, l := range lockers {
		b.wg.Go(func() {
			for ctx.Err() == nil {
				lock, err := l.Lock(ctx, "k")
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					return
				}
				b.took()
				time.Sleep(hold)
				b.left()
				_ = lock.Unlock(t.Context()) // it may be lost
			}
		})
	}
}

func (b *busy) took() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grants++; b.holds == 0 {
		b.freedLocked()
	}
	b.holds++
}

func (b *busy) left() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds--; b.holds == 0 {
		b.held = time.Now()
	}
}

func (b *busy) freedLocked() {
	if !b.held.IsZero() {
		b.gap = max(b.gap, time.Since(b.held))
	}
}

// reset forgets what was measured.
func (b *busy) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.gap, b.grants = time.Now(), 0, 0
}

// measured returns what came since reset.
func (b *busy) measured() (gap time.Duration, grants int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds == 0 {
		b.freedLocked()
		b.held = time.Now()
	}
	return b.gap, b.grants
}

// returned has the server return to its state of a time ago, and ends all connections, as those to a primary that fails. It
// requires that the key is held again soon, and returns how many have had it in a second.
func (b *busy) returned(t *testing.T, w *world, cut func(), lost time.Duration) (grants int) {
	t.Helper()
	restore := locktest.Snapshot(t, w.Direct)
	time.Sleep(lost) // of the bubble
	restore()
	b.reset()
	cut()
	time.Sleep(time.Second)
	gap, grants := b.measured()
	require.Less(t, gap, 500*time.Millisecond)
	return grants
}

// TestReturnToOlderDataStopsNobody: entries of lines that were served meanwhile come back, and so
// does the lease of an earlier holder. Their processes give them back at once. Without that, each
// entry costs a claim, in which nobody has the key.
func TestReturnToOlderDataStopsNobody(t *testing.T) {
	for _, c := range []struct {
		processes int
		lost      time.Duration
		opts      []redlatch.Option
	}{
		{5, 0, nil},
		{5, 100 * time.Millisecond, nil},
		{10, 500 * time.Millisecond, nil},
		{50, 100 * time.Millisecond, nil},
		{4, 100 * time.Millisecond, []redlatch.Option{redlatch.WithoutRenewal()}},
		{5, 100 * time.Millisecond, []redlatch.Option{redlatch.WithMinHold(20 * time.Millisecond)}},
		{5, 100 * time.Millisecond, []redlatch.Option{redlatch.WithGrace(time.Second)}},
	} {
		t.Run(fmt.Sprint(c.processes, " ", c.lost, " ", len(c.opts)), func(t *testing.T) {
			onEvery(t, queues, func(t *testing.T, w *world) {
				var b busy
				defer b.wg.Wait()
				var lockers []redlatch.Locker
				cut := w.cuttable()
				for range c.processes {
					lockers = append(lockers, w.locker(t, c.opts...))
				}
				b.begin(t, 10*time.Millisecond, lockers...)
				defer b.stop()
				time.Sleep(time.Second)
				require.Greater(t, b.returned(t, w, cut, c.lost), 20)
			})
		})
	}
}

// TestReturnToOlderDataStopsNoPermits: a refusal names one holder, and what comes back can have many, of
// processes that are told of others.
func TestReturnToOlderDataStopsNoPermits(t *testing.T) {
	limits := func(t *testing.T, w *world, i int) redlatch.Locker {
		return locktest.Semaphore(t, w.Client(t), []int{1, 3, 5}[i%3])
	}
	readWrite := func(t *testing.T, w *world, i int) redlatch.Locker {
		readers, writers := locktest.ReadWrite(t, w.Client(t), redlatch.WithoutRenewal())
		if i%3 == 0 {
			return writers
		}
		return readers
	}
	for name, tt := range map[string]struct {
		processes int
		open      func(t *testing.T, w *world, i int) redlatch.Locker
	}{
		"limits of 1, 3 and 5, few processes":                {5, limits},
		"limits of 1, 3 and 5":                               {20, limits},
		"readers and writers without renewal, few processes": {5, readWrite},
		"readers and writers without renewal":                {50, readWrite},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				w := &world{s, name, nil}
				var b busy
				defer b.wg.Wait()
				var lockers []redlatch.Locker
				cut := w.cuttable()
				for i := range tt.processes {
					lockers = append(lockers, tt.open(t, w, i))
				}
				b.begin(t, 10*time.Millisecond, lockers...)
				defer b.stop()
				for range 5 {
					time.Sleep(time.Second)
					b.returned(t, w, cut, 100*time.Millisecond)
				}
			})
		})
	}
}

// TestReturnToOlderDataStopsNobodyWithSeveralKeys: the process that can release the second key waits for the first, which the
// process has that waits for the second.
func TestReturnToOlderDataStopsNobodyWithSeveralKeys(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		var b busy
		defer b.wg.Wait()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		cut := w.cuttable()
		for range 10 {
			l := w.locker(t, longTTL)
			b.wg.Go(func() {
				for ctx.Err() == nil {
					_ = redlatch.DoAll(ctx, l, []string{"k", "l", "m"}, func(context.Context, []*redlatch.Lock) error {
						b.took()
						time.Sleep(10 * time.Millisecond)
						b.left()
						return nil
					})
				}
			})
		}
		for lost := range 5 {
			time.Sleep(time.Second)
			b.returned(t, w, cut, time.Duration(1+lost*40)*time.Millisecond)
		}
	})
}

// TestReleasedTokensAreReleasedAgain, if they were given back without a keep. Refusals do not count as releases. The process
// waits for another key, so it notices that the connection broke.
func TestReleasedTokensAreReleasedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		opts  []redlatch.Option
		ends  func(lock *redlatch.Lock) error
		least time.Duration
		most  time.Duration
	}{
		{"after a release", []redlatch.Option{longTTL}, func(k *redlatch.Lock) error { return k.Unlock(context.Background()) }, 0, time.Second},
		{
			"not after a keep", nil, func(k *redlatch.Lock) error { return k.UnlockAfter(context.Background(), time.Minute) },
			8 * time.Second, 11 * time.Second, // the TTL
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEvery(t, queues, func(t *testing.T, w *world) {
				cut := w.cuttable()
				others := mustLock(t, w.locker(t), "other")
				l := w.locker(t)
				waits := locktest.Locking(t, l, "other")
				time.Sleep(time.Second)
				lock := mustLock(t, l, "k", c.opts...)
				restore := locktest.Snapshot(t, w.Direct)
				require.NoError(t, c.ends(lock))
				for range 100 {
					_, err := l.TryLock(t.Context(), "other")
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				}
				restore()
				cut()
				began := time.Now()
				next, err := w.locker(t).Lock(t.Context(), "k")
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(began), c.least)
				require.Less(t, time.Since(began), c.most)
				require.NoError(t, next.Unlock(t.Context()))
				require.NoError(t, others.Unlock(t.Context()))
				require.NoError(t, (<-waits).Unlock(t.Context()))
			})
		})
	}
}

// TestReleasedTokensOfTheOtherSideAreReleasedAgain: a process that waits as a reader has written before.
func TestReleasedTokensOfTheOtherSideAreReleasedAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		w := &world{s, "Read", nil}
		cut := w.cuttable()
		_, elsewhere := locktest.ReadWrite(t, w.Client(t))
		others := mustLock(t, elsewhere, "other")
		readers, writers := locktest.ReadWrite(t, w.Client(t), longTTL)
		waits := locktest.Locking(t, readers, "other")
		time.Sleep(time.Second)
		lock := mustLock(t, writers, "k")
		restore := locktest.Snapshot(t, w.Direct)
		require.NoError(t, lock.Unlock(t.Context()))
		restore()
		cut()
		began := time.Now()
		next, err := elsewhere.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, others.Unlock(t.Context()))
		require.NoError(t, (<-waits).Unlock(t.Context()))
	})
}

// TestOnlyWhoHasReleasedSearchesForGhosts, and once while it waits.
func TestOnlyWhoHasReleasedSearchesForGhosts(t *testing.T) {
	for _, c := range []struct{ released, searches int64 }{{0, 0}, {1, 1}} {
		locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
			lock := mustLock(t, locktest.Semaphore(t, s.Client(t), 1), "k")
			client := s.Client(t)
			l := locktest.Semaphore(t, client, 1)
			if c.released > 0 {
				require.NoError(t, mustLock(t, l, "x").Unlock(t.Context()))
			}
			var searches atomic.Int64
			client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context, cmd redis.Cmder) error {
					if args := cmd.Args(); cmd.Name() == "evalsha" && len(args) == 5 { // that of a script without arguments
						searches.Add(1)
					}
					return next(ctx, cmd)
				}
			}))
			next := locktest.Locking(t, l, "k")
			time.Sleep(8 * time.Second)
			require.Equal(t, c.searches, searches.Load())
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, (<-next).Unlock(t.Context()))
		})
	}
}

// TestGhostsOfManyReadersLetAWriterIn, although connections survive: a refusal names one of them, and its process looks for
// others of its own.
func TestGhostsOfManyReadersLetAWriterIn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var readers []redlatch.Locker
		var locks []*redlatch.Lock
		for range 20 {
			l, _ := locktest.ReadWrite(t, s.Client(t), longTTL)
			readers, locks = append(readers, l), append(locks, mustLock(t, l, "k"))
		}
		restore := locktest.Snapshot(t, s.Direct)
		for _, lock := range locks {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		restore()
		_, l := locktest.ReadWrite(t, s.Client(t), longTTL)
		writer := locktest.Locking(t, l, "k")
		time.Sleep(time.Second)
		asked := time.Now()
		var waiting []<-chan *redlatch.Lock
		for _, l := range readers {
			waiting = append(waiting, locktest.Locking(t, l, "k"))
		}
		lock := <-writer
		require.Less(t, time.Since(asked), 2500*time.Millisecond)
		require.NoError(t, lock.Unlock(t.Context()))
		for _, w := range waiting {
			require.NoError(t, (<-w).Unlock(t.Context()))
		}
	})
}

// TestMoreGhostsThanAnInspectionListsAreReleased: readers whose calls have options of their own hold a permit each.
func TestMoreGhostsThanAnInspectionListsAreReleased(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		w := &world{s, "Read", nil}
		cut := w.cuttable()
		var readers []redlatch.Locker
		var locks []*redlatch.Lock
		for range 10 {
			l, _ := locktest.ReadWrite(t, w.Client(t), longTTL)
			readers = append(readers, l)
		}
		for i := range 40 {
			for _, l := range readers {
				locks = append(locks, mustLock(t, l, "k", redlatch.WithMaxHold(time.Hour+time.Duration(i)*time.Second)))
			}
		}
		restore := locktest.Snapshot(t, w.Direct)
		for _, lock := range locks {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		restore()
		_, l := locktest.ReadWrite(t, w.Client(t), longTTL)
		writer := locktest.Standing(t, l)
		var b busy
		defer b.wg.Wait()
		b.begin(t, 10*time.Millisecond, readers...)
		defer b.stop()
		time.Sleep(10 * time.Millisecond)
		cut()
		begun := time.Now()
		lock := <-writer
		require.Less(t, time.Since(begun), time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLostTokenThatWasUnlockedIsAGhost: a holder of the time that was lost learns of that, and unlocks. If its entry
// comes back, it is not spared any more.
func TestLostTokenThatWasUnlockedIsAGhost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		w := &world{s, "SetNXPX", redlatch.NewSetNXPX}
		var b busy
		defer b.wg.Wait()
		cut := w.cuttable()
		var lockers []redlatch.Locker
		for range 10 {
			lockers = append(lockers, w.locker(t, redlatch.WithMinHold(80*time.Millisecond)))
		}
		b.begin(t, 30*time.Millisecond, lockers...)
		defer b.stop()
		for i := range 30 {
			time.Sleep(time.Second + time.Duration(i*7)*time.Millisecond)
			b.returned(t, w, cut, time.Duration(50+i*17)*time.Millisecond)
		}
	})
}

// cuttable returns a function that ends all connections of clients that are made from now on.
func (w *world) cuttable() (cut func()) {
	var mu sync.Mutex // guards all
	var all []net.Conn
	dial := w.Options.Dialer
	w.Options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return c, err
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range all {
			_ = c.Close()
		}
		all = nil
	}
}

// frozen adds entries of waiters to the queue of k that listen and never take a lock up.
func (w *world) frozen(t *testing.T, claim, dash string, n int) {
	t.Helper()
	channel := "redlatch:" + t.Name()
	listening := w.Direct.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = listening.Close() })
	_, err := listening.Receive(t.Context())
	require.NoError(t, err)
	go func() { // until the subscription is closed
		for err := error(nil); err == nil; {
			_, err = listening.Receive(context.WithoutCancel(t.Context()))
		}
	}()
	queue := "{k}:queue:k"
	mark := ""
	if w.name != "SetNXPX" {
		queue, claim = "{k}:permits:k", claim+":1"
	}
	if w.name == "Write" {
		mark = "!"
	}
	for i := range n {
		now, err := w.Direct.Time(t.Context()).Result()
		require.NoError(t, err)
		entry := fmt.Sprintf("%s %s%s %sfrozen/%s", claim, dash, channel, mark, uuid.NewString())
		require.NoError(t, w.Direct.ZAdd(t.Context(), queue, redis.Z{Score: float64(now.UnixMicro() + int64(i)), Member: entry}).Err())
	}
}

// TestFrozenWaitersCostTwoClaims, wherever they stand. Lines of processes that live are
// served in their order, and no claim is lost between them.
func TestFrozenWaitersCostTwoClaims(t *testing.T) {
	for _, c := range []struct {
		claim, dash string
		lasts       time.Duration
		groups      []int // of frozen waiters, before, between and behind lines that live
	}{
		{"2000", "", 2 * time.Second, []int{1, 0, 0}},
		{"2000", "", 2 * time.Second, []int{5, 0, 0}},
		{"2000", "", 2 * time.Second, []int{30, 0, 0, 0}},
		{"2000", "", 2 * time.Second, []int{300, 0, 0}},
		{"2000", "", 2 * time.Second, []int{2, 2, 2, 2, 1}},
		{"2000", "", 2 * time.Second, []int{0, 3, 0, 3, 0}},
		{"1000", "-", time.Second, []int{5, 1, 1, 1, 1}},
	} {
		t.Run(fmt.Sprint(c.claim, c.groups), func(t *testing.T) {
			onEvery(t, queues, func(t *testing.T, w *world) {
				lock := mustLock(t, w.locker(t), "k")
				served := make(chan int, len(c.groups))
				for i, n := range c.groups {
					w.frozen(t, c.claim, c.dash, n)
					time.Sleep(10 * time.Millisecond)
					if i < len(c.groups)-1 {
						got := waitInLine(t, w.locker(t), "k")
						go func() { // ends with its lock
							lock := <-got
							served <- i
							time.Sleep(time.Millisecond)
							assert.NoError(t, lock.Unlock(t.Context()))
						}()
					}
				}
				time.Sleep(5 * time.Second)
				begin := time.Now()
				require.NoError(t, lock.Unlock(t.Context()))
				for i := range len(c.groups) - 1 {
					require.Equal(t, i, await(t, served, "a line is served"))
				}
				took := time.Since(begin)
				require.Less(t, took, 2*c.lasts+500*time.Millisecond)
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// TestFrozenWaitersCostTwoClaimsWhenTheClockOfRedisWasSetBack: the times at which they queued lie ahead then.
func TestFrozenWaitersCostTwoClaimsWhenTheClockOfRedisWasSetBack(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		w.frozen(t, "2000", "", 10)
		time.Sleep(10 * time.Millisecond)
		got := waitInLine(t, w.locker(t), "k")
		w.Step(-time.Hour)
		begin := time.Now()
		require.NoError(t, lock.Unlock(t.Context()))
		next := await(t, got, "a line is served")
		require.Less(t, time.Since(begin), 4500*time.Millisecond)
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(2 * time.Minute)
	})
}

// TestTokenOfOlderDataIsReleased: a refusal names it, and its process does not know it. Others may rely on a token that
// was given out, and the holder of a lost one has its grace to stop: those stay.
func TestTokenOfOlderDataIsReleased(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		l, other := w.locker(t, longTTL), w.locker(t)
		lock := mustLock(t, l, "k")
		restore := locktest.Snapshot(t, w.Direct)
		require.NoError(t, lock.Unlock(t.Context()))
		restore()
		time.Sleep(time.Second)
		_, err := other.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "it is not that of the other process")
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		time.Sleep(time.Second)
		lock = mustLock(t, other, "k")
		require.NoError(t, lock.Unlock(t.Context()))

		lock = mustLock(t, l, "k")
		token := lock.Token()
		restore = locktest.Snapshot(t, w.Direct)
		require.NoError(t, lock.Unlock(t.Context()))
		restore()
		adopted, err := other.Adopt(t.Context(), "k", token)
		require.NoError(t, err)
		for range 3 {
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			time.Sleep(time.Second)
		}
		require.NoError(t, adopted.Unlock(t.Context()))

		lock = mustLock(t, l, "k", redlatch.WithTTL(3*time.Second), redlatch.WithGrace(2*time.Second), redlatch.WithoutRenewal())
		await(t, lock.Done(), "its end")
		for range 3 {
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			time.Sleep(500 * time.Millisecond)
		}
		_, err = other.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "in the grace")
		time.Sleep(time.Second)
		lock = mustLock(t, other, "k")
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestGhostIsReleasedWithTheRegisterOfItsPrefix: a message names the key only. The next owner gets a fence of the
// register that all locks with that prefix share.
func TestGhostIsReleasedWithTheRegisterOfItsPrefix(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		prefixed := redlatch.WithKeyPrefix("a:")
		holder, waiter := w.locker(t, prefixed), w.locker(t)
		lock := mustLock(t, holder, "k")
		got := waitInLineOf(t, holder, waiter, "k", prefixed)
		restore := locktest.Snapshot(t, w.Direct)
		require.NoError(t, lock.Unlock(t.Context()))
		lock = await(t, got, "the lock")
		require.NoError(t, lock.Unlock(t.Context()))
		restore()
		time.Sleep(20 * time.Millisecond)
		_, err := holder.TryLock(t.Context(), "k") // releases its token, so the entry of the other is handed the key
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		time.Sleep(100 * time.Millisecond)
		lock = mustLock(t, holder, "k")
		require.NoError(t, lock.Unlock(t.Context()))
		require.Zero(t, w.Direct.Exists(t.Context(), "redlatch:fence").Val(), "another register was used")
		require.NotZero(t, w.Direct.Exists(t.Context(), "a:redlatch:fence").Val())
	})
}

// waitInLineOf has a caller with options wait for a key. by has the prefix of these options.
func waitInLineOf(t *testing.T, by, l redlatch.Locker, key string, opts ...redlatch.Option) <-chan *redlatch.Lock {
	t.Helper()
	got := locktest.Locking(t, l, key, opts...)
	eventually(t, "it queues", func() bool {
		st, err := by.Inspect(t.Context(), key)
		return err == nil && st.Waiters == 1
	})
	return got
}

// TestForgedAndRepeatedMessagesReleaseNothing that is held: each message comes three times, seconds late too, and others name
// the holders of the moment on all channels.
func TestForgedAndRepeatedMessagesReleaseNothing(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		var lost heard
		var b busy
		var lockers []redlatch.Locker
		for range 4 {
			lockers = append(lockers, w.locker(t, redlatch.WithHooks(redlatch.Hooks{Lost: lost.add})))
		}
		all := w.Direct.PSubscribe(t.Context(), "redlatch:*")
		_, err := all.Receive(t.Context())
		require.NoError(t, err)
		forger := w.Client(t)
		ctx, stop := context.WithCancel(t.Context())
		var repeats sync.WaitGroup
		repeats.Go(func() {
			seen := make(map[string]bool)
			forged := 0
			for got := range all.Channel(redis.WithChannelSize(100_000)) { // the server waits for who receives nothing
				if seen[got.Payload] {
					continue
				}
				seen[got.Payload] = true
				for _, late := range []time.Duration{0, 7 * time.Millisecond, 2 * time.Second} {
					time.AfterFunc(late, func() { forger.Publish(ctx, got.Channel, got.Payload) })
				}
				st, err := lockers[0].Inspect(ctx, "k")
				if err == nil && st.Held && forged < 200 {
					forged++
					entry := fmt.Sprintf("2000 %s %s", got.Channel, string(st.Token))
					now, _ := forger.Time(ctx).Result()
					forger.Publish(ctx, got.Channel, fmt.Sprintf("%d %d %d %d %sk", now.Unix(), 0, uint64(1)<<46, len(entry), entry))
				}
			}
		})
		b.begin(t, 2*time.Millisecond, lockers...)
		time.Sleep(2 * time.Second)
		_, grants := b.measured()
		b.stop()
		b.wg.Wait()
		stop()
		_ = all.Close()
		repeats.Wait()
		require.Empty(t, lost.all())
		require.Greater(t, grants, 200)
	})
}
