package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A tap is between a client and its server.
type tap struct {
	sent   atomic.Int64 // scripts
	script atomic.Pointer[func(ctx context.Context, send func() error) error]
}

// tapped returns a client of s, as another process would have, and its tap.
func tapped(t *testing.T, s *locktest.Site) (*redis.Client, *tap) {
	t.Helper()
	client, p := s.Client(t), new(tap)
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			p.sent.Add(1)
			if f := p.script.Load(); f != nil {
				return (*f)(ctx, func() error { return next(context.WithoutCancel(ctx), cmd) })
			}
			return next(ctx, cmd)
		}
	}))
	return client, p
}

// set has f carry each script from now on.
func (p *tap) set(f func(ctx context.Context, send func() error) error) { p.script.Store(&f) }

// late has each reply arrive after d.
func (p *tap) late(d time.Duration) {
	p.set(func(_ context.Context, send func() error) error {
		err := send()
		time.Sleep(d) // of the bubble
		return err
	})
}

// holdFirst has the next script reach the server only when goesOn is closed.
func (p *tap) holdFirst(goesOn <-chan struct{}) {
	var n atomic.Int64
	p.set(func(_ context.Context, send func() error) error {
		if n.Add(1) == 1 {
			<-goesOn
		}
		return send()
	})
}

// cut fails each script.
func (p *tap) cut() {
	p.set(func(context.Context, func() error) error { return errors.New("no route") })
}

func (p *tap) heal() { p.script.Store(nil) }

// warm has the scripts loaded, and the time of Redis known.
func warm(t *testing.T, l redlatch.Locker) {
	t.Helper()
	lock := mustLock(t, l, "warm")
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	_, err := l.Adopt(t.Context(), "warm", lock.Token(), redlatch.WithoutRenewal())
	require.True(t, err == nil || errors.Is(err, errors.ErrUnsupported), err)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestLeaseIsCountedFromBeforeTheRequest: until = start + TTL − drift, however late the reply comes. If nothing is left of the
// lease by then, the call fails.
func TestLeaseIsCountedFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := tapped(t, s)
		l := made(redlatch.NewSetNXPX(client, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(4*time.Second)))
		warm(t, l)
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
			tap.late(3 * time.Second)
			begin := time.Now()
			lock, err := ask(t.Context(), redlatch.WithTTL(10*time.Second))
			require.NoError(t, err, what)
			require.Equal(t, begin.Add(10*time.Second-102*time.Millisecond), lock.Until(), what)
			tap.late(time.Second)
			begin = time.Now()
			require.NoError(t, lock.Extend(t.Context(), 20*time.Second))
			require.Equal(t, begin.Add(20*time.Second-202*time.Millisecond), lock.Until(), what)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			require.ErrorIs(t, lock.Extend(ctx, time.Hour), context.DeadlineExceeded)
			cancel()
			time.Sleep(time.Second)
			require.Greater(t, time.Until(lock.Until()), 50*time.Minute, "a reply after the end of ctx counts")
			require.NoError(t, lock.Unlock(t.Context()))

			tap.late(2 * time.Second)
			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
			_, err = ask(ctx, redlatch.WithTTL(time.Second))
			cancel()
			require.ErrorIs(t, err, redlatch.ErrLost, what)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, what)
			time.Sleep(time.Minute)
		}
	})
}

// TestRenewalsGoOnUntilTheLeaseEnds: a lock is renewed every TTL/3. A renewal that fails is tried again. If none succeeds, the
// lease ends on time, without a reply, and a late reply revives nothing.
func TestRenewalsGoOnUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var renewed, failed atomic.Int64
		client, tap := tapped(t, s)
		l := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(redlatch.Hooks{
			Renewed:     func(redlatch.Event) { renewed.Add(1) },
			RenewFailed: func(redlatch.Event) { failed.Add(1) },
		})))
		lock := mustLock(t, l, "k")
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 600/(10.0/3), float64(renewed.Load()), 10)
		until := lock.Until()
		tap.cut()
		time.Sleep(time.Until(until) - time.Second)
		require.NoError(t, lock.Err())
		require.InDelta(t, 10, float64(failed.Load()), 8, "it neither gives up nor spins")
		tap.heal()
		time.Sleep(time.Minute)
		require.NoError(t, lock.Err())

		begin := time.Now()
		require.NoError(t, lock.Extend(t.Context(), 10*time.Second))
		goesOn := make(chan struct{})
		tap.set(func(_ context.Context, send func() error) error { <-goesOn; return send() })
		<-lock.Done()
		require.Equal(t, 10*time.Second-102*time.Millisecond, time.Since(begin))
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		tap.heal()
		close(goesOn)
		time.Sleep(time.Second)
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)

		time.Sleep(25 * time.Hour)
		require.Empty(t, s.Direct.Keys(t.Context(), "*").Val(), "the fence register expires, too")
	})
}

// TestUnlockWaitsForARenewalInFlight: the release is sent at once. Unlock returns after the release and the renewal, and nothing is
// renewed any more.
func TestUnlockWaitsForARenewalInFlight(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := tapped(t, s)
		var took time.Duration
		l := made(redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(4*time.Second), redlatch.WithHooks(redlatch.Hooks{
			Released: func(e redlatch.Event) { took = e.Took },
		})))
		warm(t, l)
		lock := mustLock(t, l, "k")
		goesOn := make(chan struct{})
		tap.holdFirst(goesOn)
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
		sent := tap.sent.Load()
		time.Sleep(time.Hour)
		require.Equal(t, sent, tap.sent.Load())
	})
}

// TestDroppedLockIsNotRenewed: a lock whose handle nobody has any more ends with its TTL, also if a context of it is left.
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
					count := redlatch.WithHooks(redlatch.Hooks{Renewed: func(redlatch.Event) { renewed.Add(1) }})
					l := made(redlatch.NewSetNXPX(s.Client(t), count))
					if migrates {
						l = made(redlatch.NewMigration(l, made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithKeyPrefix("v2:")))))
					}
					rest := take(t.Context(), granted(l.Lock(t.Context(), "k")))
					time.Sleep(4 * time.Second)
					require.Positive(t, renewed.Load())
					for range 3 { // one collects the handle of a migration, and the next those of its sides
						runtime.GC()
					}
					before := renewed.Load()
					time.Sleep(time.Minute)
					require.Equal(t, before, renewed.Load())
					runtime.KeepAlive(rest)
				})
			})
		}
	}
}

// TestIdleLocksCostNoGoroutine, also those of a migration. Unlock leaves none.
func TestIdleLocksCostNoGoroutine(t *testing.T) {
	onPair(t, func(t *testing.T, p *pairOf) {
		var locks []*redlatch.Lock
		for i := range 100 {
			locks = append(locks, mustLock(t, p, fmt.Sprint(i)))
		}
		synctest.Wait()
		held := runtime.NumGoroutine()
		for _, lock := range locks[1:] {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		synctest.Wait()
		require.InDelta(t, held, runtime.NumGoroutine(), 20, "other tests may start or end some")
		require.NoError(t, locks[0].Unlock(t.Context()))
	})
}

// TestHooksReportEachTransitionOnce: of a lock that is extended and unlocked, of one that expires, of one that Unlock finds lost, and
// of two callers of a line, of which one passes the lock on. Each caller that waits is reported once.
func TestHooksReportEachTransitionOnce(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var mu sync.Mutex // guards events: hooks of two locks may run at once
		events := make(map[uint64][]string)
		note := func(what string) func(redlatch.Event) {
			return func(e redlatch.Event) {
				mu.Lock()
				defer mu.Unlock()
				events[e.Fence] = append(events[e.Fence], what)
			}
		}
		l := made(redlatch.NewSetNXPX(s.Client(t), redlatch.WithHooks(redlatch.JoinHooks(redlatch.SlogHooks(nil), redlatch.Hooks{
			Acquired: note("acquired"), Waiting: note("waiting"), Renewed: note("renewed"),
			RenewFailed: note("renew failed"), Lost: note("lost"), Released: note("released"),
		}))))
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

// TestLostHookMayUseTheLock: Hooks.Lost unlocks the lock and then waits for the key. Whoever stood in line before is served at once.
func TestLostHookMayUseTheLock(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := made(redlatch.NewSetNXPX(s.Client(t)))
		var holder *redlatch.Lock
		lost, again := make(chan time.Time, 1), make(chan *redlatch.Lock, 1)
		holder = granted(l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{Lost: func(redlatch.Event) {
			lost <- time.Now()
			require.ErrorIs(t, holder.Unlock(context.Background()), redlatch.ErrLost)
			again <- granted(l.Lock(context.Background(), "k"))
		}})))
		got := standing(t, l)
		require.NoError(t, s.Direct.Del(t.Context(), "k").Err())
		next := <-got
		require.Less(t, time.Since(<-lost), 10*time.Millisecond)
		require.ErrorIs(t, holder.Err(), redlatch.ErrLost, "the old lease ended before the new one began")
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, (<-again).Unlock(t.Context()))
	})
}
