package behavior_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/ahead"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestHolderIsNamed: after a refusal, and after a wait that ctx ended, HeldError has the owner and
// the remaining TTL of the last look, wherever the waiter is in the queue. The text names the owner
// once. Inspect reports it too. The key of LegacySetNX has no room for an owner, so its HeldError
// has none.
func TestHolderIsNamed(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		requireHeld := func(err error, owner string, ttl time.Duration) {
			t.Helper()
			requireOnly(t, err, redlatch.ErrNotAcquired)
			var held *redlatch.HeldError
			require.ErrorAs(t, err, &held)
			require.InDelta(t, ttl, held.TTL, float64(time.Minute))
			if w.name == "LegacySetNX" {
				owner = ""
			} else {
				require.Equal(t, 1, strings.Count(err.Error(), fmt.Sprintf("held by %q", owner)), err)
			}
			require.Equal(t, owner, held.Owner)
		}
		owner := func(want string) {
			t.Helper()
			st, err := w.locker(t).Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, want, st.Owner)
		}
		lock := mustLock(t, w.locker(t, longTTL, redlatch.WithOwner("Zürich 7/pid 12"), redlatch.WithoutRenewal()), "k")
		require.True(t, strings.HasPrefix(strings.TrimPrefix(string(lock.Token()), "!"), "Zürich 7/pid 12/"))
		owner("Zürich 7/pid 12")
		_, err := w.locker(t).TryLock(t.Context(), "k")
		requireHeld(err, "Zürich 7/pid 12", time.Hour)
		requireHeld(locktest.WaitInVain(t, w.locker(t), "k"), "Zürich 7/pid 12", time.Hour)

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		left := make(chan error)
		l := w.locker(t)
		for _, l := range []redlatch.Locker{l, l, w.locker(t)} {
			go func() { _, err := l.Lock(ctx, "k"); left <- err }() // ends with ctx
		}
		time.Sleep(time.Second)
		switch next := "b/" + uuid.NewString(); w.name { // the key changes hands
		case "Semaphore", "Write":
			w.Direct.ZRem(t.Context(), "k", string(lock.Token()))
			w.Direct.ZAdd(t.Context(), "k", redis.Z{Score: float64(ahead.Now().Add(20 * time.Minute).UnixMicro()), Member: next})
		case "LegacySetNX":
			w.Direct.Set(t.Context(), "k", ahead.Now().Add(20*time.Minute).Unix(), 0)
		default:
			w.Direct.Set(t.Context(), "k", next, 20*time.Minute)
		}
		for range 3 {
			requireHeld(<-left, "b", 20*time.Minute)
		}
		require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
		owner("")

		l = w.locker(t, redlatch.WithOwner("first"))
		lock = mustLock(t, l, "k")
		next := make(chan *redlatch.Lock)
		locking(t, next, l, "k", redlatch.WithOwner("second one"))
		time.Sleep(time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-next
		owner("second one") // after a hand-over too
		require.NoError(t, lock.Unlock(t.Context()))
		for _, name := range []string{"two\nlines", strings.Repeat("x", 201), "\x7f"} {
			_, err := w.make(w.Direct, redlatch.WithOwner(name))
			requireOnly(t, err, redlatch.ErrInvalid)
			require.ErrorContains(t, err, "WithOwner(")
		}
	})
}

// TestUnavailableIsNoHolder: while Redis hangs, refuses connections or loads its data, the error of
// each call matches ErrUnavailable and no refusal, and says why. It comes when ctx ends, and with
// the op timeout. No error matches the end of a ctx that has not ended.
func TestUnavailableIsNoHolder(t *testing.T) {
	const timeout = 300 * time.Millisecond
	for name, f := range map[string]struct {
		inject func(l *link)
		text   string
	}{
		"hung":    {(*link).hang, "no reply"},
		"refused": {(*link).refuse, "connection refused"},
		"loading": {func(l *link) { l.answer("LOADING Redis is loading the dataset in memory") }, "LOADING"},
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, everyLocker(), func(t *testing.T, w *world) {
				var troubles heard
				l, link := w.linked(t, longTTL, redlatch.WithOpTimeout(timeout), redlatch.WithOwner("api-7"), redlatch.WithHooks(redlatch.Hooks{
					Trouble: func(ctx context.Context, e redlatch.Event) {
						if e.Node == "" { // not that of a node
							troubles.add(ctx, e)
						}
					},
				}))
				lock := mustLock(t, l, "held")
				calls := map[string]func(ctx context.Context) error{
					"TryLock": func(ctx context.Context) error { _, err := l.TryLock(ctx, "k"); return err },
					"Lock":    func(ctx context.Context) error { _, err := l.Lock(ctx, "k"); return err },
					"Inspect": func(ctx context.Context) error { _, err := l.Inspect(ctx, "k"); return err },
					"Extend":  func(ctx context.Context) error { return lock.Extend(ctx, 2*time.Hour) },
				}
				if w.name != "Migration" {
					calls["Adopt"] = func(ctx context.Context) error { _, err := l.Adopt(ctx, "k", "!token"); return err } // a writer may have it
				}
				for name, do := range doers() {
					calls[name] = func(ctx context.Context) error { return do(ctx, l, "k", never[*redlatch.Lock](t)) }
				}
				f.inject(link)
				begin := time.Now()
				for call, do := range calls {
					began := time.Now()
					err := do(t.Context())
					requireOnly(t, err, redlatch.ErrUnavailable, call)
					require.ErrorContains(t, err, f.text, call)
					require.NotErrorIs(t, err, context.Canceled, call)
					require.LessOrEqual(t, time.Since(began), 2*timeout, call) // a failed attempt is released, which takes as long again
					ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
					began = time.Now()
					err = do(ctx)
					requireOnly(t, err, redlatch.ErrUnavailable, call)
					require.ErrorIs(t, err, context.DeadlineExceeded, call)
					require.LessOrEqual(t, time.Since(began), timeout/2, call)
					require.NotErrorIs(t, do(ctx), redlatch.ErrUnavailable, "ctx had ended before the call")
					cancel()
				}
				require.NotEmpty(t, troubles.all()) // also of calls that return the error
				require.LessOrEqual(t, len(troubles.all()), 3*(2+int(time.Since(begin)/time.Second)), "a cause is reported once a second")
				for _, e := range troubles.all() {
					require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
					require.Equal(t, "api-7", e.Owner)
					require.NotEmpty(t, e.Cause)
				}
				requireOnly(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
				require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
				link.heal()
				time.Sleep(time.Minute)
				onlyFences(t, w.Direct)
			})
		})
	}
}

// TestWaitThroughAnOutageIsReported: Redis falls silent while callers wait. Hooks.Trouble reports
// that at most once a second, and the waiters do not spin. A ctx that ends then has the trouble in
// its error, and is no conflict. The others go on, and are served.
func TestWaitThroughAnOutageIsReported(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		var troubles heard
		l, link := w.linked(t, redlatch.WithOpTimeout(200*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{Trouble: func(ctx context.Context, e redlatch.Event) {
			if e.Node == "" {
				troubles.add(ctx, e)
			}
		}}))
		ctx, leave := context.WithCancel(t.Context())
		left, served := make(chan error), make(chan error)
		go func() { _, err := l.Lock(ctx, "k"); left <- err }() // ends with ctx
		go func() {                                             // ends when it was served
			lock, err := l.Lock(t.Context(), "k")
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			served <- err
		}()
		time.Sleep(time.Second)
		link.hang()
		begin := time.Now()
		eventually(t, "three errors are reported", func() bool { return len(troubles.all()) >= 3 })
		require.GreaterOrEqual(t, time.Since(begin), 2*time.Second)
		cause := "timeout"
		if w.name == "Redlock" {
			cause = "quorum"
		}
		for _, e := range troubles.all() {
			require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
			require.Equal(t, []any{redlatch.Cause(cause), redlatch.Strategy(strings.ToLower(w.name)), "k"}, []any{e.Cause, e.Strategy, e.Key})
			require.Less(t, e.Attempts, 100)
		}
		leave()
		err := <-left
		requireOnly(t, err, redlatch.ErrUnavailable)
		require.Equal(t, w.name == "Redlock", errors.Is(err, redlatch.ErrNoQuorum))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "no reply within 200ms")
		link.heal()
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, <-served)
	})
}

// TestLossSaysWhy: Err says what became of the lock, and Unlock says the same.
func TestLossSaysWhy(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		for want, c := range map[string]struct {
			opts   []redlatch.Option
			inject func(link *link)
		}{
			"lock lost.*the key is gone":                                                      {nil, func(*link) { require.NoError(t, w.Direct.Del(t.Context(), "k").Err()) }},
			"another owner has|the key holds something else":                                  {nil, func(*link) { require.NoError(t, w.Direct.Set(t.Context(), "k", "4102444800", 0).Err()) }},
			`lock lost: expired: not extended since \d\d:\d\d:\d\d\.\d{3}: .*no reply within`: {nil, (*link).hang},
			`lock lost: expired$`:                                                             {[]redlatch.Option{redlatch.WithoutRenewal()}, func(*link) {}},
		} {
			l, link := w.linked(t, append(c.opts, redlatch.WithTTL(3*time.Second), redlatch.WithOpTimeout(time.Second))...)
			lock := mustLock(t, l, "k")
			c.inject(link)
			<-lock.Done()
			requireOnly(t, lock.Err(), redlatch.ErrLost)
			require.Regexp(t, want, lock.Err().Error())
			require.Same(t, lock.Err(), lock.Err(), "Err always returns the same error")
			link.heal()
			require.ErrorContains(t, lock.Unlock(t.Context()), strings.TrimPrefix(lock.Err().Error(), "redlatch: "))
			require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
		}
	})
}

// TestClosedClientEndsWaits: a closed client stays closed, so nobody waits on it, and Lead returns.
func TestClosedClientEndsWaits(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		client := w.Client(t)
		l := w.over(t, client)
		ended := make(chan error)
		for range 20 {
			go func() { _, err := l.Lock(t.Context(), "k"); ended <- err }() // the test waits for its error
		}
		time.Sleep(time.Second)
		require.NoError(t, client.Close())
		for range 20 {
			require.ErrorContains(t, await(t, ended, "a caller waits on a closed client"), "client is closed")
		}
		require.ErrorContains(t, redlatch.Lead(bounded(t), l, "k", never[*redlatch.Lock](t)), "client is closed")
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestHooksAndLogs: each transition has its line in the log. A release that Redis did not confirm
// is logged at Warn. The line of a call that starts to wait has the name of the holder, if it is
// known. The hooks of a call are added to those of its Locker. No event and no line has a token. A
// refusal, a lost lock, an invalid option and a ctx that ends before Redis had time to answer are
// no failures of Redis, so Hooks.Trouble does not report them.
func TestHooksAndLogs(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		var log bytes.Buffer
		var all, call, troubles heard
		l, link := w.linked(t, redlatch.WithOwner("api-7"),
			redlatch.WithHooks(redlatch.SlogHooks(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))),
			redlatch.WithHooks(redlatch.Hooks{Acquired: all.add, Renewed: all.add, Released: all.add, Lost: all.add, Trouble: troubles.add}))
		released := mustLock(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Acquired: call.add}))
		require.NoError(t, released.Extend(t.Context(), time.Hour))
		log.Reset()
		require.ErrorIs(t, locktest.WaitInVain(t, l, "k"), redlatch.ErrNotAcquired)
		holder := ` holder=api-7`
		if w.name == "LegacySetNX" {
			holder = ""
		}
		require.Regexp(t, `^\S+ level=DEBUG msg="waiting for lock" strategy=[a-z]+ key=k owner=api-7 attempts=\d( elapsed=\S+)?`+holder+`\n`, log.String())
		require.NoError(t, released.Unlock(t.Context()))
		require.Regexp(t, `level=DEBUG msg="lock released" strategy=[a-z]+ key=k `, log.String())
		lost, unconfirmed := mustLock(t, l, "k2"), mustLock(t, l, "k3", redlatch.WithoutRenewal())
		require.NoError(t, w.Direct.Del(t.Context(), "k2").Err())
		require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)
		_, err := l.Adopt(t.Context(), "k2", "token")
		requireOnly(t, err, redlatch.ErrLost)
		_, err = l.TryLock(t.Context(), "")
		requireOnly(t, err, redlatch.ErrInvalid)
		link.hang()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err = l.TryLock(ctx, "k2")
		requireOnly(t, err, redlatch.ErrUnavailable)
		require.Empty(t, troubles.all())
		link.refuse()
		require.ErrorIs(t, unconfirmed.Unlock(t.Context()), redlatch.ErrUnavailable)
		link.heal()
		require.Regexp(t, `level=WARN msg="lock release not confirmed" strategy=[a-z]+ key=k3 .*error=".+"`, log.String())
		require.Equal(t, 1, strings.Count(log.String(), "lock released"))
		require.Contains(t, log.String(), "lock lost")
		require.Len(t, call.all(), 1)
		require.Equal(t, []string{"k", "k2", "k3", "k2", "k3"}, orderOf(all.all()))
		for _, lock := range []*redlatch.Lock{released, lost, unconfirmed} {
			secret := strings.TrimPrefix(string(lock.Token()), "api-7/")
			require.NotContains(t, log.String(), secret)
			require.NotContains(t, fmt.Sprintf("%+v", all.all()), secret)
		}
	})
}
