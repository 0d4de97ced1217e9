package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/redlatchtest"
)

// ofTheCall are the errors by which callers see that fn was not called.
var ofTheCall = []error{redlatch.ErrNotAcquired, redlatch.ErrUnavailable, redlatch.ErrNoQuorum, redlatch.ErrNotReplicated}

// requireOfFunc requires that err is an error of fn and none of the call. It returns what fn returned.
func requireOfFunc(t *testing.T, err error, msg ...any) error {
	t.Helper()
	require.Error(t, err, msg...)
	for _, of := range ofTheCall {
		require.NotErrorIs(t, err, of, msg...)
	}
	require.False(t, errors.As(err, new(*redlatch.HeldError)), msg...)
	require.False(t, errors.As(err, new(*redlatch.QuorumError)), msg...)
	require.False(t, errors.As(err, new(*redlatch.Error)), msg...)
	var ofFunc *redlatch.FuncError
	require.ErrorAs(t, err, &ofFunc, msg...)
	require.EqualError(t, ofFunc, ofFunc.Err.Error(), msg...)
	return ofFunc.Err
}

// TestErrorOfFnIsNoneOfTheCall: fn fails by a lock of its own, of the same Locker or another, by a
// kept key, by another Redis that is away, or by an UnlockAfter without a reply. The call does not
// say that its own key was refused, or that fn was not called. What fn returned is in the error.
func TestErrorOfFnIsNoneOfTheCall(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, link := w.linked(t, longTTL)
		other, away := w.linked(t)
		away.refuse()
		simple := newLocker(t, w.Client(t))
		third := mustLock(t, w.locker(t), "held", longTTL)
		require.NoError(t, mustLock(t, simple, "kept").UnlockAfter(t.Context(), time.Hour))
		nodes := []redis.UniversalClient{w.Client(t), locktest.NodeOf(t, w.Site, 1).Client(t)}
		for _, node := range nodes {
			linkOf(t, node).refuse()
		}
		dead, err := redlatch.NewRedlock(nodes, patience)
		require.NoError(t, err)
		do := func(l redlatch.Locker, key string) withOne {
			return func(ctx context.Context, _ *redlatch.Lock) error {
				return redlatch.TryDo(ctx, l, key, never[*redlatch.Lock](t))
			}
		}
		for what, c := range map[string]struct {
			fn   withOne
			want error
		}{
			"a key of the same Locker": {func(ctx context.Context, _ *redlatch.Lock) error {
				_, err := l.TryLock(ctx, "held")
				return err
			}, redlatch.ErrNotAcquired},
			"a nested call":                   {do(l, "held"), redlatch.ErrNotAcquired},
			"a nested call of another Locker": {do(w.locker(t), "held"), redlatch.ErrNotAcquired},
			"a kept key":                      {do(simple, "kept"), redlatch.ErrNotAcquired},
			"another Redis that is away":      {do(other, "k"), redlatch.ErrUnavailable},
			"a quorum that is away":           {do(dead, "k"), redlatch.ErrNoQuorum},
			"no replica":                      {func(context.Context, *redlatch.Lock) error { return redlatch.ErrNotReplicated }, redlatch.ErrNotReplicated},
			"a release without a reply": {func(ctx context.Context, lock *redlatch.Lock) error {
				link.refuse()
				return lock.Unlock(ctx)
			}, redlatch.ErrUnavailable},
			"a key of several": {func(ctx context.Context, _ *redlatch.Lock) error {
				return redlatch.TryDoAll(ctx, l, []string{"free", "held"}, never[[]*redlatch.Lock](t))
			}, redlatch.ErrNotAcquired},
		} {
			for name, call := range doers() {
				var returned error
				err := call(bounded(t), l, "k of "+what+name, func(ctx context.Context, lock *redlatch.Lock) error {
					returned = fmt.Errorf("fn: %w", c.fn(ctx, lock))
					return returned
				})
				link.heal()
				require.Same(t, returned, requireOfFunc(t, err, what, name), "%s: %s", what, name)
				require.ErrorIs(t, returned, c.want, what)
				require.EqualError(t, err, returned.Error(), what)
			}
		}
		require.NoError(t, third.Unlock(t.Context()))
	})
}

// TestErrorOfFnIsNoneOfLead: the error that Hooks.Trouble reports for fn matches none of the call, either.
func TestErrorOfFnIsNoneOfLead(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		var troubles heard
		l := w.locker(t, redlatch.WithHooks(redlatch.Hooks{Trouble: troubles.add}))
		held, terms := mustLock(t, w.locker(t), "held", longTTL), 0
		err := redlatch.Lead(bounded(t), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
			if terms++; terms > 1 {
				return errors.Join(redlatch.ErrUnavailable, redlatch.ErrStop)
			}
			return redlatch.TryDo(ctx, l, "held", never[*redlatch.Lock](t))
		})
		require.NoError(t, err)
		require.Len(t, troubles.all(), 1)
		require.ErrorIs(t, requireOfFunc(t, troubles.all()[0].Err), redlatch.ErrNotAcquired)
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestFuncErrorHidesNothingElse: a caller finds its own errors in what fn returned, and that a lock
// was lost.
func TestFuncErrorHidesNothingElse(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		mine, l := errors.New("no paper"), newLocker(t, s.Client(t))
		held := fmt.Errorf("%w: %w", &redlatch.HeldError{Owner: "bob"}, &redlatch.QuorumError{Nodes: make([]error, 1)})
		for name, do := range doers() {
			err := do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error {
				return errors.Join(held, fmt.Errorf("get: %w", &url.Error{Op: "Get", URL: "x", Err: mine}), redlatch.ErrLost, context.Canceled)
			})
			inner := requireOfFunc(t, err, name)
			for _, seen := range []error{mine, redlatch.ErrLost, context.Canceled} {
				require.ErrorIs(t, err, seen, name)
			}
			require.ErrorAs(t, err, new(*url.Error), name)
			require.ErrorAs(t, inner, new(*redlatch.HeldError), name)
			require.ErrorAs(t, inner, new(*redlatch.QuorumError), name)

			for _, own := range []error{mine, redlatch.ErrLost, redlatch.ErrReleased, redlatch.ErrMaxHold, fmt.Errorf("%w", redlatch.ErrInvalid), nil} {
				require.True(t, own == do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error { return own }), "%s: %v", name, own) //nolint:errorlint // the same error
			}
		}
		require.EqualError(t, new(redlatch.FuncError), "unknown error")
		require.NotErrorIs(t, new(redlatch.FuncError), mine)
	})
}

// TestLossBesideErrorOfFn: the lock was lost, and fn failed by another one. The error matches the
// loss, of the key that was lost, and nothing of the other lock.
func TestLossBesideErrorOfFn(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l := w.locker(t)
		held := mustLock(t, w.locker(t), "held", longTTL)
		for name, do := range doers() {
			for _, waits := range []bool{true, false} { // until fn's ctx says so
				err := do(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
					refused := redlatch.TryDo(ctx, l, "held", never[*redlatch.Lock](t))
					require.NoError(t, w.Direct.Del(ctx, "k").Err())
					if waits {
						<-ctx.Done()
						return errors.Join(refused, context.Cause(ctx))
					}
					return refused
				})
				require.ErrorIs(t, err, redlatch.ErrLost, name)
				for _, of := range ofTheCall {
					require.NotErrorIs(t, err, of, name)
				}
				require.ErrorAs(t, err, new(*redlatch.FuncError), name)
				var lost *redlatch.Error
				require.ErrorAs(t, err, &lost, name)
				require.Equal(t, "k", lost.Key, name)
			}
		}
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestCallThatDoesNotCallFnSaysSo: what a call returns of itself is no FuncError, and names the key,
// also if the ctx ended because of another call's fn, and behind a decorator.
func TestCallThatDoesNotCallFnSaysSo(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l := w.locker(t)
		held := mustLock(t, w.locker(t), "b", longTTL)
		ended, end := context.WithCancelCause(t.Context())
		end(fmt.Errorf("a group: %w", &redlatch.FuncError{Err: redlatch.ErrNotAcquired}))
		for name, do := range doingAll {
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			err := do(brief, &moody{Locker: l}, []string{"c", "b", "a"}, never[[]*redlatch.Lock](t))
			cancel()
			require.ErrorIs(t, err, redlatch.ErrNotAcquired, name)
			var refused *redlatch.Error
			require.ErrorAs(t, err, &refused, name)
			require.Equal(t, "b", refused.Key, name)
			require.Equal(t, map[string]string{"DoAll": "do all", "TryDoAll": "try do all"}[name], refused.Op)
			require.False(t, errors.As(err, new(*redlatch.FuncError)), name)
		}
		for name, do := range doers() {
			err := do(ended, l, "k", never[*redlatch.Lock](t))
			require.ErrorIs(t, err, context.Canceled, name)
			require.ErrorContains(t, err, "a group: ", name)
			require.False(t, errors.As(err, new(*redlatch.FuncError)), name)
		}
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestPanicBehindRefusalGoesOn: fn panics with the error of another lock. It stays what it is.
func TestPanicBehindRefusalGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newLocker(t, s.Client(t))
		held := mustLock(t, newLocker(t, s.Client(t)), "held", longTTL)
		calls := doers()
		calls["Lead"] = redlatch.Lead
		for name, do := range calls {
			var refused error
			require.PanicsWithValue(t, &refused, func() {
				_ = do(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
					refused = redlatch.TryDo(ctx, l, "held", never[*redlatch.Lock](t))
					panic(&refused)
				})
			}, name)
			require.ErrorIs(t, refused, redlatch.ErrNotAcquired)
			gone(t, s.Direct, "k", "k b", "k c")
		}
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestEveryErrorHasOpAndKey: every call returns an Error, with the key as its caller named it.
func TestEveryErrorHasOpAndKey(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l, link := w.linked(t, redlatch.WithKeyPrefix("app:"))
		lock := mustLock(t, l, "k")
		second := mustLock(t, l, "other")
		require.NoError(t, second.Unlock(t.Context()))
		link.refuse()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fn := never[*redlatch.Lock](t)
		_, waited := l.Lock(brief, "k")
		_, tried := l.TryLock(t.Context(), "k")
		_, adopted := l.Adopt(t.Context(), "k", "stranger")
		_, seen := l.Inspect(t.Context(), "k")
		_, migrated := redlatch.NewMigration(l, nil)
		errs := map[string]error{
			"lock": waited, "try lock": tried, "adopt": adopted, "inspect": seen, "extend": lock.Extend(t.Context(), time.Minute),
			"forget": redlatch.Forget(t.Context(), l, "k"), "unlock": second.Unlock(t.Context()), "new migration": migrated,
			"do": redlatch.Do(t.Context(), l, "k", nil), "try do": redlatch.TryDo(t.Context(), l, "k", fn),
			"lead":       redlatch.Lead(brief, l, "k", fn),
			"try do all": redlatch.TryDoAll(t.Context(), l, []string{"k"}, never[[]*redlatch.Lock](t)),
		}
		for op, err := range errs {
			var e *redlatch.Error
			require.True(t, errors.As(err, &e), op)
			require.True(t, err == error(e), op) //nolint:errorlint // it is one, and not in another error
			require.Equal(t, op, e.Op)
			want := map[string]string{"new migration": "", "unlock": "other"}
			if key, is := want[op]; is {
				require.Equal(t, key, e.Key)
			} else {
				require.Equal(t, "k", e.Key, op)
			}
		}
		link.heal()
		_ = lock.Unlock(t.Context())
		require.EqualError(t, &redlatch.Error{Op: "lock", Key: "k"}, `redlatch: lock "k": unknown error`)
	})
}

// TestFakesRefuseAsLockersDo: what a fake of redlatchtest refuses is an error of the call, and inside
// of fn one of fn.
func TestFakesRefuseAsLockersDo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, _ *locktest.Site) {
		l := redlatchtest.NewLocker(t)
		l.Hold("held")
		requireOnly(t, redlatch.TryDo(t.Context(), l, "held", never[*redlatch.Lock](t)), redlatch.ErrNotAcquired)
		err := redlatch.TryDo(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
			return redlatch.TryDo(ctx, l, "held", never[*redlatch.Lock](t))
		})
		_ = requireOfFunc(t, err)
	})
}
