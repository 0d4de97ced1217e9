package behavior_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// registerKey is the fence register of SetNXPX for Lockers without a prefix.
const registerKey = "redlatch:fence"

// fencesOfTick is how many fences a tick of the register has.
const fencesOfTick = 64

// register returns the first fence of the last tick that SetNXPX took on a server, 0 for none. It
// shows that an attempt was carried out, since each raises the register.
func register(t *testing.T, direct *redis.Client) uint64 {
	t.Helper()
	tick, err := direct.Get(t.Context(), registerKey).Uint64()
	require.NoError(t, locktest.IgnoreNil(err))
	return tick * fencesOfTick
}

// isFence reports whether key is a register of SetNXPX or a counter of Redlock, which outlive the
// locks.
func isFence(key string) bool {
	return strings.HasSuffix(key, registerKey) || strings.Contains(key, "}:fence:")
}

// requireSoundFences fails unless every key has a TTL, and every register and counter is a plain
// number: 1.7e+15 would lose digits.
func requireSoundFences(t *testing.T, direct *redis.Client) {
	t.Helper()
	for _, key := range direct.Keys(t.Context(), "*").Val() {
		// -1 is no TTL. -2 is a key that is gone already.
		require.NotEqual(t, int64(-1), int64(direct.PTTL(t.Context(), key).Val()), key)
		if isFence(key) {
			_, err := strconv.ParseUint(direct.Get(t.Context(), key).Val(), 10, 64)
			require.NoError(t, err)
		}
	}
}

// TestFencesOfOneNodeGrow: if the register is deleted or loses what a failover would lose, the
// clock of the server keeps the fences growing. This holds for each operation that issues a fence:
// a grant, Adopt and a hand-over.
func TestFencesOfOneNodeGrow(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		l := w.locker(t, longTTL, redlatch.WithoutRenewal())
		var last uint64
		for what, lose := range map[string]func() error{
			"evicted": func() error { return w.Direct.Del(t.Context(), registerKey).Err() },
			"without a second of increments, as after a failover": func() error {
				<-time.After(15 * time.Millisecond) // no failover is faster
				return w.Direct.DecrBy(t.Context(), registerKey, 250_000).Err()
			},
		} {
			grows := func(lock *redlatch.Lock) {
				t.Helper()
				require.Greater(t, lock.Fence(), last, what)
				requireSoundFences(t, w.Direct)
				last = register(t, w.Direct)
				require.NoError(t, lose())
			}
			for range 3 {
				lock := mustLock(t, l, "k")
				grows(lock)
				adopted, err := l.Adopt(t.Context(), "k", lock.Token())
				require.NoError(t, err)
				grows(adopted)
				got := waitInLine(t, l, "k", alone)
				require.NoError(t, adopted.Unlock(t.Context()))
				next := await(t, got, "the hand-over")
				grows(next)
				require.NoError(t, next.Unlock(t.Context()))
			}
		}
		onlyFences(t, w.Direct)
	})
}

// TestHandOverWithoutAFenceLocksNothing: a release that cannot mint a fence for the next waiter
// deletes the key. The waiter reports why it is not served, and is served once the register is
// deleted.
func TestHandOverWithoutAFenceLocksNothing(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		var troubles heard
		l := w.locker(t, longTTL)
		holder := mustLock(t, l, "k")
		got := waitInLine(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Trouble: troubles.add}), alone)
		require.NoError(t, w.Direct.Set(t.Context(), registerKey, "a shopping list", time.Hour).Err())
		require.NoError(t, holder.Unlock(t.Context()))
		eventually(t, "the waiter reports it", func() bool { return len(troubles.all()) > 0 })
		require.ErrorContains(t, troubles.all()[0].Err, "redlatch:fence holds something else")
		require.Zero(t, w.Direct.Exists(t.Context(), "k").Val())
		require.Equal(t, "a shopping list", w.Direct.Get(t.Context(), registerKey).Val())
		require.Empty(t, got)

		require.NoError(t, w.Direct.Del(t.Context(), registerKey).Err())
		lock := await(t, got, "it is served")
		require.Greater(t, lock.Fence(), holder.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}
