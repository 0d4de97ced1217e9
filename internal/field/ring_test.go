package field_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// toRing returns how to connect to a Ring of these shards, with beat as its HeartbeatFn: nil is
// go-redis' own.
func toRing(shards map[string]string, beat func(context.Context, *redis.Client) bool) connector {
	return func(t *testing.T) redis.UniversalClient {
		return locktest.Closing(t, redis.NewRing(&redis.RingOptions{
			Addrs: shards, HeartbeatFn: beat, HeartbeatFrequency: 20 * time.Millisecond,
			DialerRetries: 1, // so that the client soon notices a shard that is down
		}))
	}
}

// alwaysUp keeps every key on its shard, even if the shard is down.
func alwaysUp(context.Context, *redis.Client) bool { return true }

// on returns a key that lies on a server.
func on(t *testing.T, s *redistest.Server, ring redis.UniversalClient) string {
	t.Helper()
	for i := range 100 {
		key := fmt.Sprintf("key-%d", i)
		require.NoError(t, ring.Set(t.Context(), key, "", time.Minute).Err())
		here := s.Client(t).Exists(t.Context(), key).Val() == 1
		require.NoError(t, ring.Del(t.Context(), key).Err())
		if here {
			return key
		}
	}
	require.Fail(t, "no key lies there")
	return ""
}

// TestRingMovesKeysOfAShardItCannotReach: each client moves the keys by itself, and the shard
// forgets nothing. So a client that was cut off from a shard for three heartbeats acquires, on
// another shard, a lock that is still held on the first. There are two owners until one of the
// locks ends.
func TestRingMovesKeysOfAShardItCannotReach(t *testing.T) {
	t.Parallel()
	a, b := redistest.StartTCP(t), redistest.StartTCP(t)
	p := faultproxy.New(t, a.Network(), a.Addr())
	near := toRing(map[string]string{"a": a.Addr(), "b": b.Addr()}, alwaysUp)(t)
	far := map[string]string{"a": p.Addr(), "b": b.Addr()}
	key, up := on(t, a, near), on(t, b, near)
	lock := locktest.MustLock(t, locktest.SetNXPX(t, near), key)
	moves, stays := locktest.SetNXPX(t, toRing(far, nil)(t), locktest.Briefly), locktest.SetNXPX(t, toRing(far, alwaysUp)(t), locktest.Briefly)
	for _, l := range []redlatch.Locker{moves, stays} {
		require.ErrorIs(t, locktest.WaitInVain(t, l, key), redlatch.ErrNotAcquired)
	}
	p.Refuse()
	second := locktest.LockSoon(t, moves, key)
	require.NoError(t, second.Err())
	require.NoError(t, lock.Err(), "two owners")
	require.NoError(t, lock.Extend(t.Context(), time.Minute), "the first owner never notices")
	_, err := stays.TryLock(t.Context(), key)
	require.ErrorIs(t, err, redlatch.ErrUnavailable, "a client that does not move keys")
	require.NoError(t, locktest.LockSoon(t, stays, up).Unlock(t.Context()), "the other shard works")
	require.NoError(t, second.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
}
