package node

import (
	"context"
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
