package redlatch_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// A test of code that locks runs on an embedded Redis. In a bubble of testing/synctest an hour
// takes no time.
func TestNightlyJobKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // keys expire by the bubble's clock
		defer server.Close()
		client := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:6379", // an IP address: a name would be looked up outside the bubble
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer client.Close()
		locker, err := redlatch.NewSetNXPX(client)
		require.NoError(t, err)

		lock, err := locker.Lock(t.Context(), "nightly")
		require.NoError(t, err)
		time.Sleep(time.Hour) // the job
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(time.Minute) // what waiters left open is closed
	})
}
