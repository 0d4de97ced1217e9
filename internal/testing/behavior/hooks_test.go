package behavior_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// callName is the context key of the name of a call.
type callName struct{}

// named returns a ctx of a call with a name.
func named(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callName{}, name)
}

// A journal notes what happened in which call: "" for none.
type journal struct {
	mu      sync.Mutex // guards the fields below
	entries map[string][]string
	logged  map[string][]string
}

func (j *journal) add(ctx context.Context, to map[string][]string, what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	call, _ := ctx.Value(callName{}).(string)
	to[what] = append(to[what], call)
}

// Enabled, WithAttrs, WithGroup and Handle make it a handler of logs.
func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }
func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	j.add(ctx, j.logged, r.Message)
	return nil
}

// hooks returns hooks that note every event that is not that of a node.
func (j *journal) hooks() redlatch.Hooks {
	note := func(what string) func(context.Context, redlatch.Event) {
		return func(ctx context.Context, e redlatch.Event) {
			if e.Node == "" {
				j.add(ctx, j.entries, what)
			}
		}
	}
	return redlatch.Hooks{
		Acquired: note("acquired"), Waiting: note("waiting"), Renewed: note("renewed"), RenewFailed: note("renew failed"),
		Lost: note("lost"), Released: note("released"), Trouble: note("trouble"),
	}
}

// TestHooksGetTheCtxOfTheirCall: with its values, even if it has ended. So do handlers of logs.
// Where there is no call they get that of nobody: a renewal does not have the ctx of the call that
// acquired the lock.
func TestHooksGetTheCtxOfTheirCall(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		j := &journal{entries: make(map[string][]string), logged: make(map[string][]string)}
		l, link := w.linked(t, redlatch.WithTTL(30*time.Second), redlatch.WithHooks(j.hooks()), redlatch.WithHooks(redlatch.SlogHooks(slog.New(j))))
		ended := func(name string) context.Context {
			ctx, cancel := context.WithCancel(named(t.Context(), name))
			cancel()
			return ctx
		}
		lock := granted(l.TryLock(named(t.Context(), "try"), "k"))
		require.NoError(t, lock.Extend(named(t.Context(), "extend"), 30*time.Second))
		time.Sleep(11 * time.Second) // of the bubble: one renewal
		got := make(chan *redlatch.Lock, 1)
		go func() { got <- granted(l.Lock(named(t.Context(), "lock"), "k")) }()
		time.Sleep(time.Second)
		link.refuse()
		require.ErrorIs(t, lock.Extend(named(t.Context(), "extend in vain"), 30*time.Second), redlatch.ErrUnavailable)
		time.Sleep(5 * time.Second)
		link.heal()
		require.NoError(t, lock.Unlock(ended("unlock")))
		lock = <-got
		require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
		require.ErrorIs(t, lock.Unlock(named(t.Context(), "unlock too late")), redlatch.ErrLost)
		fixed := granted(l.Lock(named(t.Context(), "fixed"), "k2", redlatch.WithoutRenewal()))
		<-fixed.Done()
		synctest.Wait() // for the hook
		j.entries["trouble"] = slices.Compact(j.entries["trouble"])
		require.Equal(t, map[string][]string{
			"acquired": {"try", "lock", "fixed"}, "waiting": {"lock"}, "renewed": {"extend", ""},
			"renew failed": {"extend in vain"}, "trouble": {"lock"}, "released": {"unlock"}, "lost": {"unlock too late", ""},
		}, j.entries)
		require.Equal(t, j.entries["acquired"], j.logged["lock acquired"])
		require.Equal(t, j.entries["released"], j.logged["lock released"])
		require.Equal(t, j.entries["lost"], j.logged["lock lost"])
		require.True(t, slices.Contains(j.logged["lock service in trouble"], "lock"))
	})
}

// TestALockDoesNotKeepTheCtxOfItsCall: what the ctx holds of a request that is over can be freed
// while the lock is held.
func TestALockDoesNotKeepTheCtxOfItsCall(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		type request [64]byte
		l := w.locker(t)
		call := func(do func(ctx context.Context) *redlatch.Lock) (*redlatch.Lock, weak.Pointer[request]) {
			r := new(request)
			return do(context.WithValue(t.Context(), callName{}, r)), weak.Make(r)
		}
		freed := func(r weak.Pointer[request]) {
			t.Helper()
			eventually(t, "freed", func() bool { runtime.GC(); time.Sleep(time.Second); return r.Value() == nil })
		}
		tried, r := call(func(ctx context.Context) *redlatch.Lock { return granted(l.TryLock(ctx, "k")) })
		freed(r)
		got := make(chan *redlatch.Lock, 2)
		waits := func() weak.Pointer[request] {
			_, r := call(func(ctx context.Context) *redlatch.Lock {
				go func() { got <- granted(l.Lock(ctx, "k")) }()
				return nil
			})
			time.Sleep(time.Second) // of the bubble
			return r
		}
		leaves, cancel := context.WithCancel(t.Context())
		_, gone := call(func(ctx context.Context) *redlatch.Lock {
			ctx, end := context.WithCancel(ctx)
			context.AfterFunc(leaves, end)
			go func() { _, _ = l.Lock(ctx, "k") }()
			return nil
		})
		time.Sleep(time.Second) // of the bubble
		first, second := waits(), waits()
		cancel()
		freed(gone)
		require.NoError(t, tried.Unlock(t.Context()))
		lock := <-got
		freed(first)
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-got
		freed(second)
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestAdoptIsNoAttempt: not even of a reader, which gets a permit of its own.
func TestAdoptIsNoAttempt(t *testing.T) {
	kinds := withReaders()
	delete(kinds, "Migration") // it cannot adopt
	onEvery(t, kinds, func(t *testing.T, w *world) {
		var h heard
		token := mustLock(t, w.locker(t), "k").Token()
		_, err := w.locker(t, redlatch.WithHooks(redlatch.Hooks{Acquired: h.add})).Adopt(t.Context(), "k", token)
		require.NoError(t, err)
		require.Len(t, h.all(), 1)
		require.Zero(t, h.all()[0].Attempts)
	})
}

// TestAnOutageDoesNotFloodTheLog: many locks are held while Redis is away, and renewals fail again
// and again. Hooks.RenewFailed has each of them. The log has the first of each lock, in one line a
// second: its attributes add up to the number of locks.
func TestAnOutageDoesNotFloodTheLog(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		const locks, outage = 300, 5
		var lines []slog.Record
		var mu sync.Mutex // guards lines
		log := slog.New(handler(func(r slog.Record) {
			mu.Lock()
			defer mu.Unlock()
			if r.Message == "lock renewal failed" {
				lines = append(lines, r)
			}
		}))
		var failed heard
		l, link := w.linked(t, redlatch.WithOpTimeout(500*time.Millisecond), redlatch.WithHooks(redlatch.SlogHooks(log)),
			redlatch.WithHooks(redlatch.Hooks{RenewFailed: failed.add}))
		var held []*redlatch.Lock
		for i := range locks {
			held = append(held, mustLock(t, l, strconv.Itoa(i)))
			time.Sleep(10 * time.Millisecond) // of the bubble
		}
		link.refuse()
		time.Sleep(outage * time.Second)
		link.heal()
		time.Sleep(5 * time.Second) // all were renewed
		require.Greater(t, len(failed.all()), 3*locks)
		require.NotEmpty(t, lines)
		require.LessOrEqual(t, len(lines), outage+1)
		told := 0
		for _, line := range lines {
			require.Equal(t, slog.LevelWarn, line.Level)
			told++
			line.Attrs(func(a slog.Attr) bool {
				if a.Key == "others" {
					told += int(a.Value.Int64())
				}
				return true
			})
		}
		require.Equal(t, locks, told)

		before := len(lines) // the next outage is news
		link.refuse()
		time.Sleep(5 * time.Second)
		link.heal()
		time.Sleep(5 * time.Second)
		require.Greater(t, len(lines), before)
		require.LessOrEqual(t, len(lines), before+outage+1)
		for _, lock := range held {
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// A handler is called with each record of a log.
type handler func(slog.Record)

func (handler) Enabled(context.Context, slog.Level) bool        { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
