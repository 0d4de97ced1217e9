package behavior_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestZeroLockHasBeenReleased: no method of it panics.
func TestZeroLockHasBeenReleased(t *testing.T) {
	t.Parallel()
	var k redlatch.Lock
	require.Equal(t, []any{"", redlatch.Token(""), uint64(0), time.Time{}}, []any{k.Key(), k.Token(), k.Fence(), k.Until()})
	<-k.Done()
	ctx := k.Context(t.Context())
	<-ctx.Done()
	for what, err := range map[string]error{
		"Err": k.Err(), "Context": context.Cause(ctx), "Extend": k.Extend(t.Context(), time.Second),
		"Unlock": k.Unlock(t.Context()), "UnlockAfter": k.UnlockAfter(t.Context(), time.Second),
	} {
		requireOnly(t, err, redlatch.ErrReleased, what)
	}
	require.ErrorIs(t, k.Extend(nil, 0), redlatch.ErrInvalid)       //nolint:staticcheck // a caller may pass nil
	require.ErrorIs(t, k.Unlock(nil), redlatch.ErrReleased)         //nolint:staticcheck // a caller may pass nil
	require.ErrorIs(t, k.UnlockAfter(ctx, -1), redlatch.ErrInvalid) // as with any other Lock
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		require.NoError(t, mustLock(t, newLocker(t, s.Client(t)), "k").Unlock(k.Context(t.Context())))
		_, err := newLocker(t, s.Client(t)).Lock(k.Context(t.Context()), "k")
		require.ErrorIs(t, err, context.Canceled)
		<-k.Done()
	})
}

// A fake is the Locker of another package, which grants what it has.
type fake struct {
	redlatch.Locker
	lock *redlatch.Lock
}

func (f fake) Lock(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error) {
	return f.lock, nil
}

func (f fake) TryLock(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error) {
	return f.lock, nil
}

// TestLockOfAnotherPackageIsRefused: a fake may return a nil Lock or a zero one. Nothing runs under it.
func TestLockOfAnotherPackageIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		for _, lock := range []*redlatch.Lock{nil, new(redlatch.Lock)} {
			ctx, f := t.Context(), fake{newLocker(t, s.Client(t)), lock}
			one := func(context.Context, *redlatch.Lock) error { return errors.New("it ran") }
			all := func(context.Context, []*redlatch.Lock) error { return errors.New("it ran") }
			keys := []string{"a", "b"}
			ours := newLocker(t, s.Client(t), redlatch.WithKeyPrefix("v2:"))
			from, to := made(redlatch.NewMigration(f, ours)), made(redlatch.NewMigration(ours, f))
			_, lockFrom := from.Lock(ctx, "k")
			_, tryFrom := from.TryLock(ctx, "k")
			_, lockTo := to.Lock(ctx, "k")
			_, tryTo := to.TryLock(ctx, "k")
			for what, err := range map[string]error{
				"Do": redlatch.Do(ctx, f, "k", one), "TryDo": redlatch.TryDo(ctx, f, "k", one), "Lead": redlatch.Lead(ctx, f, "k", one),
				"DoAll": redlatch.DoAll(ctx, f, keys, all), "TryDoAll": redlatch.TryDoAll(ctx, f, keys, all),
				"Lock from": lockFrom, "TryLock from": tryFrom, "Lock to": lockTo, "TryLock to": tryTo,
			} {
				requireOnly(t, err, redlatch.ErrInvalid, what)
				require.ErrorAs(t, err, new(*redlatch.Error), what)
			}
		}
	})
}

// TestErrorsThatATestMakesMatch: a fake returns them, and drives the branch that ours would.
func TestErrorsThatATestMakesMatch(t *testing.T) {
	t.Parallel()
	held, lost, silent := redlatch.ErrNotAcquired, redlatch.ErrLost, errors.New("no reply")
	requireOnly(t, &redlatch.HeldError{Owner: "bob"}, held)
	require.EqualError(t, &redlatch.HeldError{Owner: "bob"}, `held by "bob"`)
	for _, c := range []struct {
		want  error
		need  int
		nodes []error
	}{
		{redlatch.ErrNoQuorum, 0, nil},
		{redlatch.ErrNoQuorum, 2, []error{nil, silent, silent}},
		{redlatch.ErrNoQuorum, 2, []error{held, silent, silent}},
		{held, 2, []error{held, held, silent}},
		{held, 2, []error{&redlatch.HeldError{}, held, nil}},
		{lost, 2, []error{lost, lost, nil}},
	} {
		err := &redlatch.QuorumError{Op: "acquire", Key: "k", Need: c.need, Nodes: c.nodes}
		require.ErrorIs(t, err, c.want, "%v", c.nodes)
		require.NotEmpty(t, err.Error())
		require.Equal(t, errors.Is(c.want, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrUnavailable), "%v", c.nodes)
	}
}
