package road

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/sim/server"
)

const (
	ms    = time.Millisecond
	trip  = 10 * ms
	count = "return redis.call('INCR', KEYS[1])"
)

// travel runs a test with a client at the end of a road.
func travel(t *testing.T, test func(t *testing.T, r *Road, c *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New()
		r := New("127.0.0.1:6379", 1, s.Accept)
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Dialer: r.Dial, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		require.Equal(t, int64(1), counted(t, c))
		r.Delay = trip / 2
		test(t, r, c)
		require.NoError(t, c.Close())
		s.Close()
	})
}

func counted(t *testing.T, c *redis.Client) int64 {
	t.Helper()
	n, err := c.Eval(t.Context(), count, []string{"k"}).Int64()
	require.NoError(t, err)
	return n
}

// took returns how long f takes.
func took(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

func TestDelayIsExact(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		require.Equal(t, trip, took(func() { counted(t, c) }))
		heal := r.Slow(40 * ms)
		require.Equal(t, trip+80*ms, took(func() { counted(t, c) }))
		heal()
		require.Equal(t, trip, took(func() { counted(t, c) }))
	})
}

func TestRepliesComeInOrder(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		r.Jitter = 50 * ms
		pipe := c.Pipeline()
		for range 20 {
			pipe.Eval(t.Context(), count, []string{"k"})
		}
		cmds, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for i, cmd := range cmds {
			require.Equal(t, int64(2+i), cmd.(*redis.Cmd).Val())
		}
	})
}

// lose plays losses until one was met, and returns how often the command was carried out.
func lose(t *testing.T, lose func(*Road) func()) (carriedOut int64) {
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		heal := lose(r)
		sent := int64(0)
		for err := error(nil); err == nil; sent++ {
			err = c.Eval(t.Context(), count, []string{"k"}).Err()
		}
		heal()
		carriedOut = counted(t, c) - 1 - sent
	})
	return carriedOut
}

func TestLostRequestIsNotCarriedOut(t *testing.T) {
	for _, silent := range []bool{false, true} {
		require.Equal(t, int64(0), lose(t, func(r *Road) func() { return r.LoseRequests(1, silent) }))
	}
}

func TestLostReplyWasCarriedOut(t *testing.T) {
	for _, silent := range []bool{false, true} {
		require.Equal(t, int64(1), lose(t, func(r *Road) func() { return r.LoseReplies(1, silent) }))
	}
}

func TestPartOfAPipelineIsCarriedOut(t *testing.T) {
	parts := make(map[int64]bool)
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		for range 40 {
			before := counted(t, c)
			heal := r.LoseRequests(1, false)
			pipe := c.Pipeline()
			for range 3 {
				pipe.Eval(t.Context(), count, []string{"k"})
			}
			_, err := pipe.Exec(t.Context())
			heal()
			if after := counted(t, c); err != nil {
				parts[after-before-1] = true
			}
		}
	})
	require.Equal(t, map[int64]bool{0: true, 1: true, 2: true}, parts)
}

func TestResetBreaksConnections(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		time.AfterFunc(trip/4, func() { r.Reset(true) })
		err := c.Eval(t.Context(), count, []string{"k"}).Err()
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, int64(2), counted(t, c), "the request was lost")
	})
}

func TestHoleHoldsBack(t *testing.T) {
	for _, side := range []Side{Both, Requests, Replies} {
		travel(t, func(t *testing.T, r *Road, c *redis.Client) {
			heal := r.Hole(side, false, false)
			time.AfterFunc(time.Second, heal)
			require.Greater(t, took(func() { require.Equal(t, int64(2), counted(t, c)) }), time.Second-1)
		})
	}
}

func TestHoleAnswersNoDial(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, _ *redis.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		defer r.Hole(Both, false, false)()
		require.Equal(t, time.Second, took(func() {
			_, err := r.Dial(ctx, "", "")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}))
	})
}

func TestHalfOpenConnectionIsReplaced(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		heal := r.Hole(Replies, true, true)
		defer heal()
		require.Error(t, c.Eval(t.Context(), count, []string{"k"}).Err())
		require.Equal(t, int64(3), counted(t, c), "both were carried out")
	})
}

func TestDials(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, _ *redis.Client) {
		heal := r.Refuse()
		_, err := r.Dial(t.Context(), "", "")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		heal()
		defer r.SlowDials(time.Second)()
		require.Equal(t, trip+time.Second, took(func() {
			conn, err := r.Dial(t.Context(), "", "")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}))
	})
}

func TestDeafSubscriptionGetsNoMessage(t *testing.T) {
	travel(t, func(t *testing.T, r *Road, c *redis.Client) {
		messages := c.Subscribe(t.Context(), "c")
		_, err := messages.Receive(t.Context())
		require.NoError(t, err)
		publish := func() { require.NoError(t, c.Eval(t.Context(), "return redis.call('PUBLISH', 'c', 'm')", nil).Err()) }
		heal := r.Deafen()
		publish()
		_, err = messages.ReceiveTimeout(t.Context(), time.Second)
		require.True(t, isTimeout(err), err)
		heal()
		publish()
		_, err = messages.ReceiveTimeout(t.Context(), time.Second)
		require.NoError(t, err)
		require.NoError(t, messages.Close())
	})
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
