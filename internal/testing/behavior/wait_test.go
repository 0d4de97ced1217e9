package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// inTurn begins a turn of l: n callers stood in its line while other held k. The first of them has
// the lock. The channel gets those of the rest.
func inTurn(t *testing.T, l, other redlatch.Locker, n int, opts ...redlatch.Option) (first *redlatch.Lock, rest <-chan *redlatch.Lock) {
	t.Helper()
	holder := granted(other.Lock(t.Context(), "k"))
	locks := make(chan *redlatch.Lock, n)
	for range n {
		go func() { locks <- granted(l.Lock(context.Background(), "k", opts...)) }() // ends with the lock
	}
	time.Sleep(2 * time.Second) // all stand in line, and the line is in the queue
	require.NoError(t, holder.Unlock(t.Context()))
	return <-locks, locks
}

// onQueues runs a test in a bubble, on each strategy whose lines queue.
func onQueues(t *testing.T, run func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker)) {
	t.Parallel()
	for name, open := range queues {
		newLocker := func(c redis.UniversalClient) redlatch.Locker { return made(open(c)) }
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) { run(t, s, newLocker) })
		})
	}
}

// TestLongWaitEnds: a call without a deadline waits for ten minutes, and is served soon after the
// release. A crashed holder costs what is left of its TTL. Then the subscription ends, and no
// goroutine is left in the bubble.
func TestLongWaitEnds(t *testing.T) {
	onQueues(t, func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker) {
		l, other := newLocker(s.Client(t)), newLocker(s.Client(t))
		holder := mustLock(t, other, "k")
		got := locktest.Standing(t, l, redlatch.WithoutRenewal())
		time.Sleep(10 * time.Minute)
		require.Empty(t, got)
		require.Len(t, s.Direct.PubSubChannels(t.Context(), "redlatch:*").Val(), 1)
		released := time.Now()
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.Zero(t, time.Since(released))

		next := <-locktest.Standing(t, l) // and the lock is never unlocked
		require.Less(t, time.Since(lock.Until()), 250*time.Millisecond)
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(2 * time.Second)
		require.Empty(t, s.Direct.PubSubChannels(t.Context(), "redlatch:*").Val())
	})
}

// TestWaitForACallerOfTheSameLockerIsToldSo: most often somebody has forgotten to unlock.
func TestWaitForACallerOfTheSameLockerIsToldSo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithOwner("api-7")))
		forgotten := granted(l.Lock(t.Context(), "k"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var told error
		_, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(_ context.Context, e redlatch.Event) { told = e.Err }}))
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.EqualError(t, told, `held by "api-7", a caller of this Locker`)
		require.ErrorContains(t, err, `the last attempt: held by "api-7", a caller of this Locker`)
		require.NoError(t, forgotten.Unlock(t.Context()))
	})
}

// redisError is an answer of Redis.
type redisError string

func (e redisError) Error() string { return string(e) }

func (redisError) RedisError() {}

// TestNewestAnswerDecidesTheError: a line asks once a minute. If the last attempt failed, or got no
// reply for more than three quarters of the op timeout, the error matches ErrUnavailable. If it had
// less time, the attempt before it decides. If there is none, the error matches ErrUnavailable.
func TestNewestAnswerDecidesTheError(t *testing.T) {
	type attempt = func(goesOn <-chan struct{}, send func() error) error
	held := func(_ <-chan struct{}, send func() error) error { return send() }
	silent := func(goesOn <-chan struct{}, send func() error) error { <-goesOn; return send() }
	trouble := func(<-chan struct{}, func() error) error { return redisError("NOPERM no") }
	for name, c := range map[string]struct {
		attempts []attempt
		last     time.Duration // from the last attempt to the end of ctx
		held     bool
	}{
		"silence at first":                      {[]attempt{silent}, 10 * time.Millisecond, false},
		"silence":                               {[]attempt{held, silent}, 760 * time.Millisecond, false},
		"a moment of silence":                   {[]attempt{held, silent}, 740 * time.Millisecond, true},
		"between attempts":                      {[]attempt{held, held}, 900 * time.Millisecond, true},
		"trouble, and then a moment of silence": {[]attempt{held, trouble, silent}, 10 * time.Millisecond, false},
		"trouble that is over":                  {[]attempt{held, trouble, held}, 10 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				mustLock(t, made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithoutQueue())), "k", redlatch.WithTTL(24*time.Hour))
				client, tap := locktest.Tapped(t, s)
				l := made(redlatch.NewSetNXPX(client, redlatch.WithoutQueue(),
					redlatch.WithOpTimeout(time.Second), redlatch.WithPollInterval(time.Minute, time.Minute)))
				locktest.Warm(t, l)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				goesOn := make(chan struct{})
				var sent atomic.Int64
				tap.Set(func(_ context.Context, send func() error) error {
					n := int(sent.Add(1))
					if n > len(c.attempts) { // the release of what ctx has left behind
						return send()
					}
					if n == len(c.attempts) {
						time.AfterFunc(c.last, cancel)
					}
					return c.attempts[n-1](goesOn, send)
				})
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.Canceled)
				require.GreaterOrEqual(t, int(sent.Load()), len(c.attempts))
				require.Equal(t, c.held, errors.As(err, new(*redlatch.HeldError)), err)
				require.Equal(t, c.held, errors.Is(err, redlatch.ErrNotAcquired), err)
				require.Equal(t, !c.held, errors.Is(err, redlatch.ErrUnavailable), err)
				close(goesOn)
			})
		})
	}
}

// TestWhatIsNotPassedOn: while a turn is young, Unlock passes the lock on to the next in line,
// without a command, unless others may know the token or an option needs Redis.
func TestWhatIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   []redlatch.Option
		do     func(t *testing.T, l redlatch.Locker, lock *redlatch.Lock)
		passes bool
	}{
		"a young turn": {do: func(*testing.T, redlatch.Locker, *redlatch.Lock) { time.Sleep(4 * time.Millisecond) }, passes: true},
		"an old turn":  {do: func(*testing.T, redlatch.Locker, *redlatch.Lock) { time.Sleep(6 * time.Millisecond) }},
		"Token":        {do: func(_ *testing.T, _ redlatch.Locker, lock *redlatch.Lock) { _ = lock.Token() }},
		"Extend": {do: func(t *testing.T, _ redlatch.Locker, lock *redlatch.Lock) {
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
		}},
		"Inspect, Until, Done and Context": {do: func(t *testing.T, l redlatch.Locker, lock *redlatch.Lock) {
			_, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			_, _, _ = lock.Until(), lock.Done(), lock.Context(t.Context())
		}, passes: true},
		"WithMaxHold":    {opts: []redlatch.Option{redlatch.WithMaxHold(time.Minute)}},
		"WithMinHold":    {opts: []redlatch.Option{redlatch.WithMinHold(time.Second)}},
		"WithoutRenewal": {opts: []redlatch.Option{redlatch.WithoutRenewal()}, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				client, tap := locktest.Tapped(t, s)
				l := made(redlatch.NewSetNXPX(client, c.opts...))
				lock, rest := inTurn(t, l, made(redlatch.NewSetNXPX(s.Client(t))), 2)
				if c.do != nil {
					c.do(t, l, lock)
				}
				done, ctx, sent := lock.Done(), lock.Context(t.Context()), tap.Sent.Load()
				_ = lock.Unlock(t.Context())
				require.Equal(t, c.passes, tap.Sent.Load() == sent)
				<-done
				require.ErrorIs(t, context.Cause(ctx), redlatch.ErrReleased)
				require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
				require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrReleased)
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
				next := <-rest
				require.Equal(t, c.passes, next.Fence() == lock.Fence()+1)
				require.NoError(t, next.Err())
				if c.passes {
					require.ErrorIs(t, context.Cause(lock.Context(t.Context())), redlatch.ErrReleased)
					require.Empty(t, lock.Token(), "the turn has another owner now")
				}
				require.NoError(t, next.Unlock(t.Context()))
			})
		})
	}
}

// TestDeadlineBeyondAllTime: a ctx that ends in centuries is one that does not end, and so is a max wait
// of centuries. Its caller is served as soon as the key is free.
func TestDeadlineBeyondAllTime(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
		defer cancel()
		held := mustLock(t, w.locker(t), "k")
		got := make(chan error, 1)
		l := w.locker(t)
		go func() { // ends with the wait
			lock, err := l.Lock(ctx, "k", redlatch.WithMaxWait(math.MaxInt64))
			if err == nil {
				err = lock.Unlock(ctx)
			}
			got <- err
		}()
		<-time.After(100 * time.Millisecond)
		require.Empty(t, got)
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, await(t, got, "the key is free"))
	})
}

// TestCallsWithOptionsAreLinesOfTheirOwn: the callers of one Locker are one line. A call with
// options other than hooks is one by itself. It is passed nothing.
func TestCallsWithOptionsAreLinesOfTheirOwn(t *testing.T) {
	onQueues(t, func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker) {
		l := newLocker(s.Client(t))
		holder := granted(newLocker(s.Client(t)).Lock(t.Context(), "k"))
		first := locktest.Standing(t, l)
		alone := locktest.Standing(t, l, redlatch.WithTTL(time.Minute))
		second := locktest.Standing(t, l, redlatch.WithHooks(redlatch.Hooks{Acquired: func(context.Context, redlatch.Event) {}}))
		time.Sleep(time.Second)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 2, st.Waiters)
		require.NoError(t, holder.Unlock(t.Context()))
		last := uint64(0)
		for i, got := range []<-chan *redlatch.Lock{first, second, alone} {
			lock := <-got
			require.Equal(t, i == 1, lock.Fence() == last+1)
			last = lock.Fence()
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestContendedGrantCostsOneCommand: the release that ends a turn queues the line, and hands the
// lock on. Neither the releaser nor the next owner sends anything else.
func TestContendedGrantCostsOneCommand(t *testing.T) {
	onQueues(t, func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker) {
		var taps [2]*locktest.Tap
		var wg sync.WaitGroup
		var grants atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		for i := range taps { // of two callers each, so that somebody of both processes always waits
			client, tap := locktest.Tapped(t, s)
			taps[i] = tap
			l := newLocker(client)
			for range 2 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lock := granted(l.Lock(t.Context(), "k"))
						grants.Add(1)
						time.Sleep(10 * time.Millisecond) // too long for a pass
						require.NoError(t, lock.Unlock(t.Context()))
					}
				})
			}
		}
		time.Sleep(100 * time.Millisecond) // all queue
		sent := func() int64 { return taps[0].Sent.Load() + taps[1].Sent.Load() }
		commands, before := sent(), grants.Load()
		time.Sleep(500 * time.Millisecond)
		commands, before = sent()-commands, grants.Load()-before
		stop()
		wg.Wait()
		require.InDelta(t, 50, before, 2)
		require.LessOrEqual(t, commands, before+1)
	})
}

// TestPollersAreServedInTheEnd: 5 processes poll for a quorum. Each holds the lock for 200 ms and
// wants it again at once, but leaves it to others that want it. Nobody waits for longer than four
// times a fair turn.
func TestPollersAreServedInTheEnd(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		const processes, hold = 5, 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var longest [processes]time.Duration
		var grants atomic.Int64
		var wg sync.WaitGroup
		for i := range processes {
			l := made(redlatch.NewRedlock([]redis.UniversalClient{s.Client(t)}))
			wg.Go(func() {
				for {
					begin := time.Now()
					lock, err := l.Lock(ctx, "k")
					longest[i] = max(longest[i], time.Since(begin))
					if err != nil {
						return
					}
					grants.Add(1)
					time.Sleep(hold)
					_ = lock.Unlock(ctx)
				}
			})
		}
		wg.Wait()
		require.Less(t, slices.Max(longest[:]), 4*processes*hold)
		require.Greater(t, grants.Load(), int64(35))
	})
}

// TestCallerWhoComesWhileTheLineRestsWaits: a line that polls has given the lock back, and asks
// again after a pause. A caller with a hook comes in between.
func TestCallerWhoComesWhileTheLineRestsWaits(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var told atomic.Int64
		l := made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithoutQueue(), redlatch.WithMaxHold(time.Hour),
			redlatch.WithPollInterval(time.Second, time.Second), redlatch.WithHooks(redlatch.Hooks{
				Waiting: func(context.Context, redlatch.Event) { told.Add(1) },
			})))
		first := <-locktest.Standing(t, l)
		second := locktest.Standing(t, l)
		require.NoError(t, first.Unlock(t.Context()))
		third := locktest.Standing(t, l)
		require.Equal(t, int64(1), told.Load(), "the third waits for no owner that is known")
		require.NoError(t, (<-second).Unlock(t.Context()))
		require.NoError(t, (<-third).Unlock(t.Context()))
	})
}

// TestHookThatPanicsWhenItsCallIsServedLeavesNoLock: Hooks.Waiting panics when the lock was granted
// meanwhile.
func TestHookThatPanicsWhenItsCallIsServedLeavesNoLock(t *testing.T) {
	onQueues(t, func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker) {
		l, holder := newLocker(s.Client(t)), mustLock(t, newLocker(s.Client(t)), "k")
		require.Panics(t, func() {
			_, _ = l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) {
				require.NoError(t, holder.Unlock(t.Context()))
				time.Sleep(time.Second) // of the bubble
				panic("of the caller")
			}}))
		})
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestLateFirstSendLeavesNoEntry: the connection breaks when a waiter asks, and the second send is
// granted the lock. The first one arrives when another owner has the key, and queues. The second
// release, which follows it, takes the entry out.
func TestLateFirstSendLeavesNoEntry(t *testing.T) {
	onQueues(t, func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker) {
		client, tap := locktest.Tapped(t, s)
		l, other := newLocker(client), newLocker(s.Client(t))
		locktest.Warm(t, l)
		mustLock(t, other, "k", redlatch.WithoutRenewal())
		got := locktest.Standing(t, l)
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		goesOn := make(chan struct{})
		var sent atomic.Int64
		tap.Set(func(_ context.Context, send func() error) error {
			if sent.Add(1) > 1 {
				return send()
			}
			go func() { <-goesOn; _ = send() }() // ends with the command
			return io.EOF
		})
		require.NoError(t, (<-got).Unlock(t.Context()))
		next := mustLock(t, other, "k")
		waiters := func() int {
			st, err := other.Inspect(t.Context(), "k")
			require.NoError(t, err)
			return st.Waiters
		}
		close(goesOn)
		synctest.Wait()
		require.Equal(t, 1, waiters(), "it arrived")
		time.Sleep(2 * time.Second)
		require.Zero(t, waiters())
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestReleasedLockHandsOutNoPermit: somebody deletes the permits of a semaphore for which a call
// waits, and locks the key.
func TestReleasedLockHandsOutNoPermit(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		mustLock(t, newSemaphore(t, s.Client(t), 1), "k", redlatch.WithoutRenewal())
		got := locktest.Standing(t, newSemaphore(t, s.Client(t), 1))
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		require.NoError(t, mustLock(t, made(redlatch.NewSetNXPX(s.Client(t))), "k").Unlock(t.Context()))
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
		require.NoError(t, (<-got).Unlock(t.Context()))
	})
}

// TestLockerPrintsItsLines: what a report of a bug needs, and no token.
func TestLockerPrintsItsLines(t *testing.T) {
	onQueues(t, func(t *testing.T, s *locktest.Site, newLocker func(redis.UniversalClient) redlatch.Locker) {
		l := newLocker(s.Client(t))
		holder := mustLock(t, newLocker(s.Client(t)), "k")
		var callers sync.WaitGroup
		defer callers.Wait()
		for _, opts := range [][]redlatch.Option{nil, nil, {alone}} {
			callers.Go(func() { assert.NoError(t, granted(l.Lock(t.Context(), "k", opts...)).Unlock(t.Context())) })
		}
		time.Sleep(5 * time.Second)
		require.Regexp(t, `^(setnxpx|semaphore|write)
	"k": Waiting, token 1 with a plain entry, 1 in line, \d attempts, the newest: refused
	"k": Waiting, token 1 with a plain entry, 2 in line, \d attempts, the newest: refused$`, fmt.Sprint(l))
		require.NoError(t, holder.Unlock(t.Context()))
	})
}
