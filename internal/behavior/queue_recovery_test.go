package behavior_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestEntriesOfWaitersThatLeftAreGivenBack: 20 waiters give up while their commands do not reach Redis, so
// their entries stay in the queue. Their process still listens. The entries cost later callers almost no time.
func TestEntriesOfWaitersThatLeftAreGivenBack(t *testing.T) {
	t.Parallel()
	onQueues(t, testEntriesOfWaitersThatLeftAreGivenBack)
}

func testEntriesOfWaitersThatLeftAreGivenBack(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var away atomic.Bool
	noRoute := &net.OpError{Op: "dial", Err: errors.New("no route")}
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if away.Load() {
				cmd.SetErr(noRoute)
				return noRoute
			}
			return next(ctx, cmd)
		}
	}))
	l := newLocker(t, client, redlatch.WithOpTimeout(time.Second))
	holder := mustLock(t, newLocker(t, s.Client(t)), "k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := l.Lock(ctx, "k", alone); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		queued(t, l, "k", i+1)
	}
	away.Store(true)
	cancel()
	wg.Wait()
	outlast(t, 3*time.Second) // releases have timed out, also those that continue without their callers
	away.Store(false)
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Greater(t, st.Waiters, 10, "most entries stay, though some leave late on a busy machine")
	begin := time.Now()
	require.NoError(t, holder.Unlock(t.Context()))
	others := newLocker(t, s.Client(t))
	for range 10 {
		lock, err := others.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	require.Less(t, time.Since(begin), 3*time.Second)
}

// queued waits until n waiters queue for key.
func queued(t *testing.T, l redlatch.Locker, key string, n int) {
	t.Helper()
	eventually(t, "the waiters queue", func() bool {
		st, err := l.Inspect(t.Context(), key)
		return err == nil && st.Waiters == n
	})
}

// outlast waits for d, where no event says that the wait is over.
func outlast(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// poller is a client of another library: it locks by SET NX, retries after 50 to 250 ms, and never hands the lock on.
type poller struct{ client *redis.Client }

var deleteOwn = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (p poller) once(ctx context.Context, hold time.Duration) bool {
	token := strings.ReplaceAll(uuid.NewString(), "-", "")
	for !p.client.SetNX(ctx, "k", token, 10*time.Second).Val() {
		select {
		case <-time.After(50*time.Millisecond + rand.N(200*time.Millisecond)):
		case <-ctx.Done():
			return false
		}
	}
	time.Sleep(hold)
	return deleteOwn.Run(context.WithoutCancel(ctx), p.client, []string{"k"}, token).Err() == nil
}

// shared has 2 goroutines of redlatch and 6 of another library lock one key, and returns the grants of both groups.
func shared(t *testing.T, opts ...redlatch.Option) (ours, theirs int64) {
	s := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var mine, other atomic.Int64
	var wg sync.WaitGroup
	const hold = 10 * time.Millisecond
	for range 6 {
		p := poller{s.Client(t)}
		wg.Go(func() {
			for ctx.Err() == nil && p.once(ctx, hold) {
				other.Add(1)
			}
		})
	}
	for range 2 {
		l := newLocker(t, s.Client(t), opts...)
		wg.Go(func() {
			for ctx.Err() == nil {
				lock, err := l.Lock(ctx, "k")
				if err != nil {
					return
				}
				time.Sleep(hold)
				mine.Add(1)
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d grants for 2 of ours, %d for 6 of theirs", mine.Load(), other.Load())
	return mine.Load(), other.Load()
}

// TestWaiterIsServedBesidePollers: pollers never hand the lock on, but waiters still get more than a third
// of their fair share.
func TestWaiterIsServedBesidePollers(t *testing.T) {
	t.Parallel()
	ours, theirs := shared(t)
	require.Greater(t, 12*ours, ours+theirs, "a third of the fair share, 2 in 8")
}

// TestWithoutQueueSharesTheKey: waiters without an entry do not keep pollers out. Both get more than a quarter of
// their fair share.
func TestWithoutQueueSharesTheKey(t *testing.T) {
	t.Parallel()
	ours, theirs := shared(t, redlatch.WithoutQueue())
	require.Greater(t, 16*ours, ours+theirs, "a quarter of the fair share, 2 in 8")
	require.Greater(t, 16*theirs, 3*(ours+theirs), "a quarter of the fair share, 6 in 8")
}

// TestWithoutQueueLeavesNoEntry: a waiter with WithoutQueue polls at the intervals of WithPollInterval, and leaves no
// entry. Its Unlock hands the lock on.
func TestWithoutQueueLeavesNoEntry(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	l := newLocker(t, client)
	holder := mustLock(t, l, "k")
	sent := commandsOf(client)
	got := make(chan *redlatch.Lock, 1)
	// Ends with the lock.
	go func() {
		lock, _ := l.Lock(t.Context(), "k", redlatch.WithoutQueue(), redlatch.WithPollInterval(10*time.Millisecond, 10*time.Millisecond))
		got <- lock
	}()
	eventually(t, "the waiter polls", func() bool { return sent.Load() >= 5 })
	require.Zero(t, s.Client(t).Exists(t.Context(), "{k}:queue:k").Val())
	require.NoError(t, holder.Unlock(t.Context()))
	lock := <-got
	require.NotNil(t, lock)
	next := waitInLine(t, l, "k")
	token := lock.Token()
	require.NoError(t, lock.Unlock(t.Context()))
	require.NotContains(t, []string{"", token}, s.Client(t).Get(t.Context(), "k").Val(), "handed on")
	lock = <-next
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestProcessWithoutAChannelIsServed: a process that may not SUBSCRIBE is served, also while others hand
// the lock to each other all the time.
func TestProcessWithoutAChannelIsServed(t *testing.T) {
	t.Parallel()
	onQueues(t, testProcessWithoutAChannelIsServed)
}

func testProcessWithoutAChannelIsServed(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	client := redis.NewClient(s.User(t, "~*", "&*", "+@all", "-subscribe"))
	t.Cleanup(func() { _ = client.Close() })
	var lockers []redlatch.Locker
	for range 4 {
		lockers = append(lockers, newLocker(t, s.Client(t)))
	}
	locktest.ServedUnderLoad(t, newLocker(t, client), lockers)
	onlyFences(t, s.Client(t))
}

// TestHandedLockOutlastsAnOutage: a handed lock is kept if Redis stops for half of the TTL once its claim was extended, or if
// the link delays every reply by 300 ms.
func TestHandedLockOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	onQueues(t, testHandedLockOutlastsAnOutage)
}

func testHandedLockOutlastsAnOutage(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	t.Run("Redis stops", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		l := newLocker(t, s.Client(t), redlatch.WithTTL(4*time.Second))
		holder := mustLock(t, l, "k")
		got := waitInLine(t, l, "k")
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.NotNil(t, lock)
		eventually(t, "the claim is extended", func() bool { return time.Until(lock.Until()) > 3*time.Second })
		s.Pause()
		outlast(t, 2*time.Second)
		s.Resume()
		eventually(t, "renewed", func() bool { return lock.Err() != nil || time.Until(lock.Until()) > 3*time.Second })
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
	t.Run("a slow link", func(t *testing.T) {
		t.Parallel()
		direct, p, client := behindProxy(t)
		l := newLocker(t, client, redlatch.WithOpTimeout(3*time.Second))
		holder := mustLock(t, newLocker(t, direct), "k")
		got := waitInLine(t, l, "k")
		p.Delay(300 * time.Millisecond)
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.NotNil(t, lock)
		outlast(t, 1500*time.Millisecond)
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestReleaseInAFullOrReadOnlyRedis: a release hands the lock on or deletes the key, or is retried.
func TestReleaseInAFullOrReadOnlyRedis(t *testing.T) {
	t.Parallel()
	onQueues(t, testReleaseInAFullOrReadOnlyRedis)
}

func testReleaseInAFullOrReadOnlyRedis(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	for name, waits := range map[string]bool{"free": false, "waited for": true} {
		for _, trouble := range []struct{ name, set, to, back string }{
			{"full", "maxmemory", "1", "0"},
			{"without replicas", "min-replicas-to-write", "1", "0"},
		} {
			t.Run(name+" "+trouble.name, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				direct := s.Client(t)
				l := newLocker(t, s.Client(t))
				lock := mustLock(t, l, "k")
				var got <-chan *redlatch.Lock
				if waits {
					got = waitInLine(t, newLocker(t, s.Client(t)), "k")
				}
				require.NoError(t, direct.ConfigSet(t.Context(), trouble.set, trouble.to).Err())
				time.AfterFunc(400*time.Millisecond, func() { direct.ConfigSet(context.Background(), trouble.set, trouble.back) })
				require.NoError(t, lock.Unlock(t.Context()))
				if waits {
					require.Equal(t, int64(1), direct.Exists(t.Context(), "k").Val(), "handed on")
					lock = <-got
					require.NotNil(t, lock)
					require.NoError(t, lock.Err())
					require.NoError(t, lock.Unlock(t.Context()))
				}
				eventually(t, "nothing is left", func() bool { return direct.Exists(t.Context(), "k", "{k}:queue:k", "{k}:permits:k").Val() == 0 })
			})
		}
	}
}

// TestWaitingIsCheap: waiters that are not the first of a queue look rarely, and a look runs few commands.
func TestWaitingIsCheap(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	const keys, processes = 50, 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holders := newLocker(t, s.Client(t), redlatch.WithTTL(time.Minute))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range processes {
		l := newLocker(t, s.Client(t))
		for i := range keys {
			key := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			_, _ = holders.TryLock(ctx, key)
			wg.Go(func() { _, _ = l.Lock(ctx, key) })
		}
	}
	outlast(t, 4*time.Second) // the first looks are over
	before := commands(t, direct)
	begin := time.Now()
	outlast(t, 6*time.Second)
	rate := (commands(t, direct) - before) / time.Since(begin).Seconds()
	t.Logf("%.0f commands/s of %d waiters, with those in scripts", rate, keys*processes)
	require.Less(t, rate, 6.0*keys*processes)
}

// commands returns how many commands Redis has run, those of scripts included.
func commands(t *testing.T, direct *redis.Client) (n float64) {
	t.Helper()
	for _, found := range regexp.MustCompile(`cmdstat_[^:]+:calls=(\d+)`).FindAllStringSubmatch(direct.Info(t.Context(), "commandstats").Val(), -1) {
		calls, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		n += calls
	}
	return n
}

// TestShortPatienceDoesNotCollapse: 40 goroutines wait for 20 ms each. If the machine is too busy to end
// such waits in time, the test repeats with longer ones.
func TestShortPatienceDoesNotCollapse(t *testing.T) { onQueues(t, testShortPatienceDoesNotCollapse) }

func testShortPatienceDoesNotCollapse(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t))
	const goroutines, lasts = 40, time.Second
	for patience := 20 * time.Millisecond; ; patience *= 3 {
		var grants, tries atomic.Int64
		end := time.Now().Add(lasts)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for time.Now().Before(end) {
					tries.Add(1)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					lock, err := l.Lock(ctx, "k")
					cancel()
					if err == nil {
						grants.Add(1)
						_ = lock.Unlock(t.Context())
					}
				}
			})
		}
		wg.Wait()
		each := lasts * goroutines / time.Duration(tries.Load())
		t.Logf("%d grants of %d tries of %v, which took %v", grants.Load(), tries.Load(), patience, each)
		if each < patience*5/4 || patience > time.Second {
			require.Greater(t, 200*grants.Load(), tries.Load())
			return
		}
	}
}
