package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// A pooledCtx is used again when its call has returned, as that of package gin is. Then a method that
// is called is a mistake, and with the race detector one that runs at that time.
type pooledCtx struct {
	t        *testing.T
	standard context.Context //nolint:containedctx // it stands for it
	hides    bool            // package context does not see that
	returned atomic.Bool
	used     int // guarded by nothing
}

func (c *pooledCtx) use(method string) {
	_ = c.used
	if c.returned.Load() {
		c.t.Errorf("%s was called after the call had returned:\n%s", method, debug.Stack())
	}
}

func (c *pooledCtx) Deadline() (time.Time, bool) { c.use("Deadline"); return c.standard.Deadline() }
func (c *pooledCtx) Done() <-chan struct{}       { c.use("Done"); return c.standard.Done() }
func (c *pooledCtx) Err() error                  { c.use("Err"); return c.standard.Err() }
func (c *pooledCtx) Value(key any) any {
	c.use("Value")
	if _, ours := key.(callName); c.hides && !ours {
		return nil
	}
	return c.standard.Value(key)
}

// lentTo makes a call with a ctx that ends after d, and uses it again when the call has returned.
func lentTo(t *testing.T, hides bool, d time.Duration, call func(ctx context.Context)) {
	standard, cancel := context.WithTimeout(named(context.Background(), "call"), d)
	defer cancel()
	c := &pooledCtx{t: t, standard: standard, hides: hides}
	func() {
		defer func() { _ = recover() }() // of a hook
		call(c)
	}()
	c.returned.Store(true)
	c.used++
}

// noWork is an fn.
func noWork(context.Context, *redlatch.Lock) error { return nil }

// callsWithCtx prepare a call with a Locker and a key, which another Locker may hold, too.
var callsWithCtx = map[string]func(t *testing.T, l, other redlatch.Locker, key string) func(ctx context.Context){
	"TryLock": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) { _, _ = l.TryLock(ctx, key) }
	},
	"Lock": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) { _, _ = l.Lock(ctx, key) }
	},
	"Lock with a bound": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) { _, _ = l.Lock(ctx, key, redlatch.WithMaxWait(time.Second)) }
	},
	"refused": func(t *testing.T, l, other redlatch.Locker, key string) func(ctx context.Context) {
		mustLock(t, other, key)
		return func(ctx context.Context) { _, _ = l.TryLock(ctx, key); _, _ = l.Lock(ctx, key) }
	},
	"handed over": func(t *testing.T, l, other redlatch.Locker, key string) func(ctx context.Context) {
		lock := mustLock(t, other, key)
		time.AfterFunc(10*time.Millisecond, func() { _ = lock.Unlock(context.Background()) })
		return func(ctx context.Context) { _, _ = l.Lock(ctx, key) }
	},
	"passed on": func(t *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		lock := mustLock(t, l, key)
		time.AfterFunc(10*time.Millisecond, func() { _ = lock.Unlock(context.Background()) })
		return func(ctx context.Context) { _, _ = l.Lock(ctx, key) }
	},
	"a panic of Acquired": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) {
			_, _ = l.Lock(ctx, key, redlatch.WithHooks(redlatch.Hooks{Acquired: func(context.Context, redlatch.Event) { panic("hook") }}))
		}
	},
	"a panic of Waiting": func(t *testing.T, l, other redlatch.Locker, key string) func(ctx context.Context) {
		mustLock(t, other, key)
		return func(ctx context.Context) {
			_, _ = l.Lock(ctx, key, redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) { panic("hook") }}))
		}
	},
	"Adopt": func(t *testing.T, l, other redlatch.Locker, key string) func(ctx context.Context) {
		token := mustLock(t, other, key).Token()
		return func(ctx context.Context) { _, _ = l.Adopt(ctx, key, token) }
	},
	"Inspect": func(t *testing.T, l, other redlatch.Locker, key string) func(ctx context.Context) {
		mustLock(t, other, key)
		return func(ctx context.Context) { _, _ = l.Inspect(ctx, key) }
	},
	"Forget": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) { _ = redlatch.Forget(ctx, l, key) }
	},
	"Extend": func(t *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		lock := mustLock(t, l, key)
		return func(ctx context.Context) { _ = lock.Extend(ctx, time.Minute) }
	},
	"Unlock": func(t *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		lock := mustLock(t, l, key)
		return func(ctx context.Context) { _ = lock.Unlock(ctx) }
	},
	"UnlockAfter": func(t *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		lock := mustLock(t, l, key)
		return func(ctx context.Context) { _ = lock.UnlockAfter(ctx, time.Second) }
	},
	"Do": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) { _ = redlatch.Do(ctx, l, key, noWork) }
	},
	"Do that unlocks": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) {
			_ = redlatch.TryDo(ctx, l, key, func(ctx context.Context, lock *redlatch.Lock) error {
				lock.Context(ctx)
				return lock.Unlock(ctx)
			})
		}
	},
	"DoAll": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) {
			_ = redlatch.DoAll(ctx, l, []string{key, key + "2"}, func(context.Context, []*redlatch.Lock) error { return nil })
		}
	},
	"Lead": func(_ *testing.T, l, _ redlatch.Locker, key string) func(ctx context.Context) {
		return func(ctx context.Context) {
			_ = redlatch.Lead(ctx, l, key, func(context.Context, *redlatch.Lock) error { return errors.New("again") })
		}
	},
}

// TestACtxIsNotUsedAfterItsCall: whatever the outcome is, and while what the call has begun goes on. So
// a program may use a ctx again. Hooks of the client read its values before and after each command, and
// Hooks of the Locker too.
func TestACtxIsNotUsedAfterItsCall(t *testing.T) {
	faults := map[string]func(l *link){
		"works":         func(*link) {},
		"hangs":         (*link).hang,
		"is refused":    (*link).refuse,
		"is slow":       func(l *link) { l.delay(700 * time.Millisecond) },
		"loses a reply": func(l *link) { l.lose(1) },
	}
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		reads := func(ctx context.Context, _ redlatch.Event) {
			_, _ = ctx.Value(callName{}).(string)
			<-time.After(time.Millisecond)
			_, _ = ctx.Deadline()
		}
		hooks := redlatch.WithHooks(redlatch.Hooks{
			Acquired: reads, Waiting: reads, Moved: reads, Renewed: reads, RenewFailed: reads, Lost: reads, Released: reads,
			Degraded: reads, Trouble: reads,
		})
		for fault, begin := range faults {
			client := w.Client(t)
			everyCommand(client, func(ctx context.Context) { reads(ctx, redlatch.Event{}) })
			link := linkOf(t, client)
			l, other := w.over(t, client, redlatch.WithOpTimeout(time.Second), hooks), w.locker(t)
			warm(t, l)
			for name, prepare := range callsWithCtx {
				for _, hides := range []bool{false, true} {
					for _, d := range []time.Duration{20 * time.Millisecond, 3 * time.Second} {
						key := fault + name + d.String()
						if hides {
							key += " hides"
						}
						call := prepare(t, l, other, key)
						begin(link)
						lentTo(t, hides, d, call)
						time.Sleep(1500 * time.Millisecond) // of the bubble: what the call has begun goes on
						link.heal()
						time.Sleep(time.Second)
						require.False(t, t.Failed(), "%s: %s", name, fault)
					}
				}
			}
		}
	})
}

// everyCommand has a hook of client called before and after each command.
func everyCommand(client *redis.Client, see func(ctx context.Context)) {
	client.AddHook(watching{see})
}

type watching struct{ see func(ctx context.Context) }

func (watching) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h watching) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.see(ctx)
		defer h.see(ctx)
		return next(ctx, cmd)
	}
}

func (h watching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.see(ctx)
		defer h.see(ctx)
		return next(ctx, cmds)
	}
}

// TestManyContextsOfALockCostItNothing: of a parent that never ends there may be any number, and of one
// that may end there is one. All of them end with the lock.
func TestManyContextsOfALockCostItNothing(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		parent, cancel := context.WithCancel(named(t.Context(), "parent"))
		defer cancel()
		unending := named(context.WithoutCancel(t.Context()), "unending")
		dropped := func() weak.Pointer[[64]byte] {
			value := new([64]byte)
			ctx := lock.Context(context.WithValue(unending, callName{}, value))
			require.True(t, value == ctx.Value(callName{}))
			return weak.Make(value)
		}()
		eventually(t, "freed", func() bool { runtime.GC(); time.Sleep(time.Second); return dropped.Value() == nil })
		require.NoError(t, lock.Err())
		one, other := lock.Context(parent), lock.Context(named(parent, "other"))
		for range 1000 {
			require.True(t, one == lock.Context(parent))
		}
		require.Equal(t, "parent", one.Value(callName{}))
		require.Equal(t, "other", other.Value(callName{}))
		all := []context.Context{one, other, lock.Context(context.Background()), lock.Context(unending)}
		require.Contains(t, fmt.Sprint(one), `WithLock("k")`)
		require.Contains(t, fmt.Sprint(lock.Context(unending)), `WithLock("k")`)
		for _, ctx := range all {
			child, stop := context.WithCancel(ctx)
			defer stop()
			all = append(all, child)
			require.NoError(t, ctx.Err())
		}
		brief, end := context.WithCancel(parent)
		ended := lock.Context(brief)
		end()
		<-ended.Done()
		require.ErrorIs(t, context.Cause(ended), context.Canceled)
		require.NoError(t, lock.Unlock(t.Context()))
		for _, ctx := range all {
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), redlatch.ErrReleased)
		}
		require.ErrorIs(t, context.Cause(lock.Context(parent)), redlatch.ErrReleased)
		require.ErrorIs(t, context.Cause(lock.Context(context.Background())), redlatch.ErrReleased)
	})
}
