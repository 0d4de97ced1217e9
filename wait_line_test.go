package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestCallersOfASilentRedisFailTogether is rule 16: 64 callers stand in line for a key of a Redis that answers nothing. Each
// gets the error of the first attempt that began after it joined. So all fail within two op timeouts.
func TestCallersOfASilentRedisFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		var began []time.Time
		s := &scripted{onAcquire: func(ctx context.Context, _ *acquireParams) (acquireReply, error) {
			began = append(began, time.Now())
			select {
			case <-time.After(timeout):
				return acquireReply{}, &node.NoReply{Within: timeout}
			case <-ctx.Done():
				return acquireReply{}, &node.CutShort{Ctx: ctx.Err(), Trouble: &node.NoReply{Within: timeout}, Silent: true}
			}
		}}
		l := scriptedLocker(t, s, WithOpTimeout(timeout), WithBackoff(func(int) time.Duration { return time.Millisecond }))
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
		require.Empty(t, l.lines.byKey)
	})
}

// TestCtxThatEndsACallSendsNothingMore is rules 17 and 21: the only caller of a line leaves in mid-command. The line sends no
// further acquire.
func TestCtxThatEndsACallSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			s := &scripted{onAcquire: func(ctx context.Context, _ *acquireParams) (acquireReply, error) {
				<-ctx.Done()
				return acquireReply{}, &node.CutShort{Ctx: ctx.Err(), Trouble: errors.New("no reply"), Silent: true}
			}}
			l := scriptedLocker(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := l.Lock(ctx, "k")
			require.ErrorIs(t, err, context.Canceled)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, int64(1), s.acquires.Load())
			require.Empty(t, l.lines.byKey)
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

// TestSuccessorKeepsTheCommandOfAHeadThatLeaves is rule 17: the head of a line leaves while its acquire is in flight, and Redis
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

// TestLeavingAtEveryInstantLeavesNothing is rules 17 and 26: three callers of a line and one of another process wait for a
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
					require.Empty(t, l.lines.byKey)
					require.Empty(t, l.lines.waiting)
					require.Empty(t, l.lines.tokens)
				}
			}
		}
	})
}

// TestLockThatComesToAnEmptyLineIsGivenBack is rule 26: everybody leaves a line while the release that queues it and hands it
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
				time.Sleep(20 * time.Millisecond) // less than a process holds a key before its line queues
				slowly(client, there, 30*time.Millisecond)
				time.AfterFunc(10*time.Millisecond, cancel)
				require.NoError(t, lock.Unlock(t.Context()))
				wg.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, []string{"redlatch:fence"}, m.Keys())
				require.Empty(t, l.lines.tokens)
				require.Empty(t, l.lines.byKey)
			})
		})
	}
}

// TestLostKeyEndsTheOldLeaseFirst is rule 7: the key is deleted while the process trusts its lease, and the line of the
// process is granted it. The old lease is lost before the new turn begins.
func TestLostKeyEndsTheOldLeaseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		defer time.Sleep(time.Minute) // the subscription ends
		var heard []string
		var old *Lock
		l, err := NewSetNXPX(client, WithTTL(time.Hour), WithHooks(Hooks{
			Lost: func(Event) { heard = append(heard, "lost") },
			Acquired: func(Event) {
				if old != nil {
					require.ErrorIs(t, old.Err(), ErrLost)
				}
				heard = append(heard, "acquired")
			},
		}))
		require.NoError(t, err)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		old = lock
		time.AfterFunc(10*time.Second, func() { m.Del("k") })
		begin := time.Now()
		next, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Less(t, time.Since(begin), 12*time.Second)
		require.Equal(t, []string{"acquired", "lost", "acquired"}, heard)
		require.ErrorContains(t, old.Err(), "the key is gone")
		<-old.Done()
		require.ErrorIs(t, old.Unlock(t.Context()), ErrLost)
		require.NoError(t, next.Err())
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestPermitsOfAProcessStandSideBySide is rule 44: another permit that a line is granted ends no lease of its process.
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

// TestErrorOfTheFirstAttemptAfterJoining is rule 16: a caller that joins during an attempt gets neither its error nor its
// refusal, but the outcome of the next one.
func TestErrorOfTheFirstAttemptAfterJoining(t *testing.T) {
	trouble := errors.New("no route")
	refused := acquireReply{Refusal: handoff.Refusal{Left: time.Hour}}
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
				s.onAcquire = func(context.Context, *acquireParams) (acquireReply, error) {
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

// TestEndOfAnothersCtxIsNobodysError is rule 16: a caller joins before the first caller sends its attempt, and the ctx of
// that one ends during the attempt.
func TestEndOfAnothersCtxIsNobodysError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		s.onAcquire = func(ctx context.Context, _ *acquireParams) (acquireReply, error) {
			if s.acquires.Load() > 1 {
				return acquireReply{fence: 1}, nil
			}
			<-ctx.Done()
			return acquireReply{}, ctx.Err()
		}
		l := scriptedLocker(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second := make(chan *Lock, 1)
		var readings atomic.Int64
		l.now = func() clock.Instant {
			if readings.Add(1) == 2 { // the first caller stands in line and has not asked
				go func() { // ends with the lock
					lock, err := l.Lock(context.Background(), "k")
					if err != nil {
						t.Error(err)
					}
					second <- lock
				}()
				for inLine(l, "k") < 2 {
					time.Sleep(time.Millisecond)
				}
			}
			return clock.Now()
		}
		_, err := l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		lock := <-second
		require.NotNil(t, lock)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestHolderInThisProcessIsARefusal is rules 33, 34 and 35: the holder is this process. So a caller is refused without a
// command, and rides out trouble from then on.
func TestHolderInThisProcessIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals []error
		s := &scripted{}
		s.onAcquire = func(context.Context, *acquireParams) (acquireReply, error) {
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

// TestWhoeverJoinsLaterIsToldOnce is rule 34: Waiting runs once for each caller, also for one that joins a line that was
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

// TestBackoffRunsUnderNoMutex: a function of WithBackoff may use the Locker, after a refusal, after an error and after a
// turn.
func TestBackoffRunsUnderNoMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *engine
		calls := 0
		q := &queueing{}
		l = queueingLocker(t, q, WithBackoff(func(int) time.Duration {
			calls++
			if !l.lines.mu.TryLock() {
				t.Error("called under the mutex of the lines")
				return time.Second
			}
			l.lines.mu.Unlock()
			return time.Second
		}))
		outcomes := []error{ErrNotAcquired, errors.New("no route"), nil, nil}
		q.reply(func(context.Context, *acquireParams) (acquireReply, error) {
			return acquireReply{fence: 1}, outcomes[q.acquires.Load()-1]
		}, nil)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		next, _ := standing(t.Context(), l)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, (<-next).Unlock(t.Context()))
		require.Equal(t, 3, calls)
	})
}

// TestLineHurriesWhileNobodyCanWait is rule 31: one caller that can wait is enough for the queue. So is a line that has not
// been empty for long.
func TestLineHurriesWhileNobodyCanWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{}
		e.commandTime.Store(int64(10 * time.Millisecond))
		w := &waiters{engine: e, filled: time.Now()}
		stand := func(patience time.Duration) *request {
			r := &request{}
			r.spot.Of = r
			if patience > 0 {
				r.deadline = time.Now().Add(patience)
			}
			w.Join(&r.spot)
			return r
		}
		stand(time.Millisecond)
		stand(100 * time.Millisecond)
		require.True(t, w.hurriedLocked())
		for _, patience := range []time.Duration{0, 101 * time.Millisecond} {
			r := stand(patience)
			require.False(t, w.hurriedLocked(), patience)
			w.Leave(&r.spot)
		}
		w.filled = time.Now().Add(-100 * time.Millisecond)
		require.False(t, w.hurriedLocked())
	})
}

// TestHurriedLineIsNotQueuedByItsRelease is rule 31: the release that ends a turn.
func TestHurriedLineIsNotQueuedByItsRelease(t *testing.T) {
	for patience, queued := range map[time.Duration]bool{90 * time.Millisecond: false, 110 * time.Millisecond: true} {
		synctest.Test(t, func(t *testing.T) {
			q := &queueing{}
			l := queueingLocker(t, q, WithBackoff(func(int) time.Duration { return time.Millisecond }))
			holder, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			l.commandTime.Store(int64(10 * time.Millisecond))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, _ := standing(ctx, l)
			var next string
			q.reply(nil, func(p *releaseParams) (releaseReply, error) {
				next = p.next
				return releaseReply{at: time.Hour}, nil
			})
			require.NoError(t, holder.Unlock(t.Context()))
			require.Equal(t, queued, next != "")
			q.reply(nil, nil)
			require.NoError(t, (<-got).Unlock(t.Context()))
		})
	}
}

// TestRestIsCountedFromTheNewestRelease is rule 32.
func TestRestIsCountedFromTheNewestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		rests := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.resting) > 0
		}
		for range 20 {
			l.rest("k")
			time.Sleep(longestPause/2 - time.Millisecond)
			require.True(t, rests())
		}
		time.Sleep(longestPause)
		require.False(t, rests())
	})
}
