package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// pairOf is a migration between two prefixes of one server, with a client for each side.
type pairOf struct {
	redlatch.Locker
	s        *locktest.Site
	from, to *tap
}

// onPair runs a test with a migration in a bubble. The scripts of its sides are loaded.
func onPair(t *testing.T, run func(t *testing.T, p *pairOf), opts ...redlatch.Option) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		from, fromTap := tapped(t, s)
		to, toTap := tapped(t, s)
		m := made(redlatch.NewMigration(made(redlatch.NewSetNXPX(from, opts...)), made(redlatch.NewSetNXPX(to, redlatch.WithKeyPrefix("v2:")))))
		warm(t, m)
		run(t, &pairOf{m, s, fromTap, toTap})
	})
}

// key returns the key of one side.
func (p *pairOf) key(side string) string { return map[string]string{"from": "k", "to": "v2:k"}[side] }

// tap returns the tap of one side.
func (p *pairOf) tap(side string) *tap { return map[string]*tap{"from": p.from, "to": p.to}[side] }

// held returns how many sides have the key.
func (p *pairOf) held(t *testing.T) int64 {
	t.Helper()
	return p.s.Direct.Exists(t.Context(), "k", "v2:k").Val()
}

// TestMigrationEndsWithEither: the lock is lost when one of its sides is lost, by an answer, by silence, by WithMaxHold or when it is
// unlocked. The other side is not renewed any more, and Unlock releases both.
func TestMigrationEndsWithEither(t *testing.T) {
	for _, side := range []string{"from", "to"} {
		for how, within := range map[string]time.Duration{"deleted": 10 * time.Second / 3, "silent": 10 * time.Second} {
			t.Run(side+" "+how, func(t *testing.T) {
				onPair(t, func(t *testing.T, p *pairOf) {
					lock := mustLock(t, p, "k")
					ctx := lock.Context(t.Context())
					begin := time.Now()
					if how == "silent" {
						p.tap(side).cut()
					} else {
						require.NoError(t, p.s.Direct.Del(t.Context(), p.key(side)).Err())
					}
					<-lock.Done()
					require.LessOrEqual(t, time.Since(begin), within)
					synctest.Wait()
					require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
					require.ErrorIs(t, context.Cause(ctx), redlatch.ErrLost)
					require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
					p.tap(side).heal()
					time.Sleep(time.Second) // what is under way ends
					sent := p.from.sent.Load() + p.to.sent.Load()
					time.Sleep(10 * time.Second)
					require.Equal(t, sent, p.from.sent.Load()+p.to.sent.Load())
					require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
					require.Zero(t, p.held(t))
					require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
				})
			})
		}
		t.Run("an Unlock that finds "+side+" gone", func(t *testing.T) {
			onPair(t, func(t *testing.T, p *pairOf) {
				lock := mustLock(t, p, "k")
				require.NoError(t, p.s.Direct.Del(t.Context(), p.key(side)).Err())
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				require.Zero(t, p.held(t))
			})
		})
	}
}

// TestMigrationLastsAsLongAsBoth: Until is the earlier end of the two sides. Extend extends both, and WithMaxHold of one ends both.
func TestMigrationLastsAsLongAsBoth(t *testing.T) {
	for _, of := range [][]redlatch.Option{
		{redlatch.WithTTL(5 * time.Second), redlatch.WithMaxHold(time.Minute)}, {redlatch.WithTTL(20 * time.Second), redlatch.WithMaxHold(time.Minute)},
	} {
		onPair(t, func(t *testing.T, p *pairOf) {
			begin := time.Now()
			lock := mustLock(t, p, "k")
			require.LessOrEqual(t, lock.Until().Sub(begin), 10*time.Second)
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			require.Equal(t, begin.Add(time.Minute), lock.Until())
			require.Greater(t, p.s.Direct.TTL(t.Context(), "v2:k").Val(), 50*time.Minute)
			<-lock.Done()
			require.Equal(t, time.Minute, time.Since(begin))
			require.ErrorIs(t, lock.Err(), redlatch.ErrMaxHold)
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrMaxHold)
		}, of...)
	}
}

// TestMigrationStartsOverWhenFromIsLost: if from is lost while Lock waits for to, Lock acquires from again before it acquires to.
func TestMigrationStartsOverWhenFromIsLost(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		to := made(redlatch.NewSetNXPX(p.s.Client(t), redlatch.WithKeyPrefix("v2:")))
		holder := mustLock(t, to, "k")
		got := standing(t, p)
		was := p.s.Direct.Get(t.Context(), "k").Val()
		require.NotEmpty(t, was, "it holds from")
		require.NoError(t, p.s.Direct.Del(t.Context(), "k").Err())
		time.Sleep(4 * time.Second)
		require.NotContains(t, []string{"", was}, p.s.Direct.Get(t.Context(), "k").Val(), "it was lost, and acquired again")
		time.Sleep(time.Minute)
		require.Empty(t, got)
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
		require.Zero(t, p.held(t))
	})
}

// TestMigrationNeverGrantsWhatHalfIsLostOf: from ends when to is granted. TryLock returns ErrLost, and Lock starts over.
func TestMigrationNeverGrantsWhatHalfIsLostOf(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		granted := 0
		slow := redlatch.WithHooks(redlatch.Hooks{Acquired: func(redlatch.Event) {
			if granted++; granted == 2 {
				time.Sleep(500 * time.Millisecond) // of the bubble
			}
		}})
		_, err := p.TryLock(t.Context(), "k", slow)
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.Zero(t, p.held(t))
		granted = 0
		lock, err := p.Lock(t.Context(), "k", slow)
		require.NoError(t, err)
		require.NoError(t, lock.Err())
		require.Equal(t, 4, granted)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Zero(t, p.held(t))
	}, redlatch.WithoutRenewal(), redlatch.WithTTL(400*time.Millisecond))
}

// TestMigrationOfAMigration holds each key on all sides, and ends with each of them. One is a Locker of another package.
func TestMigrationOfAMigration(t *testing.T) {
	for _, lost := range []string{"v0:k", "k", "v2:k"} {
		onPair(t, func(t *testing.T, p *pairOf) {
			other := struct{ redlatch.Locker }{made(redlatch.NewSetNXPX(p.s.Client(t), redlatch.WithKeyPrefix("v0:")))}
			lock := mustLock(t, made(redlatch.NewMigration(other, p)), "k")
			require.NoError(t, lock.Err())
			require.Equal(t, int64(1), p.s.Direct.Del(t.Context(), lost).Val())
			<-lock.Done()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
			require.Zero(t, p.held(t)+p.s.Direct.Exists(t.Context(), "v0:k").Val())
		})
	}
}

// TestMigrationThatFailsHalfWayLeavesNeither: if to is not granted, from is released and not renewed any more. If from is refused, to
// is not tried.
func TestMigrationThatFailsHalfWayLeavesNeither(t *testing.T) {
	for name, of := range map[string]struct {
		taken string
		want  error
	}{"to refuses": {"v2:k", redlatch.ErrNotAcquired}, "from refuses": {"k", redlatch.ErrNotAcquired}, "to is in trouble": {"", redlatch.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			onPair(t, func(t *testing.T, p *pairOf) {
				if of.taken == "" {
					p.to.cut()
				} else {
					require.NoError(t, p.s.Direct.Set(t.Context(), of.taken, "a stranger", time.Hour).Err())
				}
				_, err := p.Inspect(t.Context(), "k")
				require.Equal(t, of.taken == "", errors.Is(err, redlatch.ErrUnavailable))
				tried := p.to.sent.Load()
				_, err = p.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, of.want)
				require.Equal(t, of.taken == "k", p.to.sent.Load() == tried)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				_, err = p.Lock(ctx, "k")
				require.ErrorIs(t, err, of.want)
				require.Equal(t, of.taken != "", errors.Is(err, context.DeadlineExceeded))
				time.Sleep(time.Minute)
				held := p.held(t)
				require.Equal(t, of.taken != "", held == 1, held)
			})
		})
	}
}

// TestMigrationWaitSaysHowItEnded: if ctx ends a wait, the error says so, even if from was lost just before.
func TestMigrationWaitSaysHowItEnded(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		require.NoError(t, p.s.Direct.Set(t.Context(), "v2:k", "a stranger", time.Hour).Err())
		ctx, cancel := context.WithTimeout(t.Context(), 2100*time.Millisecond) // while the lost lock of from is released
		defer cancel()
		time.AfterFunc(time.Second, func() { p.from.late(500 * time.Millisecond) })
		_, err := p.Lock(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		require.Equal(t, int64(1), p.held(t))
		p.from.heal()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Acquired: func(redlatch.Event) { time.Sleep(3 * time.Second) }}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlatch.ErrLost, "from was lost before to was asked")
	}, redlatch.WithoutRenewal(), redlatch.WithTTL(2*time.Second), redlatch.WithOpTimeout(time.Second))
}
