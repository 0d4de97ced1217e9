package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestConnectionIsFinishedForLaterCalls: calls end while their connection is being opened. They are
// never sent. Another connection is opened in the background, one at a time, which the next calls
// use, alone or in a batch.
func TestConnectionIsFinishedForLaterCalls(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	for _, size := range []int{1, 2} {
		server := redistest.Start(t)
		direct := server.Client(t)
		var begun, ready atomic.Int64
		opens := make(chan struct{})
		o := server.Options()
		o.OnConnect = func(ctx context.Context, _ *redis.Conn) error {
			begun.Add(1)
			select {
			case <-opens:
				ready.Add(1)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n := New(dial(t, o))
		sets := func(timeout time.Duration) (errs []error) {
			var calls []*Call
			for range size {
				calls = append(calls, within(Eval(increase, 1, "n", 1), timeout))
			}
			for _, reply := range together(n, calls...) {
				errs = append(errs, (<-reply).Err)
			}
			return errs
		}
		for range 3 {
			for _, err := range sets(timeout) {
				require.ErrorAs(t, err, new(*rediserr.NoReply))
			}
		}
		require.LessOrEqual(t, begun.Load(), int64(3*2+1), "a silent node sends each call alone")
		opens <- struct{}{} // only that in the background is still there
		requireIdle(t, n)
		require.EqualValues(t, 1, ready.Load())
		require.EqualValues(t, 0, direct.Exists(t.Context(), "n").Val())
		last := begun.Load()
		for _, err := range sets(limit) {
			require.NoError(t, err)
		}
		require.Equal(t, last, begun.Load())
	}
}

// TestErrorSaysWhoHasTheConnections: those that others use are too few for all. One that the node opens itself, and that
// takes long, is slow.
func TestErrorSaysWhoHasTheConnections(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{true, false} {
		server := redistest.Start(t)
		o := server.Options()
		o.PoolSize, o.PipelinePoolSize, o.PoolTimeout, o.ReadTimeout = 1, -1, time.Hour, time.Hour
		opens := make(chan struct{})
		if !others {
			o.OnConnect = func(context.Context, *redis.Conn) error {
				<-opens
				return nil
			}
		}
		client := dial(t, o)
		if others {
			conn := client.Conn()
			require.NoError(t, conn.Ping(t.Context()).Err())
			defer func() { require.NoError(t, conn.Close()) }()
		}
		n := New(client)
		var err error
		eventually(t, "the error says why", func() bool { // a busy machine may have no time to find it out
			err = do(n, within(Eval(increase, 1, "n", 1), 200*time.Millisecond)).Err
			return errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, new(*slowConnectionError))
		})
		require.Equal(t, others, errors.Is(err, redis.ErrPoolTimeout), err)
		close(opens)
	}
}
