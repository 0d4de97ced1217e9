package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestPollingRidesTroubleOut: for a waiter that polls.
func TestPollingRidesTroubleOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{ErrNotAcquired, errors.New("connection reset"), ErrNotAcquired, errors.New("no route"), nil}
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			err := answers[0]
			answers = answers[1:]
			return acquireReply{}, err
		}}
		lock, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))

		trouble := errors.New("no route")
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if s.acquires.Load() == 6 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{}, trouble
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = scriptedLocker(t, s).Lock(ctx, "k")
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, trouble)

		again, cancelAgain := context.WithTimeout(t.Context(), time.Second)
		defer cancelAgain()
		_, err = scriptedLocker(t, s).Lock(again, "k")
		require.Same(t, trouble, errors.Unwrap(err), "the error of the first attempt is returned")
	})
}

// TestWaitForACallerOfTheSameLockerIsToldSo: most often somebody has forgotten to unlock.
func TestWaitForACallerOfTheSameLockerIsToldSo(t *testing.T) {
	for name, opts := range map[string][]Option{"another caller of this Locker": nil, `"api-7", a caller of this Locker`: {WithOwner("api-7")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := scriptedLocker(t, &scripted{}, opts...)
				forgotten, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var told error
				_, err = l.Lock(ctx, "k", WithHooks(Hooks{Waiting: func(e Event) { told = e.Err }}))
				require.ErrorIs(t, err, ErrNotAcquired)
				require.EqualError(t, told, "held by "+name)
				require.EqualError(t, err, `redlatch: lock "k": gave up waiting: context deadline exceeded: the last attempt: held by `+name)
				require.NoError(t, forgotten.Unlock(t.Context()))
			})
		})
	}
}

// TestNewestAnswerDecidesTheError: a line asks once a minute. If the last attempt failed, or got no reply for more than three
// quarters of the op timeout, the error matches ErrUnavailable. If it had less time, the attempt before it decides. If there is none, the
// error matches ErrUnavailable.
func TestNewestAnswerDecidesTheError(t *testing.T) {
	type attempt = func(goesOn <-chan struct{}) (acquireReply, error)
	refuse := func(<-chan struct{}) (acquireReply, error) {
		return acquireReply{Refusal: inbox.Refusal{Left: time.Hour}}, ErrNotAcquired
	}
	silent := func(goesOn <-chan struct{}) (acquireReply, error) {
		<-goesOn
		return acquireReply{}, ErrNotAcquired
	}
	trouble := func(<-chan struct{}) (acquireReply, error) { return acquireReply{}, errors.New("no route") }
	for name, c := range map[string]struct {
		attempts []attempt
		last     time.Duration // from the last attempt to the end of ctx
		held     bool
	}{
		"silence at first":                      {[]attempt{silent}, 10 * time.Millisecond, false},
		"silence":                               {[]attempt{refuse, silent}, 760 * time.Millisecond, false},
		"a moment of silence":                   {[]attempt{refuse, silent}, 740 * time.Millisecond, true},
		"between attempts":                      {[]attempt{refuse, refuse}, 900 * time.Millisecond, true},
		"trouble, and then a moment of silence": {[]attempt{refuse, trouble, silent}, 10 * time.Millisecond, false},
		"trouble that is over":                  {[]attempt{refuse, trouble, refuse}, 10 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				goesOn := make(chan struct{})
				defer close(goesOn)
				n := 0
				s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
					n++
					if n == len(c.attempts) {
						time.AfterFunc(c.last, cancel)
					}
					return c.attempts[n-1](goesOn)
				}}
				l := scriptedLocker(t, s, WithOpTimeout(time.Second), WithPollInterval(time.Minute, time.Minute))
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, len(c.attempts), n)
				var held *HeldError
				require.Equal(t, c.held, errors.As(err, &held))
				require.Equal(t, c.held, errors.Is(err, ErrNotAcquired))
				require.Equal(t, !c.held, errors.Is(err, ErrUnavailable))
			})
		})
	}
}

// TestOutageIsNoticedByAllWhoPoll: three waiters of a process were refused, and the one whose turn it is finds
// that Redis is gone. When ctx ends, the error of each of them matches ErrUnavailable.
func TestOutageIsNoticedByAllWhoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if s.acquires.Load() <= 3 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{}, errors.New("no route")
		}
		l := scriptedLocker(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, ErrUnavailable)
				require.NotErrorIs(t, err, ErrNotAcquired)
				require.ErrorContains(t, err, "no route")
			})
		}
		wg.Wait()
	})
}

// TestLocalWaiterWhoYieldsWasRefusedByNobody: this process has released a key that others want, and ctx ends
// before it asks again. Nobody has shown it another owner.
func TestLocalWaiterWhoYieldsWasRefusedByNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := scriptedLocker(t, &scripted{onAcquire: func(ctx context.Context, _ *leaseParams) (acquireReply, error) {
			return acquireReply{}, &node.NotDone{Err: ctx.Err()}
		}})
		l.lines.rest("k", 128*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(32*time.Millisecond, cancel)
		_, err := l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotAcquired)
	})
}

// TestTroubleIsNotForgottenWhileItIsUndone: if ctx ends while a failed attempt is released,
// the error still reports that failure. So does the error of a waiter whose last attempt failed.
func TestTroubleIsNotForgottenWhileItIsUndone(t *testing.T) {
	trouble := errors.New("no route")
	slow := func(answers ...error) *scripted {
		return &scripted{
			onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
				err := answers[0]
				if len(answers) > 1 {
					answers = answers[1:]
				}
				return acquireReply{}, err
			},
			onRelease: func(context.Context, *releaseParams) error { time.Sleep(time.Minute); return trouble },
		}
	}
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Minute) // the clean-ups end
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := scriptedLocker(t, slow(trouble)).Lock(ctx, "k")
		require.ErrorIs(t, err, trouble)
		require.NotErrorIs(t, err, ErrNotAcquired)

		again, cancelAgain := context.WithTimeout(t.Context(), time.Second)
		defer cancelAgain()
		_, err = scriptedLocker(t, slow(ErrNotAcquired, trouble)).Lock(again, "k")
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, trouble)

		third, cancelThird := context.WithTimeout(t.Context(), time.Second)
		defer cancelThird()
		m, err := NewMigration(scriptedLocker(t, slow(trouble, trouble)), scriptedLocker(t, &scripted{}))
		require.NoError(t, err)
		_, err = m.Lock(third, "k")
		require.ErrorIs(t, err, trouble)
		require.NotErrorIs(t, err, ErrNotAcquired)
	})
}

// TestHourOfWaiting, in a bubble: a waiter waits for an hour without a timeout,
// and is served soon after the holder releases the lock. A crashed holder costs what is left of its
// TTL. Then the subscription is closed, and no goroutine is left in the bubble.
func TestHourOfWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		got := make(chan *Lock, 1)
		wait := func() {
			lock, err := l.Lock(context.Background(), "k", WithoutRenewal())
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}
		go wait()
		time.Sleep(time.Hour)
		require.Empty(t, got)
		released := time.Now()
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.Less(t, time.Since(released), 2*time.Second)

		go wait() // and the lock is never unlocked
		next := <-got
		require.Less(t, time.Since(lock.Until()), 250*time.Millisecond)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

// TestLocalWaitersTakeTurns: the callers of a process stand in one line, which sends one attempt at a time.
func TestLocalWaitersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{}, ErrNotAcquired }}
		l := scriptedLocker(t, s, WithPollInterval(time.Second, time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second+500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, s.acquires.Load(), int64(1+100), "a first look, then one a second")
		require.LessOrEqual(t, s.acquires.Load(), int64(1+200), "half of a pause is random")
	})
}

// TestKeyExpiresWhileAScriptRuns: unlike Redis, miniredis may expire a key between two commands of a
// script. The attempt counts as refused, and a waiter looks again at once.
func TestKeyExpiresWhileAScriptRuns(t *testing.T) {
	t.Parallel()
	for before, newLocker := range map[string]func(redis.UniversalClient) (Locker, error){
		"GET":    func(c redis.UniversalClient) (Locker, error) { return NewSetNXPX(c) },
		"PTTL":   func(c redis.UniversalClient) (Locker, error) { return NewSetNXPX(c) },
		"ZSCORE": func(c redis.UniversalClient) (Locker, error) { return NewSemaphore(c, 1) },
	} {
		t.Run("before "+before, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				defer time.Sleep(time.Minute) // the subscription ends
				l, err := newLocker(client)
				require.NoError(t, err)
				expire := func() {
					_, err := l.Lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
					require.NoError(t, err)
					time.Sleep(990 * time.Millisecond)
					var once sync.Once
					m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
						if cmd == before {
							once.Do(func() { time.Sleep(20 * time.Millisecond) })
						}
						return false
					})
				}

				expire()
				_, err = l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, ErrNotAcquired)
				require.False(t, m.Exists("k"))

				for range 2 { // the second Lock asks for a place in the queue at once
					expire()
					begin := time.Now()
					lock, err := l.Lock(t.Context(), "k")
					require.NoError(t, err)
					require.Less(t, time.Since(begin), 40*time.Millisecond)
					require.NoError(t, lock.Unlock(t.Context()))
				}

				expire()
				st, err := l.Inspect(t.Context(), "k")
				require.NoError(t, err)
				require.GreaterOrEqual(t, st.TTL, time.Duration(0), "a negative TTL never ends")
			})
		})
	}
}

// TestPollersAreServedInTheEnd: 8 processes poll for a quorum, each holds the lock for 200 ms and wants it again at
// once. Nobody waits for longer than four times a fair turn.
func TestPollersAreServedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes, hold = 8, 200 * time.Millisecond
		var clients []redis.UniversalClient
		for range 3 {
			_, client := bubbleRedis(t)
			clients = append(clients, client)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var mu sync.Mutex // guards the fields below
		var longest time.Duration
		var grants int
		var wg sync.WaitGroup
		per := make([]int, processes)
		for i := range processes {
			l, err := NewRedlock(clients)
			require.NoError(t, err)
			wg.Go(func() {
				for ctx.Err() == nil {
					begin := time.Now()
					lock, err := l.Lock(ctx, "k")
					mu.Lock()
					longest = max(longest, time.Since(begin))
					grants++
					per[i]++
					mu.Unlock()
					if err != nil {
						return
					}
					time.Sleep(hold)
					_ = lock.Unlock(ctx)
				}
			})
		}
		wg.Wait()
		t.Log(per)
		t.Logf("%d grants, the longest wait was %v", grants, longest)
		require.Less(t, longest, 4*processes*hold)
		require.Greater(t, grants, 75)
		time.Sleep(time.Minute)
	})
}

// TestWantedKeyIsYielded: a process that has released a key on a quorum lets others who want it go first.
// A key that nobody else wants is granted at once.
func TestWantedKeyIsYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client})
		require.NoError(t, err)
		other, err := NewRedlock([]redis.UniversalClient{client})
		require.NoError(t, err)
		again := func() time.Duration {
			begin := time.Now()
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			defer lock.Unlock(t.Context()) //nolint:errcheck // only the time matters
			return time.Since(begin)
		}
		again()
		require.Less(t, again(), 32*time.Millisecond)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		_, err = other.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, lock.Unlock(t.Context()))
		require.GreaterOrEqual(t, again(), 64*time.Millisecond)
		time.Sleep(time.Second)
		require.Less(t, again(), 32*time.Millisecond)
		time.Sleep(time.Minute)
	})
}

// TestShortWaitsDoNotQueueWhenCommandsAreSlow: a waiter whose ctx leaves less than ten times what a command
// takes at the moment polls, without an entry in the queue. So it has nothing to remove when it leaves. A waiter with
// more time queues.
func TestShortWaitsDoNotQueueWhenCommandsAreSlow(t *testing.T) {
	for name, c := range map[string]struct {
		command time.Duration
		entries int64
	}{"quick": {time.Millisecond, 1}, "slow": {20 * time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				var sent atomic.Int64
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						sent.Add(1)
						time.Sleep(c.command) // the bubble's time
						return next(ctx, cmd)
					}
				}))
				made, err := NewSetNXPX(client, WithPollInterval(300*time.Millisecond, 300*time.Millisecond))
				require.NoError(t, err)
				l := made.(*engine)
				l.channel.Join()
				defer time.Sleep(10 * time.Second) // the subscription ends
				defer l.channel.Leave()
				time.Sleep(time.Second)
				require.Equal(t, line.Open, l.channel.State())
				l.pulse.observe(time.Now(), 0, nil)           // at rest
				l.pulse.observe(time.Now(), 8*c.command, nil) // the first of a moving average over eight
				holder := granted(t, l)
				var most atomic.Int64 // entries in the queue
				wait := func(patience time.Duration) (leaving int64) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					time.AfterFunc(patience-time.Millisecond, func() {
						members, _ := m.ZMembers("{k}:queue:k")
						most.Store(int64(len(members)))
					})
					_, err := l.Lock(ctx, "k")
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, ErrNotAcquired)
					leaving = -sent.Load()
					time.Sleep(time.Second) // its entry leaves the queue
					return leaving + sent.Load()
				}
				before := sent.Load()
				require.Zero(t, wait(130*time.Millisecond)*(1-c.entries), "there is no entry to remove")
				require.Equal(t, c.entries, most.Load())
				require.LessOrEqual(t, sent.Load()-before, int64(3), "it pauses between its attempts")
				wait(2 * time.Second)
				require.Equal(t, int64(1), most.Load())
				require.NoError(t, holder.Unlock(t.Context()))
			})
		})
	}
}

// TestCallersOfASilentRedisFailTogether: 64 callers stand in line for a key of a Redis that answers nothing. Each
// gets the error of the first attempt that began after it joined. So all fail within two op timeouts.
func TestCallersOfASilentRedisFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		var began []time.Time
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			began = append(began, time.Now())
			time.Sleep(timeout)
			return acquireReply{}, &node.NoReply{Within: timeout}
		}}
		l := scriptedLocker(t, s, WithOpTimeout(timeout), WithPollInterval(time.Millisecond, time.Millisecond))
		var wg sync.WaitGroup
		for range 64 {
			time.Sleep(rand.N(30 * time.Millisecond))
			wg.Go(func() {
				joined := time.Now()
				_, err := l.Lock(t.Context(), "k")
				var silence *node.NoReply
				require.ErrorAs(t, err, &silence)
				require.NotErrorIs(t, err, ErrNotAcquired)
				require.LessOrEqual(t, time.Since(joined), 2*timeout+10*time.Millisecond)
				require.GreaterOrEqual(t, time.Since(joined), timeout)
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Less(t, len(began), 6)
		synctest.Wait()
		require.Empty(t, l.byKey)
	})
}

// TestCtxThatEndsACallSendsNothingMore: the only caller of a line leaves in mid-command. The line sends no
// further acquire.
func TestCtxThatEndsACallSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
				time.Sleep(10 * time.Millisecond)
				return acquireReply{}, ErrNotAcquired
			}}
			l := scriptedLocker(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := l.Lock(ctx, "k")
			require.ErrorIs(t, err, context.Canceled)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, int64(1), s.acquires.Load())
			require.Empty(t, l.byKey)
		}
	})
}

// slowly has each script of a client reach Redis after there, and its reply come after back. That is the bubble's time.
func slowly(client *redis.Client, there, back time.Duration) {
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			time.Sleep(there)
			err := next(ctx, cmd)
			time.Sleep(back)
			return err
		}
	}))
}

// bubbleQueues runs a test in a bubble, on each strategy whose lines queue.
func bubbleQueues(t *testing.T, test func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), m *miniredis.Miniredis)) {
	t.Helper()
	for name, strategy := range map[string]func(redis.UniversalClient, ...Option) (Locker, error){
		"SetNXPX":   NewSetNXPX,
		"Semaphore": func(c redis.UniversalClient, opts ...Option) (Locker, error) { return NewSemaphore(c, 1, opts...) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // subscriptions end
				m, _ := bubbleRedis(t)
				test(t, func(opts ...Option) (*engine, *redis.Client) {
					client := bubbleClient(t, m)
					l, err := strategy(client, opts...)
					require.NoError(t, err)
					return l.(*engine), client
				}, m)
			})
		})
	}
}

// TestSuccessorKeepsTheCommandOfAHeadThatLeaves: the head of a line leaves while its acquire is in flight, and Redis
// grants it. The next in line has that lock, and nothing undoes it.
func TestSuccessorKeepsTheCommandOfAHeadThatLeaves(t *testing.T) {
	bubbleQueues(t, func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), _ *miniredis.Miniredis) {
		l, client := newLocker()
		require.NoError(t, granted(t, l).Unlock(t.Context())) // the scripts are loaded
		slowly(client, 0, 300*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			_, err := l.Lock(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, lock.Err())
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, lock.Token(), st.Token)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLeavingAtEveryInstantLeavesNothing: three callers of a line and one of another process wait for a
// lock that is released after 10 ms, over a network with a delay. One of them leaves at every instant from before its first command to
// after it was served. Everybody else is served, and nothing is left.
func TestLeavingAtEveryInstantLeavesNothing(t *testing.T) {
	t.Parallel()
	bubbleQueues(t, func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), m *miniredis.Miniredis) {
		for leaver := range 3 {
			for at := time.Duration(0); at < 24*time.Millisecond; at += 250 * time.Microsecond {
				holding, _ := newLocker()
				l, client := newLocker()
				other, otherClient := newLocker()
				slowly(client, time.Millisecond, time.Millisecond)
				slowly(otherClient, time.Millisecond, time.Millisecond)
				holder := granted(t, holding)
				time.AfterFunc(10*time.Millisecond, func() { _ = holder.Unlock(context.Background()) })
				ctx, cancel := context.WithTimeout(t.Context(), at)
				var wg sync.WaitGroup
				wait := func(ctx context.Context, l Locker, leaves bool) {
					wg.Go(func() {
						lock, err := l.Lock(ctx, "k")
						if err == nil {
							time.Sleep(500 * time.Microsecond)
							require.NoError(t, lock.Unlock(context.Background()))
						} else {
							require.True(t, leaves, err)
							require.ErrorIs(t, err, context.DeadlineExceeded)
						}
					})
					time.Sleep(100 * time.Microsecond)
				}
				for i := range 3 {
					if i == leaver {
						wait(ctx, l, true)
					} else {
						wait(t.Context(), l, false)
					}
				}
				wait(t.Context(), other, false)
				wg.Wait()
				cancel()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				require.Equal(t, []string{"redlatch:fence"}, m.Keys(), "caller %d left after %v", leaver, at)
				for _, l := range []*engine{l, other} {
					require.Empty(t, l.byKey)
					require.Empty(t, l.lines.waiting)
					require.Empty(t, l.lines.tokens)
				}
			}
		}
	})
}

// TestLockThatComesToAnEmptyLineIsGivenBack: everybody leaves a line while the release that queues it and hands it
// the lock is in flight. The lock is released, whether the message or the reply comes first.
func TestLockThatComesToAnEmptyLineIsGivenBack(t *testing.T) {
	for name, there := range map[string]time.Duration{"they leave before Redis releases": 30 * time.Millisecond, "after it": 0} {
		t.Run(name, func(t *testing.T) {
			bubbleQueues(t, func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), m *miniredis.Miniredis) {
				l, client := newLocker()
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wait := func() {
					wg.Go(func() {
						lock, err := l.Lock(ctx, "k")
						if err == nil {
							err = lock.Unlock(ctx)
						} else {
							require.ErrorIs(t, err, context.Canceled)
							err = nil
						}
						require.NoError(t, err)
					})
				}
				wait()
				wait()
				time.Sleep(20 * time.Millisecond)
				slowly(client, there, 30*time.Millisecond)
				time.AfterFunc(10*time.Millisecond, cancel)
				require.NoError(t, lock.Unlock(t.Context()))
				wg.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, []string{"redlatch:fence"}, m.Keys())
				require.Empty(t, l.lines.tokens)
				require.Empty(t, l.byKey)
			})
		})
	}
}

// TestLostKeyEndsTheOldLeaseFirst: the key is deleted while the process trusts its lease. Its line does not ask until a renewal
// has found that, so the old lease is lost before the new turn begins.
func TestLostKeyEndsTheOldLeaseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		defer time.Sleep(time.Minute) // the subscription ends
		var old *Lock
		lost, acquired := 0, 0
		l, err := NewSetNXPX(client, WithTTL(10*time.Second), WithHooks(Hooks{
			Lost: func(Event) { lost++ },
			Acquired: func(Event) {
				if acquired++; old != nil {
					require.ErrorIs(t, old.Err(), ErrLost)
				}
			},
		}))
		require.NoError(t, err)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		old = lock
		time.AfterFunc(time.Second, func() { m.Del("k") })
		begin := time.Now()
		next, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Less(t, time.Since(begin), 4*time.Second, "a third of the TTL, and a moment")
		synctest.Wait() // for the hook
		require.Equal(t, 1, lost)
		require.Equal(t, 2, acquired)
		require.ErrorContains(t, old.Err(), "the key is gone")
		<-old.Done()
		require.ErrorIs(t, old.Unlock(t.Context()), ErrLost)
		require.NoError(t, next.Err())
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestPermitsOfAProcessStandSideBySide: another permit that a line is granted ends no lease of its process.
func TestPermitsOfAProcessStandSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		defer time.Sleep(time.Minute) // the subscription ends
		l, err := NewSemaphore(client, 2)
		require.NoError(t, err)
		var locks []*Lock
		for range 2 {
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			locks = append(locks, lock)
		}
		for _, lock := range locks {
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestErrorOfTheFirstAttemptAfterJoining: a caller that joins during an attempt gets neither its error nor its
// refusal, but the outcome of the next one.
func TestErrorOfTheFirstAttemptAfterJoining(t *testing.T) {
	trouble := errors.New("no route")
	refused := acquireReply{Refusal: inbox.Refusal{Left: time.Hour}}
	for name, c := range map[string]struct {
		outcomes []error
		earlier  error // of the caller whose attempt was the first
		later    error // of the one that joined during it
	}{
		"refused, then trouble": {[]error{ErrNotAcquired, trouble, nil}, nil, trouble},
		"trouble, then granted": {[]error{trouble, nil}, trouble, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{}
				s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
					time.Sleep(time.Second)
					return refused, c.outcomes[s.acquires.Load()-1]
				}
				l := scriptedLocker(t, s)
				gotEarlier, earlier := standing(t.Context(), l)
				gotLater, later := standing(t.Context(), l)
				for _, one := range []struct {
					want  error
					got   chan *Lock
					ended chan error
				}{{c.earlier, gotEarlier, earlier}, {c.later, gotLater, later}} {
					select {
					case err := <-one.ended:
						require.NotNil(t, one.want, err)
						require.ErrorIs(t, err, one.want)
					case lock := <-one.got:
						require.NoError(t, one.want)
						require.NoError(t, lock.Unlock(t.Context()))
					}
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestCtxThatEndsWithTheLine: the ctx of a caller ends at the instant at which its attempt fails, so its line may be gone.
func TestCtxThatEndsWithTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("no route")
		l := scriptedLocker(t, &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Second)
			return acquireReply{}, trouble
		}})
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := l.Lock(ctx, strconv.Itoa(i))
			require.Condition(t, func() bool { return errors.Is(err, trouble) || errors.Is(err, ErrUnavailable) }, "%v", err)
			cancel()
		}
		synctest.Wait()
		require.Empty(t, l.byKey)
	})
}

// TestOutcomeServesWhoeverHasComeMeanwhile: the ctx of the first caller ends in mid-command, which ends its wait at once. The
// command goes on, and serves a caller that came before or after that.
func TestOutcomeServesWhoeverHasComeMeanwhile(t *testing.T) {
	for name, at := range map[string]time.Duration{"before": 500 * time.Millisecond, "after": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
					time.Sleep(2 * time.Second)
					return acquireReply{fence: 1}, nil
				}}
				l := scriptedLocker(t, s)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := l.Lock(ctx, "k")
					ended <- err
				}()
				time.Sleep(at)
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, 2*time.Second, time.Since(begin))
				require.Equal(t, int64(1), s.acquires.Load())
				require.ErrorIs(t, <-ended, context.DeadlineExceeded)
				require.NoError(t, lock.Unlock(t.Context()))
			})
		})
	}
}

// TestHolderInThisProcessIsARefusal: the holder is this process. So a caller is refused without a
// command, and rides out trouble from then on.
func TestHolderInThisProcessIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals []error
		s := &scripted{}
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if s.acquires.Load() == 2 {
				return acquireReply{}, errors.New("no route")
			}
			return acquireReply{fence: 1}, nil
		}
		l := scriptedLocker(t, s, WithOwner("api-7"), WithHooks(Hooks{Waiting: func(e Event) { refusals = append(refusals, e.Err) }}))
		holder, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, ended := standing(ctx, l)
		cancel()
		err = <-ended
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NotErrorIs(t, err, ErrUnavailable)
		refusals = append(refusals, err)
		require.Len(t, refusals, 2)
		for _, refusal := range refusals {
			var held *HeldError
			require.ErrorAs(t, refusal, &held)
			require.Equal(t, "api-7", held.Owner)
		}
		require.Equal(t, int64(1), s.acquires.Load())

		got, _ := standing(t.Context(), l)
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
	})
}

// TestGrantShowsTheHolderToThoseInLine: a caller joins while the acquire of another is under way, which is granted. So the holder
// is this process. The caller is told. The line sends nothing while the process holds the key.
func TestGrantShowsTheHolderToThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Second)
			return acquireReply{fence: 1}, nil
		}
		var told []error
		l := scriptedLocker(t, s, WithOwner("api-7"), WithHooks(Hooks{Waiting: func(e Event) { told = append(told, e.Err) }}))
		got, _ := standing(t.Context(), l)
		ctx, cancel := context.WithCancel(t.Context())
		_, ended := standing(ctx, l)
		holder := <-got
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.acquires.Load())
		require.Empty(t, ended)
		cancel()
		require.ErrorIs(t, <-ended, ErrNotAcquired)
		require.Len(t, told, 1)
		var held *HeldError
		require.ErrorAs(t, told[0], &held)
		require.Equal(t, "api-7", held.Owner)
		require.Positive(t, held.TTL)

		ctx, cancel = context.WithCancel(t.Context())
		_, ended = standing(ctx, l)
		cancel()
		require.ErrorIs(t, <-ended, ErrNotAcquired, "it joined while the holder had the key")
		require.NoError(t, holder.Unlock(t.Context()))
	})
}

// TestHookGetsACopyOfItsCall: Waiting may run while the line serves the call. The race detector sees a hook that
// reads the call itself.
func TestHookGetsACopyOfItsCall(t *testing.T) {
	attempts, served := make(chan int, 1), make(chan struct{})
	s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{}, nil }}
	l := scriptedLocker(t, s, WithTTL(time.Hour), WithHooks(Hooks{Waiting: func(e Event) {
		<-served
		attempts <- e.Attempts
	}}))
	holder, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		lock, err := l.Lock(t.Context(), "k")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		ended <- err
	}()
	until := func(length int) {
		for is := -1; is != length; runtime.Gosched() {
			l.lines.mu.Lock()
			is = l.byKey["k"].Len()
			l.lines.mu.Unlock()
		}
	}
	until(1)
	require.NoError(t, holder.Unlock(t.Context()))
	until(0) // the call was served
	close(served)
	require.NoError(t, <-ended)
	require.Zero(t, <-attempts)
}

// TestWhoeverJoinsLaterIsToldOnce: Waiting runs once for each caller, also for one that joins a line that was
// refused before.
func TestWhoeverJoinsLaterIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		q := &queueing{}
		l := queueingLocker(t, q, WithHooks(Hooks{Waiting: func(e Event) {
			told++
			if !errors.Is(e.Err, ErrNotAcquired) {
				t.Error(e.Err)
			}
		}}))
		q.reply(refuse, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, first := standing(ctx, l)
		require.Equal(t, 1, told)
		_, second := standing(ctx, l)
		require.Equal(t, 2, told)
		require.Error(t, <-first)
		require.Error(t, <-second)
		require.Equal(t, 2, told)
	})
}

func TestRestIsCountedFromTheNewestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lines{resting: make(map[string]time.Time)}
		rests := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.resting) > 0
		}
		for range 20 {
			l.rest("k", 128*time.Millisecond)
			time.Sleep(64*time.Millisecond - time.Millisecond)
			require.True(t, rests())
		}
		time.Sleep(128 * time.Millisecond)
		require.False(t, rests())
	})
}

// TestProxyThatRefusesScriptsEndsWaits: retrying cannot fix that.
func TestProxyThatRefusesScriptsEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		require.NoError(t, client.Ping(t.Context()).Err())
		m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			refused := cmd == "EVALSHA" || cmd == "EVAL"
			if refused {
				c.WriteError("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array")
			}
			return refused
		})
		begin := time.Now()
		_, err = l.Lock(t.Context(), "k")
		require.ErrorContains(t, err, "this proxy checks scripts")
		require.ErrorContains(t, Lead(t.Context(), l, "k", func(context.Context, *Lock) error { return nil }), "this proxy checks scripts")
		require.Less(t, time.Since(begin), time.Second)
	})
}
