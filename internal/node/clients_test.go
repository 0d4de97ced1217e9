package node

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// carries checks that a node of client serves calls of all kinds, from many callers at once. Scripts are
// new to the server, so they are sent in both ways.
func carries(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	n := New(client)
	prefix := fmt.Sprint("{", t.Name(), "}")
	add := NewScript("redis.call('SET', KEYS[1], ARGV[1]); return {KEYS[1], tonumber(ARGV[2]), false} --" + prefix)
	wrong := NewScript("return redis.call('LPUSH', KEYS[1], 'x') --" + prefix)
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			for i := range 4 {
				key, number := fmt.Sprint(prefix, g, "-", i), int64(g)
				for _, c := range []struct {
					call *Call
					want any
				}{
					{Eval(add, 1, &key, "v", &number), []any{key, number, nil}},
					{Command("get", &key), "v"},
					{Command("get", key+"nothing"), nil},
					{Command("del", key), int64(1)},
				} {
					if r := do(n, c.call); !reflect.DeepEqual(r, Reply{Value: c.want}) {
						t.Errorf("%+v instead of %v", r, c.want)
					}
				}
				do(n, Command("set", key, "v"))
				if r := do(n, Eval(wrong, 1, &key)); !errors.Is(r.Err, ErrOtherData) || !Answered(r.Err) || r.Resent {
					t.Errorf("wrong type: %+v", r)
				}
			}
		})
	}
	wg.Wait()
	c := Command("set", prefix, "v")
	c.Key, c.Then = prefix, []any{"get", prefix}
	require.Equal(t, Reply{Value: "OK", Then: &Reply{Value: "v"}}, do(n, c))
	requireIdle(t, n)
}

// carried calls carries for a client with these options, and closes it afterwards.
func carried(t *testing.T, o *redis.Options, hooks ...redis.Hook) {
	t.Helper()
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for _, h := range hooks {
		client.AddHook(h)
	}
	carries(t, client)
}

// TestEveryClientCarriesCalls: calls succeed whatever the settings of a client are.
func TestEveryClientCarriesCalls(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, 2 * time.Second, -1} { // 2 s is shorter than the timeout of the calls
		for _, heeds := range []bool{false, true} {
			for _, retries := range []int{0, -1} {
				for _, size := range []int{0, 1} {
					t.Run(fmt.Sprintf("ReadTimeout %d, heeds %v, MaxRetries %d, PoolSize %d", timeout, heeds, retries, size), func(t *testing.T) {
						o := redistest.Shared(t).Options()
						o.ReadTimeout, o.ContextTimeoutEnabled, o.MaxRetries, o.PoolSize = timeout, heeds, retries, size
						carried(t, o)
						o.PipelinePoolSize = -1
						carried(t, o)
					})
				}
			}
		}
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			o := redistest.Shared(t).Options()
			o.Protocol = protocol
			carried(t, o)
		})
	}
	t.Run("TCP", func(t *testing.T) { carried(t, redistest.StartTCP(t).Options()) })
	t.Run("AutoPipeline", func(t *testing.T) {
		client, err := redistest.Shared(t).Client(t).AutoPipeline()
		require.NoError(t, err)
		carries(t, client)
	})
	t.Run("AsyncAutoPipeline", func(t *testing.T) {
		client, err := redistest.Shared(t).Client(t).AsyncAutoPipeline()
		require.NoError(t, err)
		carries(t, client)
	})
	t.Run("Ring", func(t *testing.T) {
		client := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
			"a": redistest.StartTCP(t).Addr(), "b": redistest.StartTCP(t).Addr(),
		}})
		t.Cleanup(func() { _ = client.Close() })
		carries(t, client)
	})
	t.Run("slow hook", func(t *testing.T) {
		carried(t, redistest.Shared(t).Options(), hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
			<-time.After(time.Millisecond)
			return next()
		}))
	})
	t.Run("hook that keeps what it sees", func(t *testing.T) {
		kept := &keeper{}
		carried(t, redistest.Shared(t).Options(), kept.hook())
		kept.requireUnchanged(t)
	})
}

// TestHookThatFailsIsTriedAgain: a failure of a hook is no answer, whether the command was sent or
// not. Commands without replies were not answered either. In a batch each command has its reply, whatever the hook says.
func TestHookThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	errHook := errors.New("the hook failed")
	for _, c := range []struct {
		err   error // of the hook
		sends bool  // it sends the commands all the same
		calls int   // in the batch
		times int64 // how often each is carried out
	}{{errHook, false, 1, 1}, {errHook, true, 1, 2}, {errHook, false, 10, 1}, {errHook, true, 10, 1}, {nil, false, 10, 1}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			require.NoError(t, client.ScriptLoad(t.Context(), increase.source).Err())
			var fails atomic.Int64
			fails.Store(1)
			client.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
				if len(cmds) != c.calls || fails.Add(-1) < 0 {
					return next()
				}
				if c.sends {
					_ = next()
				}
				return c.err
			}))
			n := New(client)
			var calls []*Call
			for i := range c.calls {
				calls = append(calls, Eval(increase, 1, fmt.Sprint("n", i), 1))
			}
			for _, reply := range together(t, n, calls...) {
				require.Equal(t, Reply{Value: c.times, Resent: !c.sends || c.calls == 1}, <-reply)
			}
			if c.calls == 1 {
				fails.Store(1 << 30)
				require.EqualError(t, do(n, within(Command("ping"), 100*time.Millisecond)).Err, "no reply within 100ms: the hook failed")
			}
		})
	}
}

// TestDeferredCommandHoldsUpNoTimeout: the courier waits for a command of a deferred pipeline before
// it takes the node's mutex, which timeouts need.
func TestDeferredCommandHoldsUpNoTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	o := p.Options()
	o.ReadTimeout = -1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	deferred, err := client.AsyncAutoPipeline()
	require.NoError(t, err)
	n := New(deferred)
	require.NoError(t, do(n, Command("ping")).Err)
	p.Silence()
	defer p.Cut() // the client gives up
	select {
	case r := <-post(n, within(Command("ping"), 100*time.Millisecond)):
		require.EqualError(t, r.Err, "no reply within 100ms")
	case <-time.After(limit / 4):
		require.Fail(t, "the call did not end")
	}
}
