package redlatch

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// pairOf is a migration between two scripted strategies. did lists their operations since note was called.
type pairOf struct {
	Locker
	from, to *scripted
	did      []string // in order
}

// newPair returns a migration. The test may change the scripts of its sides.
func newPair(t *testing.T, opts ...Option) *pairOf {
	t.Helper()
	p := &pairOf{from: &scripted{}, to: &scripted{}}
	m, err := NewMigration(scriptedLocker(t, p.from, opts...), scriptedLocker(t, p.to, opts...))
	require.NoError(t, err)
	p.Locker = m
	return p
}

// side returns one side and the other.
func (p *pairOf) side(name string) (this, other *scripted) {
	if name == "from" {
		return p.from, p.to
	}
	return p.to, p.from
}

// note makes both sides record their operations in did.
func (p *pairOf) note() {
	for name, s := range map[string]*scripted{"from": p.from, "to": p.to} {
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			p.did = append(p.did, "acquire "+name)
			return acquireReply{}, nil
		}
		s.onExtend = func(context.Context, *leaseParams) error { p.did = append(p.did, "extend "+name); return nil }
		s.onRelease = func(context.Context, *releaseParams) error { p.did = append(p.did, "release "+name); return nil }
	}
}

// TestMigrationTakesFromFirstAndGivesItBackLast: a caller that holds only from already excludes all others.
func TestMigrationTakesFromFirstAndGivesItBackLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.note()
		order := []string{"acquire from", "acquire to", "release to", "release from"}
		require.NoError(t, granted(t, p).Unlock(t.Context()))
		require.Equal(t, order, p.did)

		p.did = nil
		lock, err := p.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, order, p.did)
	})
}

// TestMigrationEndsWithEither: the lock is lost at the moment when one of its sides is lost. The other side is not
// renewed any more.
func TestMigrationEndsWithEither(t *testing.T) {
	for _, name := range []string{"from", "to"} {
		t.Run("a definite answer of "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				lost, other := p.side(name)
				var at time.Time
				lost.onExtend = func(context.Context, *leaseParams) error {
					if lost.extensions.Load() < 3 {
						return nil
					}
					at = time.Now()
					return ErrLost
				}
				lock := granted(t, p)
				ctx := lock.Context(t.Context())
				select {
				case <-lock.Done():
				case <-time.After(time.Hour):
					require.Fail(t, "the lock has not ended")
				}
				require.Equal(t, at, time.Now())
				synctest.Wait()
				require.ErrorIs(t, lock.Err(), ErrLost)
				require.ErrorIs(t, context.Cause(ctx), ErrLost)
				renewed := other.extensions.Load()
				require.Positive(t, renewed)
				require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
				time.Sleep(time.Hour)
				require.Equal(t, renewed, other.extensions.Load())
				require.Equal(t, int64(3), lost.extensions.Load())

				require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
				require.Equal(t, int64(1), p.from.releases.Load(), "Unlock releases both sides")
				require.Equal(t, int64(1), p.to.releases.Load(), "Unlock releases both sides")
				require.ErrorIs(t, lock.Unlock(t.Context()), ErrReleased)
			})
		})
		t.Run("silence of "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				silent, other := p.side(name)
				silent.onExtend = func(context.Context, *leaseParams) error { return errors.New("no route") }
				begin := time.Now()
				lock := granted(t, p)
				select {
				case <-lock.Done():
				case <-time.After(time.Hour):
					require.Fail(t, "the lock has not ended")
				}
				require.Equal(t, clock.Validity(10*time.Second, 0.01), time.Since(begin))
				require.ErrorIs(t, lock.Err(), ErrLost)
				synctest.Wait()
				renewed := other.extensions.Load()
				require.Positive(t, renewed)
				time.Sleep(time.Hour)
				require.Equal(t, renewed, other.extensions.Load())
				require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
			})
		})
		t.Run("an Unlock that finds "+name+" gone", func(t *testing.T) {
			p := newPair(t)
			lost, other := p.side(name)
			lost.onRelease = func(context.Context, *releaseParams) error { return ErrLost }
			require.ErrorIs(t, granted(t, p).Unlock(t.Context()), ErrLost)
			require.Equal(t, int64(1), other.releases.Load())
		})
	}
}

// TestMigrationJudgesBothSides: each call checks the clocks of both sides, even before a timer notices that the lease
// of one side has ended.
func TestMigrationJudgesBothSides(t *testing.T) {
	for name, look := range map[string]func(lock *Lock) error{
		"Err":     (*Lock).Err,
		"Done":    func(lock *Lock) error { <-lock.Done(); return lock.Err() },
		"Context": func(lock *Lock) error { return context.Cause(lock.Context(context.Background())) },
		"Extend":  func(lock *Lock) error { return lock.Extend(context.Background(), time.Hour) },
		"Unlock":  func(lock *Lock) error { return lock.Unlock(context.Background()) },
	} {
		for side := range 2 {
			var asleep atomic.Int64
			var sides [2]*engine
			for i := range sides {
				sides[i] = scriptedLocker(t, &scripted{}, WithTTL(time.Hour))
			}
			sides[side].now = func() clock.Instant {
				i := clock.Now()
				i.Wall += time.Duration(asleep.Load())
				return i
			}
			m, err := NewMigration(sides[0], sides[1])
			require.NoError(t, err)
			lock := granted(t, m)
			require.NoError(t, lock.Err())
			asleep.Store(int64(time.Hour))
			require.ErrorIs(t, look(lock), ErrLost, "%s, side %d", name, side)
		}
	}
}

// TestMigrationLastsAsLongAsBoth: Until is the earlier end of the two sides, and Extend extends both.
func TestMigrationLastsAsLongAsBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := []Option{WithTTL(10 * time.Second)}, []Option{WithTTL(20 * time.Second)}
		for _, opts := range [][2][]Option{{short, long}, {long, short}} {
			from, to := &scripted{}, &scripted{}
			m, err := NewMigration(scriptedLocker(t, from, opts[0]...), scriptedLocker(t, to, opts[1]...))
			require.NoError(t, err)
			begin := time.Now()
			lock := granted(t, m, WithoutRenewal())
			require.Equal(t, begin.Add(clock.Validity(10*time.Second, 0.01)), lock.Until())
			require.NoError(t, lock.Extend(t.Context(), time.Minute))
			require.Equal(t, begin.Add(clock.Validity(time.Minute, 0.01)), lock.Until())
			require.Equal(t, int64(1), from.extensions.Load())
			require.Equal(t, int64(1), to.extensions.Load())
			<-lock.Done()
			require.Equal(t, clock.Validity(time.Minute, 0.01), time.Since(begin))
			require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		}
	})
}

// TestMigrationIsHeldNoLongerThanEitherAllows: WithMaxHold of one side alone ends both.
func TestMigrationIsHeldNoLongerThanEitherAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range [][2][]Option{{{WithMaxHold(time.Minute)}, nil}, {nil, {WithMaxHold(time.Minute)}}} {
			m, err := NewMigration(scriptedLocker(t, &scripted{}, opts[0]...), scriptedLocker(t, &scripted{}, opts[1]...))
			require.NoError(t, err)
			begin := time.Now()
			lock := granted(t, m)
			<-lock.Done()
			require.Equal(t, time.Minute, time.Since(begin))
			require.ErrorIs(t, lock.Err(), ErrMaxHold)
			require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), ErrMaxHold)
			require.ErrorIs(t, lock.Unlock(t.Context()), ErrMaxHold)
		}
	})
}

// TestMigrationStartsOverWhenFromIsLost: if from is lost while Lock waits for to, Lock acquires from again before it
// acquires to.
func TestMigrationStartsOverWhenFromIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, WithPollInterval(time.Second, time.Second))
		p.from.onExtend = func(context.Context, *leaseParams) error {
			if p.from.acquires.Load() == 1 {
				return ErrLost
			}
			return nil
		}
		var held, overlapping atomic.Bool
		held.Store(true)
		p.to.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if held.Load() {
				return acquireReply{}, ErrNotAcquired
			}
			overlapping.Store(p.from.acquires.Load() != 2 || p.from.releases.Load() != 1)
			return acquireReply{}, nil
		}
		got := make(chan *Lock, 1)
		go func() {
			lock, err := p.Lock(context.Background(), "k")
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		time.Sleep(3 * time.Second)
		require.Equal(t, int64(1), p.from.acquires.Load())
		time.Sleep(time.Second)
		require.Equal(t, int64(2), p.from.acquires.Load(), "lost at the first renewal, and acquired again")
		time.Sleep(time.Hour)
		require.Empty(t, got)
		held.Store(false)
		lock := <-got
		require.False(t, overlapping.Load())
		require.NoError(t, lock.Err())
		require.Equal(t, int64(2), p.from.acquires.Load())
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, int64(2), p.from.releases.Load())
		require.Equal(t, int64(1), p.to.releases.Load())
	})
}

// TestMigrationNeverGrantsWhatHalfIsLostOf: from ends at the moment when to is granted. TryLock returns ErrLost, and
// Lock starts over.
func TestMigrationNeverGrantsWhatHalfIsLostOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, WithoutRenewal())
		p.to.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if p.to.acquires.Load() == 1 {
				time.Sleep(clock.Validity(10*time.Second, 0.01) - time.Nanosecond)
			}
			return acquireReply{}, nil
		}
		p.from.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			time.Sleep(time.Nanosecond) // so its lease ends before that of to
			return acquireReply{}, nil
		}
		_, err := p.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, int64(1), p.from.releases.Load())
		require.Equal(t, int64(1), p.to.releases.Load())

		p.to.acquires.Store(0)
		begin := time.Now()
		lock, err := p.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Err())
		require.Equal(t, int64(2), p.to.acquires.Load())
		require.Equal(t, int64(2), p.from.releases.Load(), "once more")
		require.Equal(t, int64(2), p.to.releases.Load(), "once more")
		require.Greater(t, lock.Until().Sub(begin), 15*time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestMigrationThatFailsHalfWayLeavesNeither: if to is not granted, from is released, whatever the error is. If from
// is refused, to is not tried.
func TestMigrationThatFailsHalfWayLeavesNeither(t *testing.T) {
	trouble := errors.New("LOADING")
	for name, answer := range map[string]error{"refused": ErrNotAcquired, "no quorum": ErrNoQuorum, "trouble": trouble} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				p.to.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{}, answer }
				_, err := p.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, answer)
				require.Equal(t, int64(1), p.from.acquires.Load())
				require.Equal(t, int64(1), p.from.releases.Load())

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = p.Lock(ctx, "k")
				if errors.Is(answer, ErrNotAcquired) {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				require.ErrorIs(t, err, answer)
				require.Equal(t, int64(2), p.from.acquires.Load())
				require.Equal(t, int64(2), p.from.releases.Load())
				renewed := p.from.extensions.Load()
				time.Sleep(time.Hour)
				require.Equal(t, renewed, p.from.extensions.Load())
			})
		})
	}
	t.Run("from refuses", func(t *testing.T) {
		p := newPair(t)
		p.from.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{}, ErrNotAcquired }
		_, err := p.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, ErrNotAcquired)
		require.Zero(t, p.to.acquires.Load())
	})
}

// TestMigrationThatFailsHalfWayUnlocksFrom: the lock of from is not renewed any more.
func TestMigrationThatFailsHalfWayUnlocksFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := 0
		p := newPair(t, WithHooks(Hooks{Released: func(Event) { released++ }}))
		released = 0
		p.to.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{}, io.EOF }
		_, err := p.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, int64(1), p.from.releases.Load())
		require.Equal(t, 1, released)
		time.Sleep(time.Hour)
		require.Zero(t, p.from.extensions.Load())
	})
}

// TestUnlocksOfAMigrationAtOnce: the second call leaves both sides to the first one, which reports their outcome.
func TestUnlocksOfAMigrationAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		lock := granted(t, p)
		goesOn := make(chan struct{})
		p.to.onRelease = func(context.Context, *releaseParams) error { <-goesOn; return nil }
		p.from.onRelease = func(context.Context, *releaseParams) error { return io.EOF }
		first := make(chan error, 1)
		go func() { first <- lock.Unlock(t.Context()) }()
		synctest.Wait()
		second, early := lock.Unlock(t.Context()), p.from.releases.Load()
		close(goesOn)
		require.ErrorIs(t, <-first, io.EOF)
		require.ErrorIs(t, second, ErrReleased)
		require.Zero(t, early)
		require.Equal(t, int64(1), p.from.releases.Load())
	})
}

// TestForgottenMigrationIsRenewedNoMore: neither side keeps the other's handle alive.
func TestForgottenMigrationIsRenewedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		_ = granted(t, p).Context(t.Context())
		time.Sleep(4 * time.Second)
		require.Equal(t, int64(1), p.from.extensions.Load())
		require.Equal(t, int64(1), p.to.extensions.Load())
		runtime.GC() // collects the handle of the lock
		runtime.GC() // collects the handle of from, which the first one held
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), p.from.extensions.Load())
		require.Equal(t, int64(1), p.to.extensions.Load())
	})
}

// TestMigrationCostsNoGoroutine: an idle lock has no goroutine, and Unlock leaves none.
func TestMigrationCostsNoGoroutine(t *testing.T) {
	p := newPair(t)
	before := runtime.NumGoroutine()
	var locks []*Lock
	for range 100 {
		locks = append(locks, granted(t, p))
	}
	require.Less(t, runtime.NumGoroutine(), before+len(locks)/2, "other tests may have started some")
	for _, lock := range locks {
		require.NoError(t, lock.Unlock(t.Context()))
	}
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		require.True(t, time.Now().Before(deadline), "goroutines are left")
	}
}

// TestMigrationsNestWithAllTheirSides: a migration between two migrations holds a key on four sides, and ends when
// any of them is lost.
func TestMigrationsNestWithAllTheirSides(t *testing.T) {
	for lost := range 4 {
		synctest.Test(t, func(t *testing.T) {
			var did []string
			var sides [4]*scripted
			var lockers [4]Locker
			for i, name := range []string{"a", "b", "c", "d"} {
				s := &scripted{}
				s.onAcquire = func(_ context.Context, c *leaseParams) (acquireReply, error) {
					if c.key == "k" {
						did = append(did, "acquire "+name)
					}
					return acquireReply{fence: uint64(i)}, nil
				}
				s.onRelease = func(_ context.Context, c *releaseParams) error {
					if c.key == "k" {
						did = append(did, "release "+name)
					}
					return nil
				}
				sides[i], lockers[i] = s, scriptedLocker(t, s)
			}
			pair := func(from, to Locker) Locker {
				m, err := NewMigration(from, to)
				require.NoError(t, err)
				return m
			}
			m := pair(pair(lockers[0], lockers[1]), pair(lockers[2], lockers[3]))
			lock := granted(t, m)
			require.Equal(t, uint64(3), lock.Fence())
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, []string{
				"acquire a", "acquire b", "acquire c", "acquire d",
				"release d", "release c", "release b", "release a",
			}, did)

			lock = granted(t, m)
			sides[lost].onExtend = func(context.Context, *leaseParams) error { return ErrLost }
			<-lock.Done()
			synctest.Wait()
			require.ErrorIs(t, lock.Err(), ErrLost)
			var extensions [4]int64
			for i, s := range sides {
				extensions[i] = s.extensions.Load()
			}
			time.Sleep(time.Hour)
			for i, s := range sides {
				require.Equal(t, extensions[i], s.extensions.Load())
			}
			require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
			for _, s := range sides {
				require.Equal(t, s.acquires.Load(), s.releases.Load())
			}
		})
	}
}

// TestMigrationWaitSaysHowItEnded: if ctx ends a wait, the error says so. This also holds if from was lost just
// before, or if ctx had ended before the call.
func TestMigrationWaitSaysHowItEnded(t *testing.T) {
	for _, answer := range []error{ErrNotAcquired, ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := newPair(t)
			p.from.onExtend = func(context.Context, *leaseParams) error {
				cancel()
				return ErrLost
			}
			held := errors.Is(answer, ErrNotAcquired)
			p.to.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
				if !held {
					time.Sleep(time.Minute)
				}
				return acquireReply{}, ErrNotAcquired
			}
			_, err := p.Lock(ctx, "k")
			time.Sleep(time.Minute)
			require.Equal(t, held, errors.Is(err, ErrNotAcquired))
			require.Equal(t, !held, errors.Is(err, ErrUnavailable))
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, ErrLost)
			require.Equal(t, p.from.acquires.Load(), p.from.releases.Load())
		})
	}
	why := errors.New("closing time")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(why)
	first := func() Locker {
		reply := func(ctx context.Context, _ *leaseParams) (acquireReply, error) { return acquireReply{}, ctx.Err() }
		m, err := NewMigration(scriptedLocker(t, &scripted{onAcquire: reply}), scriptedLocker(t, &scripted{}))
		require.NoError(t, err)
		return m
	}
	_, wait := first().Lock(ctx, "k")
	_, try := first().TryLock(ctx, "k")
	for _, err := range []error{wait, try} {
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.NotErrorIs(t, err, ErrNotAcquired)
		require.NotErrorIs(t, err, ErrUnavailable)
	}
}
