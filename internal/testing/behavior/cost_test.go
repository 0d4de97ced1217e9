package behavior_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
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
	"github.com/redlatch/redlatch/internal/testing/race"
	"github.com/redlatch/redlatch/internal/testing/redistest"
	"github.com/redlatch/redlatch/internal/wire"
)

// A cost is what a run of a function costs on average.
type cost struct{ allocs, bytes, goroutines float64 }

// costOf returns the cost of f. On a busy machine a run may wait longer, and do more then, so the
// least of several rounds counts.
func costOf(f func()) cost {
	const rounds, runs = 5, 100
	least := cost{math.Inf(1), math.Inf(1), math.Inf(1)}
	for range 100 {
		f()
	}
	for range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		first := started()
		for range runs {
			f()
		}
		last := started()
		runtime.ReadMemStats(&after)
		least.allocs = min(least.allocs, float64(after.Mallocs-before.Mallocs)/runs)
		least.bytes = min(least.bytes, float64(after.TotalAlloc-before.TotalAlloc)/runs)
		least.goroutines = min(least.goroutines, float64(last-first)/runs)
	}
	return least
}

// started returns how many goroutines have been started; 0 before Go 1.26, which does not count them.
func started() uint64 {
	all := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(all)
	if all[0].Value.Kind() == metrics.KindBad {
		return 0
	}
	return all[0].Value.Uint64()
}

// TestPairAllocatesLittle: a lock and its unlock, with renewal and fence, cost little more memory
// than the two commands that a program would write by hand. So do a lock that is passed on within
// the process, and one that is handed to another. Hooks that are not set cost none. The bounds are
// 5 % above the allocations that were measured, and 15 % above the bytes. Each command starts one
// goroutine, which on an idle machine wakes a processor. A lock that is passed on starts none, nor
// does the message of a hand-over.
func TestPairAllocatesLittle(t *testing.T) {
	if race.Detector() {
		t.Skip("the race detector allocates too")
	}
	client := redistest.Shared(t).Client(t)
	ctx := context.Background()
	key := t.Name()
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	byHand := costOf(func() {
		token := uuid.NewString()
		_ = client.SetNX(ctx, key, token, 10*time.Second).Err()
		_ = compareAndDelete.Run(ctx, client, []string{key}, token).Err()
	})
	joined := locktest.SetNXPX(t, client, redlatch.WithHooks(redlatch.Hooks{}), redlatch.WithHooks(redlatch.Hooks{}))
	permits := locktest.Semaphore(t, client, 2, redlatch.WithKeyPrefix("permits:"))
	readers, _, err := redlatch.NewReadWrite(client, redlatch.WithKeyPrefix("reads:"))
	require.NoError(t, err)
	pair := func(lock func(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error)) func() {
		return func() {
			if err := granted(lock(ctx, key)).Unlock(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		run   func()
		above cost // that by hand
	}{
		{"TryLock", pair(joined.TryLock), cost{10, 2060, 2}},
		{"Lock", pair(joined.Lock), cost{10, 2490, 2}},
		{"permit", pair(permits.Lock), cost{13, 2310, 2}},
		{"read", pair(readers.Lock), cost{13, 2600, 2}},
		{"next turn", contended(t, client, 1, 1), cost{20, 2640, 1}},
		{"32 passes", contended(t, client, 1, 32), cost{206, 21730, 1}},
		{"hand-over", contended(t, client, 2, 1), cost{38, 3950, 2}},
	} {
		got := costOf(c.run)
		assert.LessOrEqual(t, got.allocs, (byHand.allocs+c.above.allocs)*1.05, "allocations: %s", c.name)
		assert.LessOrEqual(t, got.bytes, (byHand.bytes+c.above.bytes)*1.15, "bytes: %s", c.name)
		assert.LessOrEqual(t, got.goroutines, (byHand.goroutines+c.above.goroutines)*1.05, "goroutines started: %s", c.name)
	}
}

// contended returns a function that unlocks a lock for which some callers wait, of one of some
// Lockers in turn. All but the last of them unlock it too.
func contended(t *testing.T, client redis.UniversalClient, lockers, callers int) func() {
	ctx, key := context.Background(), fmt.Sprint("contended ", lockers, callers)
	waits, calls, got := make(chan struct{}, callers), make(chan redlatch.Locker), make(chan *redlatch.Lock, callers)
	hooks := redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) { waits <- struct{}{} }})
	var all []redlatch.Locker
	for range lockers {
		all = append(all, locktest.SetNXPX(t, client, redlatch.WithTTL(time.Hour), hooks))
	}
	for range callers {
		go func() { // ends with calls
			for l := range calls {
				got <- granted(l.Lock(ctx, key))
			}
		}()
	}
	lock, next := granted(all[0].Lock(ctx, key)), 0
	unlock := func() {
		if err := lock.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		close(calls)
		unlock()
	})
	return func() {
		next = (next + 1) % lockers
		for range callers {
			calls <- all[next]
			<-waits
		}
		for range callers {
			unlock()
			lock = <-got
		}
	}
}

// commands returns how many commands the scripts run in f, by the least of several runs: on a busy
// machine, a claim may be extended too.
func commands(t *testing.T, client *redis.Client, f func()) (least int) {
	count := func() (n int) {
		for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			switch calls, _, _ := strings.Cut(rest, ","); name {
			case "incr", "get", "set", "del", "pttl", "pexpire", "zadd", "zrange", "zrangebyscore", "zrem",
				"zremrangebyrank", "zcard", "zcount", "zscore", "time", "publish", "pubsub|numsub", "pubsub":
				one, err := strconv.Atoi(calls)
				require.NoError(t, err)
				n += one
			}
		}
		return n
	}
	f() // opens connections, and makes the register
	least = math.MaxInt
	for range 20 {
		before := count()
		f()
		least = min(least, count()-before)
	}
	return least
}

// TestScriptsRunFewCommands: Redis is the part that does not grow.
func TestScriptsRunFewCommands(t *testing.T) {
	client := redistest.Start(t).Client(t)
	key, ctx := t.Name(), t.Context()
	pair := func(l redlatch.Locker) func() {
		return func() { require.NoError(t, granted(l.TryLock(ctx, key)).Unlock(ctx)) }
	}
	require.LessOrEqual(t, commands(t, client, pair(locktest.SetNXPX(t, client))), 7, "a lock and its release")
	require.LessOrEqual(t, commands(t, client, contended(t, client, 2, 1)), 15, "a refusal and a hand-over")
	permits := pair(locktest.Semaphore(t, client, 2, redlatch.WithKeyPrefix("permits:")))
	require.LessOrEqual(t, commands(t, client, permits), 12, "a permit and its release")
}

// TestGrantCostsTwoCommands: a lock and its release cost a command each, also with LegacySetNX for
// a key that has expired, and a refusal one. On a quorum that holds for each node.
func TestGrantCostsTwoCommands(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		var sent atomic.Int64
		client := w.Client(t)
		l := w.over(t, client)
		lock := mustLock(t, l, "k")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		adopted, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		_, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context())) // the connection is open now, and the scripts are loaded
		client.AddHook(locktest.Count(&sent))
		for range 10 {
			require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
			require.Equal(t, int64(2), sent.Swap(0))
		}
		if w.name == "LegacySetNX" {
			require.NoError(t, w.Direct.Set(t.Context(), "k", 1, 0).Err())
		}
		lock = mustLock(t, l, "k")
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		_, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Unlock(t.Context()))
		require.LessOrEqual(t, sent.Load(), int64(5))
	})
}

// TestWaitingIsCheap: a line costs a command each second or two, however many wait in it, and
// renewals of the holder wake nobody.
func TestWaitingIsCheap(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		const processes, waiters = 10, 10
		lock := mustLock(t, w.locker(t), "k")
		var sent atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range processes {
			client := w.Client(t)
			client.AddHook(locktest.Count(&sent))
			l := w.over(t, client)
			for range waiters {
				wg.Go(func() { _, _ = l.Lock(ctx, "k") })
			}
		}
		time.Sleep(10 * time.Second) // the first looks are over
		sent.Store(0)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, sent.Load(), int64(60*processes))
		require.Positive(t, sent.Load())
		cancel()
		wg.Wait()
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestWaitingForPermitsThatEndIsCheap: nobody is told of a permit that ends by itself. Lines find it with a look, and poll no
// more often for that.
func TestWaitingForPermitsThatEndIsCheap(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		const limit, lasts, lines = 16, 2 * time.Second, 16
		client := s.Client(t)
		l, err := redlatch.NewSemaphore(client, limit, redlatch.WithTTL(lasts), redlatch.WithoutRenewal())
		require.NoError(t, err)
		for range limit {
			mustLock(t, l, "k")
			time.Sleep(lasts / limit)
		}
		var sent, granted atomic.Int64
		client.AddHook(locktest.Count(&sent))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 * limit {
			wg.Go(func() {
				for {
					lock, err := l.Lock(ctx, "k")
					if err != nil {
						return
					}
					granted.Add(1)
					<-lock.Done()
				}
			})
		}
		const seconds = 10
		time.Sleep(2 * lasts)
		sent.Store(0)
		granted.Store(0)
		time.Sleep(seconds * time.Second)
		require.Greater(t, granted.Load(), int64(seconds*limit/2-limit))
		require.LessOrEqual(t, sent.Load(), 3*granted.Load()+4*lines*seconds, "four looks a second of each line, and the grants")
		cancel()
		wg.Wait()
	})
}

// TestALowLimitLooksWhenItCanFit: who wants to be alone does not ask whenever one of many permits ends.
func TestALowLimitLooksWhenItCanFit(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		const permits, first, all = 500, 20 * time.Second, 40 * time.Second
		many, err := redlatch.NewSemaphore(s.Client(t), permits)
		require.NoError(t, err)
		for i := range permits {
			d := first + time.Duration(i)*(all-first)/permits
			require.NoError(t, mustLock(t, many, "k").UnlockAfter(t.Context(), d))
		}
		client := s.Client(t)
		var sent atomic.Int64
		client.AddHook(locktest.Count(&sent))
		alone, err := redlatch.NewSemaphore(client, 1)
		require.NoError(t, err)
		began := time.Now()
		lock, err := alone.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Less(t, time.Since(began), all+time.Second)
		require.Less(t, sent.Load(), int64(2*all/time.Second))
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLongTextsOfOthersTakeNoTime: whatever somebody writes into a queue, or in place of a lock, no script compares it with a
// pattern again and again.
func TestLongTextsOfOthersTakeNoTime(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	digits := strings.Repeat("9", 200_000) // minutes, if the time grows with the square
	require.NoError(t, client.ZAdd(t.Context(), wire.Companion("queue", "k"), redis.Z{Member: digits}).Err())
	require.NoError(t, client.Set(t.Context(), "old", digits+"x", 0).Err())
	l, err := redlatch.NewSetNXPX(client)
	require.NoError(t, err)
	require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
	old, err := redlatch.NewLegacySetNX(client)
	require.NoError(t, err)
	_, err = old.TryLock(t.Context(), "old")
	require.ErrorContains(t, err, "does not hold a timestamp")
}

// TestCallsThatLeaveNothingReleaseNothing: a refusal has left nothing in Redis, whether its caller is still there when it
// arrives, or polls and gives up.
func TestCallsThatLeaveNothingReleaseNothing(t *testing.T) {
	onEvery(t, map[string]maker{"SetNXPX": redlatch.NewSetNXPX}, func(t *testing.T, w *world) {
		held := mustLock(t, w.locker(t, redlatch.WithoutQueue()), "k")
		client, tap := locktest.Tapped(t, w.Site)
		l := w.over(t, client, redlatch.WithoutQueue())
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired) // the time of Redis is known now

		tap.Late(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		sent := tap.Sent.Load()
		_, err = l.TryLock(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		require.Equal(t, int64(1), tap.Sent.Load()-sent)

		tap.Heal()
		released := 0
		everyScript(client, func(_ context.Context, cmd redis.Cmder) {
			if len(cmd.Args()) < 8 { // an acquire has the TTL and the latest time
				released++
			}
		})
		require.Error(t, locktest.WaitInVain(t, l, "k"))
		time.Sleep(time.Second)
		require.Zero(t, released)
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestRefusalTellsTheTime: so the source of a script is not sent again, also by a process that has
// never been granted a lock.
func TestRefusalTellsTheTime(t *testing.T) {
	onRedis(t, withReaders(), func(t *testing.T, w *world) {
		const calls = 200
		other := w.locker(t, longTTL)
		if w.name == "Read" {
			_, other = locktest.ReadWrite(t, w.Client(t), longTTL)
		}
		held := mustLock(t, other, "k")
		figure := func(section, name string) (n int) {
			_, rest, _ := strings.Cut(w.Direct.Info(t.Context(), section).Val(), "\n"+name)
			_, _ = fmt.Sscan(rest, &n)
			return n
		}
		l := w.locker(t)
		sources, bytes := figure("commandstats", "cmdstat_eval:calls="), figure("stats", "total_net_input_bytes:")
		for range calls {
			_, err := l.TryLock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrNotAcquired)
		}
		sent := figure("stats", "total_net_input_bytes:") - bytes
		require.LessOrEqual(t, figure("commandstats", "cmdstat_eval:calls=")-sources, 2)
		require.Positive(t, sent)
		require.LessOrEqual(t, sent/calls, 400, "bytes a call")
		require.NoError(t, held.Unlock(t.Context()))
	})
}
