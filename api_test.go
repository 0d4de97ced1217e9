package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestAPI: programs that use every exported name compile, with these types. Nothing here is called.
func TestAPI(t *testing.T) {
	type (
		ctx      = context.Context
		client   = redis.UniversalClient
		opt      = redlatch.Option
		options  = []opt
		lock     = *redlatch.Lock
		locker   = redlatch.Locker
		election = *redlatch.Election
		one      = func(ctx, lock) error
		all      = func(ctx, []lock) error
	)
	//nolint:staticcheck // the types are what the test is about
	var (
		_ func(client, ...opt) (locker, error)                            = redlatch.NewLegacySetNX
		_ func(client, ...opt) (locker, error)                            = redlatch.NewSetNXPX
		_ func([]client, ...opt) (locker, error)                          = redlatch.NewRedlock
		_ func(from, to locker) (locker, error)                           = redlatch.NewMigration
		_ func(client, int, ...opt) (locker, error)                       = redlatch.NewSemaphore
		_ func(client, ...opt) (read, write locker, err error)            = redlatch.NewReadWrite
		_ func(ctx, locker, string, one, ...opt) error                    = redlatch.Do
		_ func(ctx, locker, string, one, ...opt) error                    = redlatch.TryDo
		_ func(ctx, locker, []string, all, ...opt) error                  = redlatch.DoAll
		_ func(ctx, locker, []string, all, ...opt) error                  = redlatch.TryDoAll
		_ func(ctx, locker, string, one, ...opt) error                    = redlatch.Lead
		_ func(locker, string, ...opt) (election, error)                  = redlatch.NewElection
		_ func(election, ctx, one) error                                  = (*redlatch.Election).Run
		_ func(election) bool                                             = (*redlatch.Election).Leading
		_ func(election) (owner string, known bool)                       = (*redlatch.Election).Leader
		_ func(ctx, redlatch.Locker) error                                = redlatch.Drain
		_ func(ctx, locker, string) error                                 = redlatch.Forget
		_ func(locker, ctx, string, ...opt) (lock, error)                 = redlatch.Locker.Lock
		_ func(locker, ctx, string, ...opt) (lock, error)                 = redlatch.Locker.TryLock
		_ func(locker, ctx, string) (redlatch.Status, error)              = redlatch.Locker.Inspect
		_ func(locker, ctx, string, redlatch.Token, ...opt) (lock, error) = redlatch.Locker.Adopt
		_ func(lock) string                                               = (*redlatch.Lock).Key
		_ func(lock) redlatch.Token                                       = (*redlatch.Lock).Token
		_ func(lock) uint64                                               = (*redlatch.Lock).Fence
		_ func(lock) time.Time                                            = (*redlatch.Lock).Until
		_ func(lock) <-chan struct{}                                      = (*redlatch.Lock).Done
		_ func(lock) error                                                = (*redlatch.Lock).Err
		_ func(lock, ctx) ctx                                             = (*redlatch.Lock).Context
		_ func(lock, ctx, time.Duration) error                            = (*redlatch.Lock).Extend
		_ func(lock, ctx) error                                           = (*redlatch.Lock).Unlock
		_ func(lock, ctx, time.Duration) error                            = (*redlatch.Lock).UnlockAfter

		hook = func(ctx, redlatch.Event) {}
	)
	_ = options{
		redlatch.WithTTL(time.Second), redlatch.WithoutRenewal(), redlatch.WithMaxHold(0), redlatch.WithMinHold(0),
		redlatch.WithOwner(""), redlatch.WithoutQueue(), redlatch.WithOpTimeout(time.Second),
		redlatch.WithPollInterval(time.Millisecond, time.Second), redlatch.WithKeyPrefix(""), redlatch.WithGrace(0),
		redlatch.WithMaxWait(0), redlatch.WithLimit(1), redlatch.WithReplicas(1, time.Second),
		redlatch.WithHooks(redlatch.SlogHooks(nil)),
	}
	_ = redlatch.Hooks{
		Acquired: hook, Waiting: hook, Moved: hook, Renewed: hook, RenewFailed: hook, Lost: hook, Released: hook, Degraded: hook, Trouble: hook,
	}
	_ = redlatch.Event{
		Strategy: redlatch.StrategySetNXPX, Key: "", Owner: "", Fence: 0, Lead: false, Attempts: 0, Elapsed: 0, Took: 0, Renewal: false,
		Err: nil, Node: "", Cause: redlatch.CauseTimeout,
	}
	_ = redlatch.Status{
		Held: true, Kept: false, Token: "", Owner: "", Since: time.Time{}, TTL: 0, Waiters: 0, Queue: []redlatch.Waiter{{Owner: "", Waited: 0}}, Holders: 0,
		Holding: []redlatch.Holder{{Owner: "", Token: "", Since: time.Time{}, TTL: 0, Writes: false}},
	}
	for _, err := range []error{
		redlatch.ErrNotAcquired, redlatch.ErrLost, redlatch.ErrMaxHold, redlatch.ErrReleased, redlatch.ErrNoQuorum,
		redlatch.ErrNotReplicated, redlatch.ErrInvalid, redlatch.ErrStop, redlatch.ErrUnavailable,
		&redlatch.QuorumError{Op: "", Key: "", Need: 0, Nodes: nil}, &redlatch.FuncError{Err: errors.New("fn")},
		&redlatch.HeldError{Key: "", Owner: "", Since: time.Time{}, TTL: 0, Kept: false}, &redlatch.Error{Op: "", Key: "", Err: nil},
	} {
		require.NotEmpty(t, err.Error())
	}
	require.Equal(t, []redlatch.Strategy{"setnxpx", "redlock", "legacysetnx", "semaphore", "read", "write"}, []redlatch.Strategy{
		redlatch.StrategySetNXPX, redlatch.StrategyRedlock, redlatch.StrategyLegacySetNX, redlatch.StrategySemaphore,
		redlatch.StrategyRead, redlatch.StrategyWrite,
	})
	require.Equal(t, []redlatch.Cause{"fn", "timeout", "connection", "quorum", "replicas", "slow", "panic", "error"}, []redlatch.Cause{
		redlatch.CauseFunc, redlatch.CauseTimeout, redlatch.CauseConnection, redlatch.CauseQuorum, redlatch.CauseReplicas,
		redlatch.CauseSlow, redlatch.CausePanic, redlatch.CauseError,
	})
}
