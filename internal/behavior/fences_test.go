package behavior_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
)

// registerKey is the fence register of SetNXPX for Lockers without a prefix.
const registerKey = "redlatch:fence"

// fencesOfTick is how many fences a tick of the register has.
const fencesOfTick = 64

// register returns the first fence of the last tick that SetNXPX took on a server, 0 for none. It shows that an attempt was
// carried out, since each raises the register.
func register(t *testing.T, direct *redis.Client) uint64 {
	t.Helper()
	tick, err := direct.Get(t.Context(), registerKey).Uint64()
	require.NoError(t, locktest.IgnoreNil(err))
	return tick * fencesOfTick
}

// isFence reports whether key is a register of SetNXPX or a counter of Redlock, which outlive the locks.
func isFence(key string) bool {
	return strings.HasSuffix(key, registerKey) || strings.Contains(key, "}:fence:")
}

// requireSoundFences fails unless every key has a TTL, and every register and counter is a plain number:
// 1.7e+15 would lose digits.
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
