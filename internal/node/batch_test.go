package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// together posts calls that leave as one batch, and returns the channels of their replies.
func together(t *testing.T, n *Node, calls ...*Call) (replies []<-chan Reply) {
	t.Helper()
	require.LessOrEqual(t, len(calls), longestBatch)
	eventually(t, "no courier is about to load", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.back > 0 {
			return false
		}
		n.busy += couriers // so that nothing is sent before all calls are posted
		return true
	})
	for _, c := range calls {
		replies = append(replies, post(n, c))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy -= couriers
	n.sendLocked()
	return replies
}

var (
	increase = NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	fail     = NewScript("return redis.call('LPUSH', KEYS[1], 'x')")
	broken   = NewScript("return redis.call('NO SUCH COMMAND')")
)

// TestEachCallOfABatchHasItsOwnAnswer: the batch has calls that succeed, refusals, and scripts
// that the server does not have yet.
func TestEachCallOfABatchHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	n := New(client)
	sizes := make(chan int, 100)
	require.NoError(t, client.Set(t.Context(), "text", "hello", 0).Err())
	client.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
		sizes <- len(cmds)
		return next()
	}))
	var calls []*Call
	var want []any // the value, or an error that it matches or whose text it has
	for i := range 9 {
		number := int64(i)
		calls = append(calls,
			Command("set", fmt.Sprint("k", i), i), Command("get", "nothing"), Command("echo", i),
			Eval(increase, 1, fmt.Sprint("n", i), &number), Eval(fail, 1, "text"), Eval(broken, 0))
		want = append(want, "OK", nil, fmt.Sprint(i), number, ErrOtherData, errors.New("ERR Unknown"))
	}
	for i, reply := range together(t, n, calls...) {
		r := <-reply
		require.False(t, r.Resent)
		if err, fails := want[i].(error); !fails {
			require.Equal(t, Reply{Value: want[i]}, r)
		} else if require.True(t, Answered(r.Err)); !errors.Is(r.Err, err) {
			require.ErrorContains(t, r.Err, err.Error())
		}
	}
	require.Equal(t, len(calls), <-sizes, "they were one batch")
	requireIdle(t, n)
}

// TestCutBatchIsSentAgain: each call of the batch is sent again, and reports that it may have
// been carried out.
func TestCutBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(p *faultproxy.Proxy, n int, containing string)
		each int64 // how often a call is carried out
	}{
		"after it was carried out":  {(*faultproxy.Proxy).LoseReplies, 2},
		"before it was carried out": {(*faultproxy.Proxy).LoseRequests, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := faultproxy.New(t, s.Network(), s.Addr())
			n := New(p.Client(t))
			var calls []*Call
			for i := range longestBatch {
				calls = append(calls, Eval(increase, 1, fmt.Sprint("n", i), 1))
			}
			require.NoError(t, do(n, Eval(increase, 1, "n", 1)).Err) // the script is loaded
			c.lose(p, 1, "evalsha")
			for _, reply := range together(t, n, calls...) {
				require.Equal(t, Reply{Value: c.each, Resent: true}, <-reply)
			}
			require.Equal(t, 1, p.Lost())
		})
	}
}
