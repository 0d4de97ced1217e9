package behavior_test

import (
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestLeaseIsCountedFromBeforeTheRequest: until = start + TTL − drift, however late the reply
// comes. If nothing is left of the lease by then, the call fails.
func TestLeaseIsCountedFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := locktest.Tapped(t, s)
		l := made(redlatch.NewSetNXPX(client, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(4*time.Second)))
		locktest.Warm(t, l)
		for what, ask := range map[string]func(ctx context.Context, ttl redlatch.Option) (*redlatch.Lock, error){
			"TryLock": func(ctx context.Context, ttl redlatch.Option) (*redlatch.Lock, error) {
				return l.TryLock(ctx, "k", ttl)
			},
			"Lock": func(ctx context.Context, ttl redlatch.Option) (*redlatch.Lock, error) { return l.Lock(ctx, "k", ttl) },
			"Adopt": func(ctx context.Context, ttl redlatch.Option) (*redlatch.Lock, error) {
				require.NoError(t, s.Direct.Set(ctx, "k", "token", time.Minute).Err())
				return l.Adopt(ctx, "k", "token", ttl)
			},
		} {
			tap.Late(3 * time.Second)
			begin := time.Now()
			lock, err := ask(t.Context(), redlatch.WithTTL(10*time.Second))
			require.NoError(t, err, what)
			require.Equal(t, begin.Add(10*time.Second-102*time.Millisecond), lock.Until(), what)
			tap.Late(time.Second)
			begin = time.Now()
			require.NoError(t, lock.Extend(t.Context(), 20*time.Second))
			require.Equal(t, begin.Add(20*time.Second-202*time.Millisecond), lock.Until(), what)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			require.ErrorIs(t, lock.Extend(ctx, time.Hour), context.DeadlineExceeded)
			cancel()
			time.Sleep(time.Second)
			require.Greater(t, time.Until(lock.Until()), 50*time.Minute, "a reply after the end of ctx counts")
			require.NoError(t, lock.Unlock(t.Context()))

			tap.Late(2 * time.Second)
			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
			_, err = ask(ctx, redlatch.WithTTL(time.Second))
			cancel()
			require.ErrorIs(t, err, redlatch.ErrLost, what)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, what)
			time.Sleep(time.Minute)
		}
	})
}

// TestRenewalsGoOnUntilTheLeaseEnds: a lock is renewed every TTL/3. A renewal that fails is tried
// again. If none succeeds, the lease ends on time, without a reply, and a late reply revives
// nothing.
func TestRenewalsGoOnUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var renewed, failed atomic.Int64
		client, tap := locktest.Tapped(t, s)
		l := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(redlatch.Hooks{
			Renewed:     func(context.Context, redlatch.Event) { renewed.Add(1) },
			RenewFailed: func(context.Context, redlatch.Event) { failed.Add(1) },
		})))
		lock := mustLock(t, l, "k")
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 600/(10.0/3), float64(renewed.Load()), 10)
		until := lock.Until()
		tap.Cut()
		time.Sleep(time.Until(until) - time.Second)
		require.NoError(t, lock.Err())
		require.InDelta(t, 10, float64(failed.Load()), 8, "it neither gives up nor spins")
		tap.Heal()
		time.Sleep(time.Minute)
		require.NoError(t, lock.Err())

		begin := time.Now()
		require.NoError(t, lock.Extend(t.Context(), 10*time.Second))
		goesOn := make(chan struct{})
		tap.Set(func(_ context.Context, send func() error) error { <-goesOn; return send() })
		<-lock.Done()
		require.Equal(t, 10*time.Second-102*time.Millisecond, time.Since(begin))
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		tap.Heal()
		close(goesOn)
		time.Sleep(time.Second)
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)

		time.Sleep(25 * time.Hour)
		require.Empty(t, s.Direct.Keys(t.Context(), "*").Val(), "the fence register expires, too")
	})
}

// TestUnlockWaitsForARenewalInFlight: the release is sent at once. Unlock returns after the release
// and the renewal, and nothing is renewed any more.
func TestUnlockWaitsForARenewalInFlight(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := locktest.Tapped(t, s)
		var took time.Duration
		l := made(redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(4*time.Second), redlatch.WithHooks(redlatch.Hooks{
			Released: func(_ context.Context, e redlatch.Event) { took = e.Took },
		})))
		locktest.Warm(t, l)
		lock := mustLock(t, l, "k")
		goesOn := make(chan struct{})
		tap.HoldFirst(goesOn)
		time.Sleep(4 * time.Second)
		done := make(chan error, 1)
		go func() { done <- lock.Unlock(context.Background()) }()
		synctest.Wait()
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val(), "it is released")
		require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrReleased)
		require.Empty(t, done)
		time.Sleep(time.Second)
		close(goesOn)
		require.NoError(t, <-done)
		require.Less(t, took, time.Second, "of the release alone")
		sent := tap.Sent.Load()
		time.Sleep(time.Hour)
		require.Equal(t, sent, tap.Sent.Load())
	})
}

// TestDroppedLockIsNotRenewed: a lock whose handle nobody has any more ends with its TTL, also if a
// context of it is left.
func TestDroppedLockIsNotRenewed(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(ctx context.Context, lock *redlatch.Lock) any{
		"Lock":    func(_ context.Context, lock *redlatch.Lock) any { return lock.Fence() },
		"Context": func(ctx context.Context, lock *redlatch.Lock) any { return lock.Context(ctx) },
	} {
		for of, migrates := range map[string]bool{"SetNXPX": false, "Migration": true} {
			t.Run(name+" of "+of, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
					var renewed atomic.Int64
					losses := make(chan error, 2) // of both sides
					count := redlatch.WithHooks(redlatch.Hooks{
						Renewed: func(context.Context, redlatch.Event) { renewed.Add(1) },
						Lost:    func(_ context.Context, e redlatch.Event) { losses <- e.Err },
					})
					l := made(redlatch.NewSetNXPX(s.Client(t), count))
					if migrates {
						l = made(redlatch.NewMigration(l, made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithKeyPrefix("v2:")))))
					}
					lock := granted(l.Lock(t.Context(), "k"))
					rest := take(t.Context(), lock)
					time.Sleep(4 * time.Second)
					require.Positive(t, renewed.Load())
					// It is dropped here, and not before it was renewed.
					runtime.KeepAlive(lock)
					for range 3 { // one collects the handle of a migration, and the next those of its sides
						runtime.GC()
					}
					before := renewed.Load()
					time.Sleep(time.Minute)
					require.Equal(t, before, renewed.Load())
					lost := await(t, losses, "the loss is reported")
					requireOnly(t, lost, redlatch.ErrLost)
					require.ErrorContains(t, lost, "the handle was dropped without Unlock")
					runtime.KeepAlive(rest)
				})
			})
		}
	}
}

// TestHooksReportEachTransitionOnce: of a lock that is extended and unlocked, of one that expires,
// of one that Unlock finds lost, and of two callers of a line, of which one passes the lock on.
// Each caller that waits is reported once.
func TestHooksReportEachTransitionOnce(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var mu sync.Mutex // guards events: hooks of two locks may run at once
		events := make(map[uint64][]string)
		note := func(what string) func(context.Context, redlatch.Event) {
			return func(_ context.Context, e redlatch.Event) {
				mu.Lock()
				defer mu.Unlock()
				events[e.Fence] = append(events[e.Fence], what)
			}
		}
		l := made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithHooks(redlatch.SlogHooks(nil)), redlatch.WithHooks(redlatch.Hooks{
			Acquired: note("acquired"), Waiting: note("waiting"), Renewed: note("renewed"),
			RenewFailed: note("renew failed"), Lost: note("lost"), Released: note("released"),
		})))
		unlocked := mustLock(t, l, "k")
		require.NoError(t, unlocked.Extend(t.Context(), time.Hour))
		require.NoError(t, unlocked.Unlock(t.Context()))
		require.ErrorIs(t, unlocked.Unlock(t.Context()), redlatch.ErrReleased)

		expired := mustLock(t, l, "k", redlatch.WithoutRenewal())
		<-expired.Done()
		synctest.Wait() // for the hook
		require.ErrorIs(t, expired.Unlock(t.Context()), redlatch.ErrLost)

		found := mustLock(t, l, "k")
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		require.ErrorIs(t, found.Unlock(t.Context()), redlatch.ErrLost)

		lock, rest := inTurn(t, l, made(redlatch.NewSetNXPX(s.Client(t))), 2)
		require.NoError(t, lock.Unlock(t.Context()))
		next := <-rest
		require.Equal(t, lock.Fence()+1, next.Fence(), "it was passed on")
		require.NoError(t, next.Unlock(t.Context()))
		synctest.Wait() // for the hooks
		require.Equal(t, map[uint64][]string{
			0: {"waiting", "waiting"}, unlocked.Fence(): {"acquired", "renewed", "released"}, expired.Fence(): {"acquired", "lost"},
			found.Fence(): {"acquired", "lost"}, lock.Fence(): {"acquired", "released"}, next.Fence(): {"acquired", "released"},
		}, events)
	})
}

// TestLostHookMayUseTheLock: Hooks.Lost unlocks the lock and then waits for the key. Whoever stood
// in line before is served at once.
func TestLostHookMayUseTheLock(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := made(redlatch.NewSetNXPX(s.Client(t)))
		var holder *redlatch.Lock
		lost, again := make(chan time.Time, 1), make(chan *redlatch.Lock, 1)
		holder = granted(l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{Lost: func(context.Context, redlatch.Event) {
			lost <- time.Now()
			require.ErrorIs(t, holder.Unlock(context.Background()), redlatch.ErrLost)
			again <- granted(l.Lock(context.Background(), "k"))
		}})))
		got := locktest.Standing(t, l)
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		next := <-got
		require.Less(t, time.Since(<-lost), 10*time.Millisecond)
		require.ErrorIs(t, holder.Err(), redlatch.ErrLost, "the old lease ended before the new one began")
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, (<-again).Unlock(t.Context()))
	})
}

// TestCauseOfACtxIsOfAnotherLock: the ctx of a call may end with an error of this package, as that
// of an errgroup or of a lock does. It says nothing of the key of the call.
func TestCauseOfACtxIsOfAnotherLock(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := locktest.Tapped(t, s)
		l := made(redlatch.NewSetNXPX(client))
		first, second := mustLock(t, l, "first"), mustLock(t, l, "second")
		ctx := first.Context(t.Context())
		require.NoError(t, s.Direct.Del(t.Context(), "first").Err())
		require.ErrorIs(t, first.Extend(t.Context(), time.Minute), redlatch.ErrLost)
		err := second.Extend(ctx, time.Minute)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		require.ErrorContains(t, err, "context canceled: lock lost: the key is gone")
		require.NoError(t, second.Err())

		_, refused := l.TryLock(t.Context(), "second")
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(refused)
		held, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(refused) })
		tap.Late(500 * time.Millisecond)
		_, err = l.Lock(held, "free")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		_, err = l.TryLock(ended, "free")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, redlatch.ErrUnavailable)
		tap.Heal()
		require.NoError(t, second.Unlock(t.Context()))
	})
}

// TestAnswerInACauseIsOfAnotherCall: the ctx of a call ends since Redis has refused a command of another
// goroutine, as that of an errgroup does. The error of the call matches it, and does not say that Redis is the reason.
func TestAnswerInACauseIsOfAnotherCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newLocker(t, s.Client(t))
		held := mustLock(t, newLocker(t, s.Client(t)), "held")
		answer := s.Direct.Do(t.Context(), "EVAL", "return redis.error_reply('LOADING')", 0).Err()
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { end(answer) })
		_, err := l.Lock(ctx, "held")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		for name, do := range doers() {
			for what, err := range map[string]error{"the wait": err, "a call after it": do(ctx, l, "free", never[*redlatch.Lock](t))} {
				require.ErrorIs(t, err, context.Canceled, "%s, %s", name, what)
				require.ErrorIs(t, err, answer, "%s, %s", name, what)
				require.ErrorAs(t, err, new(redis.Error), "%s, %s", name, what)
				require.NotErrorIs(t, err, redlatch.ErrUnavailable, "%s, %s", name, what)
			}
		}
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestUnlockAfterKeepsNoCtx: what the ctx of a call has, such as an HTTP request, is not needed for
// as long as the key is kept.
func TestUnlockAfterKeepsNoCtx(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		type key struct{}
		lock := mustLock(t, made(redlatch.NewSetNXPX(s.Client(t))), "k")
		body := new([1 << 20]byte)
		freed := weak.Make(body)
		require.NoError(t, lock.UnlockAfter(context.WithValue(t.Context(), key{}, body), time.Hour))
		for range 3 {
			runtime.GC()
		}
		require.Nil(t, freed.Value())
	})
}

// TestUnlockAfterOfALostLockIsNoSuccess: its first send is lost, and the second does not find what
// the first would have left.
func TestUnlockAfterOfALostLockIsNoSuccess(t *testing.T) {
	t.Parallel()
	for name, open := range locktest.Strategies {
		if name == "LegacySetNX" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				client, tap := locktest.Tapped(t, s)
				l := made(open(client))
				locktest.Warm(t, l)
				lock := mustLock(t, l, "k")
				require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
				var sent atomic.Int64
				tap.Set(func(_ context.Context, send func() error) error {
					if sent.Add(1) == 1 {
						return io.EOF
					}
					return send()
				})
				require.ErrorIs(t, lock.UnlockAfter(t.Context(), time.Hour), redlatch.ErrLost)
			})
		})
	}
}
