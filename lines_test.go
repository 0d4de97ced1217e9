package redlatch

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/line"
)

// queueing is a scripted strategy with a queue. Its lines poll, and queue after a second. A test delivers messages itself.
type queueing struct {
	*scripted
	channel *inbox.Inbox
	shares  bool
	passes  bool

	mu   sync.Mutex                                                      // guards the fields below
	ask  func(ctx context.Context, p *leaseParams) (acquireReply, error) // the reply to an acquire; nil: it is granted
	give func(p *releaseParams) (releaseReply, error)                    // the reply to a release; nil: it succeeds
}

func (q *queueing) habits() habits {
	return habits{shares: q.shares, passes: q.passes, channel: q.channel}
}

func (q *queueing) acquire(ctx context.Context, p *leaseParams, done func(acquireReply, error)) {
	q.acquires.Add(1)
	q.mu.Lock()
	ask := q.ask
	q.mu.Unlock()
	if ask == nil {
		ask = func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{fence: 1}, nil }
	}
	go func() { done(ask(ctx, p)) }()
}

func (q *queueing) release(_ context.Context, p *releaseParams, done func(releaseReply, error)) {
	q.releases.Add(1)
	q.mu.Lock()
	give := q.give
	q.mu.Unlock()
	if give == nil {
		give = func(*releaseParams) (releaseReply, error) { return releaseReply{at: time.Hour}, nil }
	}
	go func() { done(give(p)) }()
}

// reply sets the replies from now on.
func (q *queueing) reply(ask func(context.Context, *leaseParams) (acquireReply, error), give func(*releaseParams) (releaseReply, error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ask, q.give = ask, give
}

// refuse is a reply to an acquire.
func refuse(context.Context, *leaseParams) (acquireReply, error) {
	return acquireReply{Refusal: inbox.Refusal{Holder: "another", At: time.Hour}}, ErrNotAcquired
}

// queueingLocker returns a Locker on a queueing strategy. Its lines look once a minute.
func queueingLocker(t *testing.T, q *queueing, opts ...Option) *engine {
	t.Helper()
	q.scripted = &scripted{}
	q.channel = inbox.New(nil)
	return scriptedLocker(t, q, append([]Option{WithPollInterval(time.Minute, time.Minute)}, opts...)...)
}

// standing has a caller stand in line for k, and returns once nothing happens any more.
func standing(ctx context.Context, l Locker, opts ...Option) (got chan *Lock, ended chan error) {
	got, ended = make(chan *Lock, 1), make(chan error, 1)
	go func() { // ends with the lock or with ctx
		lock, err := l.Lock(ctx, "k", opts...)
		if err != nil {
			ended <- err
			return
		}
		got <- lock
	}()
	synctest.Wait()
	return got, ended
}

// TestLostLeaseIsNotPassedOn: Unlock finds that the lease has just ended, while another caller is in line.
func TestLostLeaseIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{passes: true, onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Millisecond)
			return acquireReply{fence: 1}, nil
		}}
		l := scriptedLocker(t, s)
		var slept atomic.Int64
		l.now = func() clock.Instant {
			i := clock.Now()
			i.Wall += time.Duration(slept.Load())
			return i
		}
		first, _ := standing(t.Context(), l)
		second, _ := standing(t.Context(), l)
		old := <-first
		slept.Store(int64(time.Hour))
		require.ErrorIs(t, old.lease.release(t.Context(), old.number, 0), ErrLost)
		lock := <-second
		require.NotSame(t, old.lease, lock.lease)
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestPassWithoutFences: a strategy that issues no fences passes locks on without them.
func TestPassWithoutFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{passes: true, onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Millisecond)
			return acquireReply{}, nil
		}}
		l := scriptedLocker(t, s)
		first, _ := standing(t.Context(), l)
		second, _ := standing(t.Context(), l)
		require.NoError(t, (<-first).Unlock(t.Context()))
		lock := <-second
		require.Equal(t, int64(1), s.acquires.Load())
		require.Zero(t, lock.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestEachTurnHasAFreshToken: also if others are in line when a turn begins.
func TestEachTurnHasAFreshToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{}
		l := queueingLocker(t, q)
		seen := make(map[string]bool)
		q.reply(func(_ context.Context, p *leaseParams) (acquireReply, error) {
			time.Sleep(time.Millisecond)
			seen[p.token] = true
			return acquireReply{fence: 1}, nil
		}, nil)
		var line []chan *Lock
		for range 3 {
			got, _ := standing(t.Context(), l)
			line = append(line, got)
		}
		for _, got := range line {
			require.NoError(t, (<-got).Unlock(t.Context()))
		}
		require.Len(t, seen, 3)
	})
}

// TestDroppedLockOfALineIsNotRenewed: the request of the caller that was served does not keep its lock.
func TestDroppedLockOfALineIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		_, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		require.Equal(t, int64(1), s.extensions.Load())
		runtime.GC()
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.extensions.Load())
	})
}

func TestTurnIsCountedFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(3 * time.Second)
			return acquireReply{fence: 1}, nil
		}}
		lock, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, begin.Add(clock.Validity(10*time.Second, 0.01)), lock.Until())
		require.NoError(t, lock.Unlock(t.Context()))

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = scriptedLocker(t, s, WithTTL(time.Second)).Lock(ctx, "k")
		require.ErrorIs(t, err, ErrLost, "nothing is left of the lease")
	})
}

// TestMigrationEndsOnlyItsOwnHandle: the other side of a migration is lost after Unlock has passed the lock on.
func TestMigrationEndsOnlyItsOwnHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 2)
		old := u.lock
		u.pass(t)
		old.lease.end(old.number, ErrLost)
		require.NoError(t, u.lock.Err())
		u.end(t)
	})
}

// TestReplicasConfirmWhatAReleaseHandsOver: a release hands the lock to the line of the releaser, by its reply or by a
// message. With WithReplicas the line asks again, since only an acquire asks the replicas.
func TestReplicasConfirmWhatAReleaseHandsOver(t *testing.T) {
	for name, byMessage := range map[string]bool{"reply": false, "message": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queueing{}
				l := queueingLocker(t, q, WithReplicas(1, 10*time.Millisecond))
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				next, _ := standing(t.Context(), l)
				var entry string
				tick := uint64(7)
				if byMessage {
					tick = 0
				}
				q.reply(refuse, func(p *releaseParams) (releaseReply, error) {
					entry = p.next
					return releaseReply{at: time.Hour, tick: tick}, nil
				})
				require.NoError(t, lock.Unlock(t.Context()))
				if byMessage {
					l.deliver(inbox.Grant{Token: entry[strings.LastIndex(entry, " ")+1:], Tick: 7, At: time.Hour})
				}
				synctest.Wait()
				require.Empty(t, next, "no replica has confirmed it")
				q.reply(nil, nil)
				require.NoError(t, (<-next).Unlock(t.Context()))
			})
		})
	}
}

// TestAcquireOfAnEmptyLineIsGivenBack: everybody leaves while an acquire is under way that is granted.
func TestAcquireOfAnEmptyLineIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		l := scriptedLocker(t, s, WithPollInterval(time.Second, time.Second), WithOpTimeout(2*time.Second))
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if s.acquires.Load() == 1 {
				return acquireReply{}, ErrNotAcquired
			}
			time.Sleep(time.Second)
			return acquireReply{fence: 1}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, ended := standing(ctx, l)
		require.ErrorIs(t, <-ended, ErrNotAcquired)
		time.Sleep(time.Minute)
		require.Equal(t, int64(2), s.acquires.Load())
		require.Equal(t, int64(1), s.releases.Load())
		require.Empty(t, l.byKey)
	})
}

// TestMessageDuringALookIsNotLost: the message comes while the line asks, and the reply is a refusal that is older.
func TestMessageDuringALookIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{}
		l := queueingLocker(t, q)
		q.reply(func(ctx context.Context, p *leaseParams) (acquireReply, error) {
			if q.acquires.Load() > 3 {
				return acquireReply{fence: 1}, nil
			}
			if q.acquires.Load() == 3 {
				l.deliver(inbox.Grant{Token: p.token, Tick: 7, At: time.Hour})
			}
			return refuse(ctx, p)
		}, nil)
		got, _ := standing(t.Context(), l)
		lock := <-got
		require.Equal(t, int64(3), q.acquires.Load())
		require.Equal(t, uint64(7*64), lock.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLineYieldsAfterItsTurn: a strategy cannot tell whether other processes want a key. So after a turn its line
// leaves them time, if it has found the key held before.
func TestLineYieldsAfterItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		var asked time.Time
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			asked = time.Now()
			if s.acquires.Load() == 1 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{fence: 1}, nil
		}
		l := scriptedLocker(t, s)
		first, _ := standing(t.Context(), l)
		second, _ := standing(t.Context(), l)
		lock := <-first
		time.Sleep(10 * time.Millisecond)
		released := time.Now()
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-second
		require.Greater(t, asked.Sub(released), time.Millisecond)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestNewestAnswerDecidesTheErrorOfWhoeverLeaves: an attempt of the line has got no answer when the ctx of a caller ends,
// while another caller stays. The answer before it counts while it is not older than the op timeout, or that attempt has not
// lasted for three quarters of it.
func TestNewestAnswerDecidesTheErrorOfWhoeverLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		pause, silent time.Duration
		held          bool
	}{
		"young answer":             {100 * time.Millisecond, 850 * time.Millisecond, true},
		"old answer":               {100 * time.Millisecond, 950 * time.Millisecond, false},
		"old answer, new question": {10 * time.Second, 740 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leaves, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := &scripted{}
				goesOn := make(chan struct{})
				s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
					if s.acquires.Load() > 1 {
						time.AfterFunc(c.silent, cancel)
						<-goesOn
					}
					return acquireReply{}, ErrNotAcquired
				}
				l := scriptedLocker(t, s, WithOpTimeout(time.Second), WithPollInterval(c.pause, c.pause))
				stays, end := context.WithCancel(t.Context())
				_, ended := standing(leaves, l)
				_, others := standing(stays, l)
				err := <-ended
				require.Equal(t, c.held, errors.Is(err, ErrNotAcquired), err)
				require.Equal(t, !c.held, errors.Is(err, ErrUnavailable), err)
				end()
				require.ErrorIs(t, <-others, context.Canceled)
				close(goesOn)
			})
		})
	}
}

// TestPassedHandleHasItsCallersHooks: calls whose options differ in hooks only stand in one line. Events have
// the owner, and not the token.
func TestPassedHandleHasItsCallersHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan string, 10)
		hooks := func(caller string) Option {
			note := func(what string) func(Event) {
				return func(e Event) {
					heard <- caller + what
					if e.Owner != "api-7" {
						t.Error(e.Owner)
					}
				}
			}
			return WithHooks(Hooks{Acquired: note(" acquired"), Released: note(" released")})
		}
		s := &scripted{passes: true, onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Millisecond)
			return acquireReply{fence: 1}, nil
		}}
		l := scriptedLocker(t, s, WithOwner("api-7"))
		first, _ := standing(t.Context(), l, hooks("first"))
		second, _ := standing(t.Context(), l, hooks("second"))
		require.NoError(t, (<-first).Unlock(t.Context()))
		require.NoError(t, (<-second).Unlock(t.Context()))
		require.Equal(t, int64(1), s.acquires.Load())
		close(heard)
		var all []string
		for what := range heard {
			all = append(all, what)
		}
		require.ElementsMatch(t, []string{"first acquired", "first released", "second acquired", "second released"}, all)
	})
}

// TestReleasedLockIsNotLost: the time at which the lease would have ended changes nothing after Unlock.
func TestReleasedLockIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := granted(t, scriptedLocker(t, &scripted{}, WithHooks(Hooks{Lost: func(Event) { t.Error("lost") }})))
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(time.Hour)
		require.ErrorIs(t, lock.Err(), ErrReleased)
		require.NotErrorIs(t, lock.Err(), ErrLost)
	})
}

// inLine returns how many callers of l stand in line for key without options of their own.
func inLine(l Locker, key string) int {
	e := l.(*engine)
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	if w := e.byKey[e.cfg.prefix+key]; w != nil {
		return w.Len()
	}
	return 0
}

// impatient returns a Locker on a queueing strategy with the default pauses.
func impatient(t *testing.T, q *queueing, opts ...Option) *engine {
	t.Helper()
	q.scripted = &scripted{}
	q.channel = inbox.New(nil)
	return scriptedLocker(t, q, opts...)
}

// TestSemaphoreLeavesAKeyToOthers: after a release that others waited for, Lock rests before its first attempt.
func TestSemaphoreLeavesAKeyToOthers(t *testing.T) {
	for name, shares := range map[string]bool{"lock": false, "semaphore": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queueing{shares: shares}
				l := impatient(t, q)
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				q.reply(nil, func(*releaseParams) (releaseReply, error) { return releaseReply{wanted: true}, nil })
				require.NoError(t, lock.Unlock(t.Context()))
				begin := time.Now()
				lock, err = l.Lock(t.Context(), "k")
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(begin), 64*time.Millisecond)
				q.reply(nil, nil)
				require.NoError(t, lock.Unlock(t.Context()))
			})
		})
	}
}

// TestNewcomerDoesNotOvertakeItsLine: callers of a semaphore with several permits make their first attempts by
// themselves only while no line of the process waits.
func TestNewcomerDoesNotOvertakeItsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{shares: true}
		l := impatient(t, q)
		q.reply(refuse, nil)
		first, _ := standing(t.Context(), l)
		time.Sleep(line.Patience / 8)
		q.reply(nil, nil) // a permit is free
		second, _ := standing(t.Context(), l)
		require.Empty(t, second)
		require.NoError(t, (<-first).Unlock(t.Context()))
		require.NoError(t, (<-second).Unlock(t.Context()))
	})
}

// TestRefusedSemaphorePollsSoon: a process without a channel polls, also after a first attempt of its own.
func TestRefusedSemaphorePollsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{shares: true}
		l := impatient(t, q)
		q.reply(refuse, nil)
		got, _ := standing(t.Context(), l)
		begin := time.Now()
		q.reply(nil, nil)
		require.NoError(t, (<-got).Unlock(t.Context()))
		require.LessOrEqual(t, time.Since(begin), 128*time.Millisecond)
	})
}

// TestSlowHookMakesNoLeaseLonger: Hooks.Lost of the lease before runs between the grant and its handle.
func TestSlowHookMakesNoLeaseLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost sync.Once
		l := impatient(t, &queueing{}, WithoutRenewal(), WithTTL(10*time.Second), WithHooks(Hooks{Lost: func(Event) {
			lost.Do(func() { time.Sleep(5 * time.Second) })
		}}))
		_, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		second, _ := standing(t.Context(), l)
		lock := <-second
		<-lock.Done()
		require.False(t, time.Now().After(lock.Until()))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestReleaseIsTimedWithoutARenewal: Event.Took is the round trip of the release. Unlock also waits for a renewal in flight.
func TestReleaseIsTimedWithoutARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onExtend: func(context.Context, *leaseParams) error {
			time.Sleep(700 * time.Millisecond)
			return nil
		}}
		var took time.Duration
		l := scriptedLocker(t, s, WithHooks(Hooks{Released: func(e Event) { took = e.Took }}))
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(lock.lease.r.cfg.ttl/3 + time.Millisecond)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Less(t, took, time.Millisecond)
	})
}

// TestReleaseOfAPermitQueuesNoEntryAgain: the line is in the queue, so the release of somebody else's permit may
// grant it one, which it may release before this release is carried out.
func TestReleaseOfAPermitQueuesNoEntryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{shares: true}
		l := queueingLocker(t, q)
		q.reply(refuse, nil)
		first, _ := standing(t.Context(), l)
		second, _ := standing(t.Context(), l)
		permits := 1
		q.reply(func(ctx context.Context, p *leaseParams) (acquireReply, error) {
			if permits--; permits < 0 {
				require.NotEmpty(t, p.entry)
				return refuse(ctx, p)
			}
			return acquireReply{fence: 1}, nil
		}, nil)
		lock := <-first
		synctest.Wait() // the second is in the queue
		q.reply(nil, func(p *releaseParams) (releaseReply, error) {
			require.Empty(t, p.next)
			return releaseReply{}, nil
		})
		require.NoError(t, lock.Unlock(t.Context()))
		q.reply(nil, nil)
		require.NoError(t, (<-second).Unlock(t.Context()))
	})
}

// A turn of a test has the callers of one line. The first of them has been granted the key. It is used in a bubble.
type turn struct {
	*engine
	strategy *scripted
	lock     *Lock        // of the caller that holds the key
	next     []chan *Lock // of those that stood in line when the turn began
}

// newTurn begins a turn with n callers, whose first fence is 100.
func newTurn(t *testing.T, n int, opts ...Option) *turn {
	t.Helper()
	return newTurnOf(t, &scripted{passes: true}, n, opts...)
}

// newTurnOf begins such a turn of a strategy.
func newTurnOf(t *testing.T, s *scripted, n int, opts ...Option) *turn {
	t.Helper()
	s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
		if s.acquires.Load() == 1 {
			time.Sleep(time.Millisecond) // the others join
			return acquireReply{fence: 100}, nil
		}
		return acquireReply{fence: 1000}, nil
	}
	u := &turn{engine: scriptedLocker(t, s, opts...), strategy: s}
	for range n {
		u.join(t)
	}
	u.lock = <-u.next[0]
	u.next = u.next[1:]
	return u
}

// join has another caller join the line.
func (u *turn) join(t *testing.T, opts ...Option) {
	t.Helper()
	got := make(chan *Lock, 1)
	go func() { // ends with the lock
		lock, err := u.Lock(context.Background(), "k", opts...)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	synctest.Wait()
	u.next = append(u.next, got)
}

// pass unlocks and fails unless that has passed the lock on to the next caller, at once and without a command.
func (u *turn) pass(t *testing.T) {
	t.Helper()
	before, sent := u.lock, u.strategy.acquires.Load()+u.strategy.releases.Load()
	require.NoError(t, before.Unlock(t.Context()))
	synctest.Wait()
	require.Len(t, u.next[0], 1, "not passed on")
	u.lock = <-u.next[0]
	u.next = u.next[1:]
	require.Equal(t, sent, u.strategy.acquires.Load()+u.strategy.releases.Load())
	require.Same(t, before.lease, u.lock.lease, "the timer goes on")
	require.Greater(t, u.lock.Fence(), before.Fence())
}

// end unlocks and fails unless that ends the turn with a release. The rest of the line is served later.
func (u *turn) end(t *testing.T) {
	t.Helper()
	releases := u.strategy.releases.Load()
	require.NoError(t, u.lock.Unlock(t.Context()))
	require.Equal(t, releases+1, u.strategy.releases.Load(), "passed on")
	u.finish(t)
}

// finish waits until everybody was served.
func (u *turn) finish(t *testing.T) {
	t.Helper()
	for _, got := range u.next {
		lock := <-got
		require.NotNil(t, lock)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	synctest.Wait()
	require.Empty(t, u.byKey)
}

// TestTurnServesWhoeverStoodInLine: a turn passes the lock on to each caller that was in line when it began, in
// order, without a command. Whoever comes later waits for the next turn, also a caller that was served before.
func TestTurnServesWhoeverStoodInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 5)
		u.join(t)
		for i := range 4 {
			u.pass(t)
			require.Equal(t, uint64(101+i), u.lock.Fence())
			u.join(t)
		}
		last := u.lock
		u.end(t)
		require.Equal(t, uint64(104), last.Fence())
		require.Equal(t, int64(2), u.strategy.acquires.Load(), "one for each turn")
		require.Equal(t, int64(2), u.strategy.releases.Load())
	})
}

// TestTurnServesAtMost64: a tick has that many fences. The turn of a strategy whose fences leave no room serves one.
func TestTurnServesAtMost64(t *testing.T) {
	for passes, served := range map[bool]int{true: 64, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			u := newTurnOf(t, &scripted{passes: passes}, 70)
			for range served - 1 {
				u.pass(t)
			}
			require.Equal(t, uint64(99+served), u.lock.Fence())
			u.end(t)
		})
	}
}

// TestPassedHandleHasEnded: a pass ends one handle with ErrReleased and begins another.
func TestPassedHandleHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 3, WithOwner("api-7"))
		old := u.lock
		done, ctx := old.Done(), old.Context(t.Context())
		u.pass(t)
		heldCtx, heldDone := u.lock.Context(t.Context()), u.lock.Done()

		require.ErrorIs(t, old.Err(), ErrReleased)
		<-done
		<-old.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
		require.ErrorIs(t, context.Cause(old.Context(t.Context())), ErrReleased)
		require.ErrorIs(t, old.Extend(t.Context(), time.Hour), ErrReleased)
		require.ErrorIs(t, old.Unlock(t.Context()), ErrReleased)
		require.Equal(t, uint64(100), old.Fence())
		require.Zero(t, u.strategy.extensions.Load())

		require.Empty(t, old.Token())
		require.NoError(t, u.lock.Err())
		require.NoError(t, heldCtx.Err())
		select {
		case <-heldDone:
			require.Fail(t, "the handle of another caller has ended")
		default:
		}
		before := u.lock
		u.pass(t)
		require.Empty(t, before.Token())
		require.Len(t, before.lease.contexts, 0)
		u.end(t)
	})
}

// TestPauseBetweenTwoHandles: the process is paused while Unlock passes the lock on, until the lease has ended, and its timer
// fires. The old handle has ended already. Whether the line passes the lock on depends on when it has read the clock.
func TestPauseBetweenTwoHandles(t *testing.T) {
	for passes, want := range map[bool]map[uint64][]string{
		true:  {100: {"released"}, 101: {"lost"}, 1000: {"released"}},
		false: {100: {"released"}, 1000: {"released"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			heard := make(map[uint64][]string) // by fence
			note := func(what string) func(Event) {
				return func(e Event) {
					mu.Lock()
					defer mu.Unlock()
					heard[e.Fence] = append(heard[e.Fence], what)
				}
			}
			u := newTurn(t, 2, WithHooks(Hooks{Lost: note("lost"), Released: note("released")}))
			old := u.lock
			var reads, paused atomic.Int64
			u.now = func() clock.Instant {
				read := func() clock.Instant {
					i := clock.Now()
					i.Mono = i.Mono.Add(time.Duration(paused.Load()))
					return i
				}
				if reads.Add(1) != 2 { // the first is that of Unlock, and the second that of the line
					return read()
				}
				before := read()
				paused.Store(int64(time.Minute))
				old.lease.tick()
				if passes {
					return before
				}
				return read()
			}
			require.NoError(t, old.Unlock(t.Context()))
			require.ErrorIs(t, old.Err(), ErrReleased)
			next := <-u.next[0]
			if passes {
				require.ErrorIs(t, next.Err(), ErrLost)
				require.ErrorIs(t, next.Unlock(t.Context()), ErrLost)
				u.next = nil
				u.join(t)
				next = <-u.next[0]
			}
			require.NoError(t, next.Unlock(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, heard)
		})
	}
}

func TestWhatIsNotPassedOn(t *testing.T) {
	rest := func(d time.Duration) func(*testing.T, *turn) {
		return func(*testing.T, *turn) { time.Sleep(d) }
	}
	for name, c := range map[string]struct {
		opts   []Option
		do     func(t *testing.T, u *turn)
		passes bool
	}{
		"a young turn":                     {passes: true},
		"almost too old":                   {do: rest(5*time.Millisecond - time.Microsecond), passes: true},
		"too old":                          {do: rest(5 * time.Millisecond)},
		"almost too old for its TTL":       {opts: []Option{WithTTL(100 * time.Millisecond)}, do: rest(990 * time.Microsecond), passes: true},
		"too old for its TTL":              {opts: []Option{WithTTL(100 * time.Millisecond)}, do: rest(time.Millisecond)},
		"before half of the time to renew": {opts: []Option{WithDrift(0.985), WithTTL(time.Second)}, do: rest(2 * time.Millisecond), passes: true},
		"half of the time to renew":        {opts: []Option{WithDrift(0.985), WithTTL(time.Second)}, do: rest(3 * time.Millisecond)},
		"Token":                            {do: func(_ *testing.T, u *turn) { _ = u.lock.Token() }},
		"Extend":                           {do: func(t *testing.T, u *turn) { require.NoError(t, u.lock.Extend(t.Context(), time.Hour)) }},
		"Adopt of the token that Inspect shows": {do: func(t *testing.T, u *turn) {
			_, err := u.Adopt(t.Context(), "k", u.lock.lease.params.token)
			require.NoError(t, err)
		}},
		"Adopt of another token": {do: func(t *testing.T, u *turn) {
			_, err := u.Adopt(t.Context(), "k", "another")
			require.NoError(t, err)
		}, passes: true},
		"Adopt of another key": {do: func(t *testing.T, u *turn) {
			_, err := u.Adopt(t.Context(), "other", u.lock.lease.params.token)
			require.NoError(t, err)
		}, passes: true},
		"Inspect, Until, Done and Context": {do: func(t *testing.T, u *turn) {
			_, err := u.Inspect(t.Context(), "k")
			require.NoError(t, err)
			_, _, _ = u.lock.Until(), u.lock.Done(), u.lock.Context(t.Context())
		}, passes: true},
		"WithMaxHold":    {opts: []Option{WithMaxHold(time.Minute)}},
		"WithMinHold":    {opts: []Option{WithMinHold(time.Second)}},
		"WithReplicas":   {opts: []Option{WithReplicas(1, time.Second)}},
		"WithoutRenewal": {opts: []Option{WithoutRenewal()}, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // a handle that was adopted is dropped
				u := newTurn(t, 2, c.opts...)
				if c.do != nil {
					c.do(t, u)
				}
				if c.passes {
					u.pass(t)
				}
				u.end(t)
			})
		})
	}
}

// TestCallsWithOptionsStandAlone: they are passed nothing, and pass nothing on.
func TestCallsWithOptionsStandAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{passes: true}
		var free atomic.Bool
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if !free.CompareAndSwap(true, false) {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{fence: 1}, nil
		}
		s.onRelease = func(context.Context, *releaseParams) error { free.Store(true); return nil }
		u := &turn{engine: scriptedLocker(t, s), strategy: s}
		for range 3 {
			u.join(t, WithTTL(11*time.Second))
		}
		require.Empty(t, u.byKey)
		free.Store(true)
		for range 3 {
			var lock *Lock
			select {
			case lock = <-u.next[0]:
			case lock = <-u.next[1]:
			case lock = <-u.next[2]:
			}
			require.NotNil(t, lock)
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Equal(t, int64(3), s.releases.Load())
	})
}

func TestHooksRunOnceForEachHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		heard := make(map[uint64][]string) // by fence, since hooks of two handles may run at once
		note := func(what string) func(Event) {
			return func(e Event) {
				assert.Equal(t, "k", e.Key)
				if what == "released" && e.Fence == 101 {
					assert.Equal(t, time.Millisecond, e.Elapsed, "of the handle, not of the turn")
				}
				mu.Lock()
				defer mu.Unlock()
				heard[e.Fence] = append(heard[e.Fence], what)
			}
		}
		u := newTurn(t, 3, WithHooks(Hooks{
			Acquired: note("acquired"), Waiting: note("waiting"), Renewed: note("renewed"),
			RenewFailed: note("renew failed"), Lost: note("lost"), Released: note("released"),
		}))
		u.pass(t)
		time.Sleep(time.Millisecond)
		u.pass(t)
		u.join(t)
		u.strategy.onRelease = func(context.Context, *releaseParams) error { return ErrLost }
		require.ErrorIs(t, u.lock.Unlock(t.Context()), ErrLost)
		u.strategy.onRelease = nil
		u.finish(t)
		require.Equal(t, map[uint64][]string{
			0: {"waiting", "waiting", "waiting"}, 100: {"acquired", "released"}, 101: {"acquired", "released"},
			102: {"acquired", "lost"}, 1000: {"acquired", "released"},
		}, heard)
	})
}

// TestLossEndsTheTurn: a lease that is lost ends the handle that holds the lock, and passes nothing on. The line
// asks again.
func TestLossEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 4, WithoutRenewal())
		old := u.lock
		u.pass(t)
		<-u.lock.Done()
		require.ErrorIs(t, u.lock.Err(), ErrLost)
		require.ErrorIs(t, old.Err(), ErrReleased, "it ended before")
		u.finish(t)
		require.ErrorIs(t, u.lock.Unlock(t.Context()), ErrLost)
		require.ErrorIs(t, old.Unlock(t.Context()), ErrReleased)
	})
}

// TestPassedLockIsRenewed: as long as its handle is kept.
func TestPassedLockIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 3)
		u.pass(t)
		u.pass(t)
		time.Sleep(time.Hour)
		require.NoError(t, u.lock.Err())
		require.Greater(t, u.strategy.extensions.Load(), int64(1000))
		u.end(t)
	})
}

// TestDroppedPassedLockIsNotRenewed: a handle that a pass has begun is collected, and then not renewed.
func TestDroppedPassedLockIsNotRenewed(t *testing.T) {
	t.Parallel()
	lost := make(chan Event, 1)
	var began atomic.Bool
	s := &scripted{passes: true}
	joined := make(chan struct{})
	s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
		<-joined
		return acquireReply{fence: 100}, nil
	}
	l := scriptedLocker(t, s, WithTTL(2*time.Second), WithHooks(Hooks{Lost: func(e Event) { lost <- e }}))
	served := make(chan struct{})
	for range 2 {
		go func() { // ends with the lock
			lock, err := l.Lock(context.Background(), "k")
			if err == nil && began.CompareAndSwap(false, true) {
				err = lock.Unlock(context.Background())
			} else {
				close(served) // and the lock is dropped
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	soon(t, "both stand in line", func() bool { return inLine(l, "k") == 2 })
	close(joined)
	<-served
	require.Equal(t, int64(1), s.acquires.Load(), "it was passed on")
	soon(t, "the lock is lost", func() bool {
		runtime.GC()
		return len(lost) == 1
	})
	e := <-lost
	require.Equal(t, uint64(101), e.Fence)
	require.ErrorIs(t, e.Err, ErrLost)
}

// TestCtxThatEndsAsTheLockIsPassedOn: a caller that was served before it could leave has the lock.
func TestCtxThatEndsAsTheLockIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			s := &scripted{passes: true}
			joined := make(chan struct{})
			s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
				<-joined
				return acquireReply{fence: 100}, nil
			}
			u := &turn{engine: scriptedLocker(t, s), strategy: s}
			u.join(t)
			ctx, cancel := context.WithCancel(t.Context())
			var second *Lock
			var err error
			ended := make(chan struct{})
			go func() { // ends with ctx
				defer close(ended)
				second, err = u.Lock(ctx, "k")
			}()
			synctest.Wait()
			u.join(t)
			close(joined)
			first := <-u.next[0]
			go cancel()
			require.NoError(t, first.Unlock(t.Context()))
			<-ended
			if err == nil {
				require.Empty(t, u.next[1])
				require.NoError(t, second.Err())
				require.NoError(t, second.Unlock(t.Context()))
			} else {
				require.True(t, errors.Is(err, context.Canceled) && second == nil)
			}
			u.next = u.next[1:]
			u.finish(t)
		}
	})
}

// TestLostHookThatLocksHoldsNobodyUp: Hooks.Lost waits for the lock itself. Whoever stood in line before is served at once.
func TestLostHookThatLocksHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		defer time.Sleep(time.Minute) // the subscription ends
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		lost, again := make(chan time.Time, 1), make(chan *Lock, 1)
		holder, err := l.Lock(t.Context(), "k", WithHooks(Hooks{Lost: func(Event) {
			lost <- time.Now()
			lock, err := l.Lock(t.Context(), "k")
			assert.NoError(t, err)
			again <- lock
		}}))
		require.NoError(t, err)
		got, _ := standing(t.Context(), l)
		m.Del("k")
		next := <-got
		require.Less(t, time.Since(<-lost), 10*time.Millisecond)
		require.ErrorIs(t, holder.Err(), ErrLost)
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, (<-again).Unlock(t.Context()))
	})
}
