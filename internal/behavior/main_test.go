package behavior_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// These come from locktest, which the tests of the root and internal/system use too.
var (
	behindProxy  = locktest.BehindProxy
	eventually   = locktest.Eventually
	mustLock     = locktest.MustLock
	newLocker    = locktest.SetNXPX
	newLegacy    = locktest.LegacySetNX
	newMigration = locktest.Migration
	waitInLine   = locktest.WaitInLine
	lastFence    = locktest.Register

	patience = locktest.Patience
	briefly  = locktest.Briefly
	longTTL  = locktest.LongTTL

	// alone has a call stand in a line of its own, as each call does whose options differ from those of the Locker.
	alone = redlatch.WithTTL(11 * time.Second)
)

// newLockerFunc makes a Locker for a test that runs on several strategies.
type newLockerFunc func(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker

// onQueues runs a test on each strategy whose waiters queue.
func onQueues(t *testing.T, test func(t *testing.T, newLocker newLockerFunc)) {
	t.Run("SetNXPX", func(t *testing.T) { test(t, locktest.SetNXPX) })
	t.Run("Semaphore", func(t *testing.T) { test(t, locktest.Mutex) })
}

// commandsOf returns how many commands client has sent from now on.
func commandsOf(client interface{ AddHook(redis.Hook) }) *atomic.Int64 {
	var sent atomic.Int64
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			sent.Add(1)
			return next(ctx, cmd)
		}
	}))
	return &sent
}
