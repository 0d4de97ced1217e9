package node

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// dial returns a client that is closed at the end of the test.
func dial(t *testing.T, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// carries checks that each of many calls gets its own answer, in batches where the client allows
// them. They succeed, are refused, or are scripts that the server does not have yet.
func carries(t *testing.T, client redis.UniversalClient) { carriesOn(t, client) }

func carriesOn(t *testing.T, client client) {
	n := New(client)
	prefix := fmt.Sprint("{", t.Name(), "}")
	add := scriptOf("return {KEYS[1], tonumber(ARGV[1]), false} --" + prefix)
	require.NoError(t, client.Process(t.Context(), redis.NewStatusCmd(t.Context(), "set", prefix, "v")))
	var calls []*Call
	var want []any // the value, or an error that it matches
	for i := range 12 {
		key, number := fmt.Sprint(prefix, i), int64(i)
		calls = append(calls, Command("set", key, i), Command("get", key+"nothing"), Command("get", prefix),
			Eval(add, 1, &key, &number), Eval(fail, 1, prefix))
		want = append(want, "OK", nil, "v", []any{key, number, nil}, rediserr.ErrOtherData)
	}
	for _, c := range calls {
		c.Key = prefix // all have its hash tag
	}
	for i, reply := range together(n, calls...) {
		if r := <-reply; r.Err != nil {
			require.ErrorIs(t, r.Err, want[i].(error))
			require.True(t, rediserr.Answered(r.Err))
		} else {
			require.Equal(t, Reply{Value: want[i]}, r)
		}
	}
	pair := Command("set", prefix, "w")
	pair.Key, pair.Then = prefix, []any{"get", prefix}
	require.Equal(t, Reply{Value: "OK", Then: &Reply{Value: "w"}}, do(n, pair))
	requireIdle(t, n)
}

func TestEveryClientCarriesCalls(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(o *redis.Options){
		"defaults":        func(*redis.Options) {},
		"no ReadTimeout":  func(o *redis.Options) { o.ReadTimeout = -1 },
		"heeds deadlines": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"no MaxRetries":   func(o *redis.Options) { o.MaxRetries = -1 },
		"one connection":  func(o *redis.Options) { o.PoolSize, o.PipelinePoolSize = 1, -1 },
		"RESP2":           func(o *redis.Options) { o.Protocol = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			o := redistest.Shared(t).Options()
			set(o)
			client := dial(t, o)
			var together atomic.Bool
			client.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
				together.Store(together.Load() || len(cmds) == 60)
				return next()
			}))
			carries(t, client)
			require.True(t, together.Load(), "they were one batch")
		})
	}
	automatic, err := redistest.Shared(t).Client(t).AutoPipeline()
	require.NoError(t, err)
	deferred, err := redistest.Shared(t).Client(t).AsyncAutoPipeline()
	require.NoError(t, err)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"a": redistest.StartTCP(t).Addr(), "b": redistest.StartTCP(t).Addr(),
	}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, client := range map[string]redis.UniversalClient{"AutoPipeline": automatic, "AsyncAutoPipeline": deferred, "Ring": ring} {
		t.Run(name, func(t *testing.T) { carries(t, client) })
	}
}

// TestSilentServerPilesUpNothing: a server goes silent, and its clients wait for it as long as they
// like. Each of many calls ends in time. Their errors do not match those of a ctx: a caller would
// mistake them for the end of its own. If only old connections are silent, as behind a firewall
// that forgot them, each costs at most one call. In the end nothing is left.
func TestSilentServerPilesUpNothing(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	s := redistest.Start(t)
	for name, heeds := range map[string]bool{"heeds deadlines": true, "ignores deadlines": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultproxy.New(t, s.Network(), s.Addr())
			o := p.Options()
			o.ReadTimeout, o.ContextTimeoutEnabled = -1, heeds
			n := New(dial(t, o))
			post1000 := func(timeout time.Duration) (all []<-chan Reply) {
				for range 1000 {
					all = append(all, post(n, within(Command("ping"), timeout)))
				}
				return all
			}
			for _, reply := range post1000(limit) { // a busy machine takes its time
				require.NoError(t, (<-reply).Err)
			}
			p.SilenceOpen()
			open := p.Connections()
			require.LessOrEqual(t, open, 2*couriers, "some for single commands, others for pipelines")
			for failed := 0; do(n, within(Command("ping"), 10*timeout)).Err != nil; failed++ {
				require.Less(t, failed, open)
			}

			p.Silence()
			defer p.Cut() // otherwise Close of the client would wait for the commands in flight
			// They end, although the client itself waits forever.
			for _, reply := range post1000(timeout) {
				err := (<-reply).Err
				require.ErrorAs(t, err, new(*rediserr.NoReply))
				require.NotErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			}
			p.Cut()
			p.Heal()
			require.NoError(t, do(n, Command("ping")).Err)
			requireIdle(t, n)
		})
	}
}

// TestDeferredCommandHoldsUpNoTimeout: the courier waits for a command of a deferred pipeline
// before it takes the node's mutex, which timeouts need.
func TestDeferredCommandHoldsUpNoTimeout(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	deferred, err := answered(t, g.pass).client.(*redis.Client).AsyncAutoPipeline()
	require.NoError(t, err)
	select {
	case r := <-post(New(deferred), within(Command("ping"), 50*time.Millisecond)):
		require.ErrorAs(t, r.Err, new(*rediserr.NoReply))
	case <-time.After(limit):
		require.Fail(t, "the call did not end")
	}
	g.open()
}

// TestHookThatFailsIsNoAnswer: in a batch each command has its reply, whatever a hook of the client
// says.
func TestHookThatFailsIsNoAnswer(t *testing.T) {
	for _, c := range []struct {
		err          error // of the hook
		sends, again bool
	}{{io.EOF, false, true}, {io.EOF, true, false}, {nil, false, true}} {
		synctest.Test(t, func(t *testing.T) {
			hooked := 0
			n := answered(t, func(commands) error { return nil }, hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
				if hooked++; hooked > 1 {
					return next()
				}
				if c.sends {
					_ = next()
				}
				return c.err
			}))
			for _, reply := range together(n, Command("set"), Command("set")) {
				requireOK(t, c.again, <-reply)
			}
		})
	}
}

// TestAnswerOfAHookIsThatOfAllItsCalls: a connection that Redis refuses has no command of its own that could say so.
func TestAnswerOfAHookIsThatOfAllItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := answer("ERR DB index is out of range")
		sends := 0
		n := answered(t, func(commands) error { return nil }, hook(func(context.Context, []redis.Cmder, func() error) error {
			sends++
			return refused
		}))
		for _, reply := range together(n, Command("set"), Command("set")) {
			require.ErrorIs(t, (<-reply).Err, refused)
		}
		require.Equal(t, 1, sends)
	})
}

// TestSlowCallsDoNotHoldUpOthers: many calls on a slow node of a client wait for replicas that do
// not exist. Calls on the other node of that client succeed meanwhile. Then the server ends the
// waits.
func TestSlowCallsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, size := range []int{2, 4} {
		o := s.Options()
		o.PoolSize = size
		client := dial(t, o)
		fast, slow := New(client), NewSlow(client)
		var calls []<-chan Reply
		for i := range 100 {
			c := waits(Command("set", "k", 1))
			c.Then[2] = limit.Milliseconds()
			if i > 0 {
				within(c, time.Second)
			}
			calls = append(calls, post(slow, c))
		}
		for range 10 {
			require.NoError(t, do(fast, Command("ping")).Err)
		}
		notDone := 0
		for _, reply := range calls[1:] {
			if isNotDone((<-reply).Err) {
				notDone++
			}
		}
		require.Positive(t, notDone)
		require.Empty(t, calls[0], "it still waits")
		ended := make(chan Reply, 1)
		go func() { ended <- <-calls[0] }() // ends with the call
		eventually(t, "the wait has ended", func() bool { unblock(t, s); return len(ended) == 1 })
		require.Equal(t, Reply{Value: "OK", Then: &Reply{Value: int64(0)}}, <-ended)
		eventually(t, "the others have ended", func() bool { unblock(t, s); return idle(slow) })
	}
}

// unblock has a server end each WAIT that runs now, as if its timeout had passed.
func unblock(t *testing.T, s *redistest.Server) {
	t.Helper()
	admin := s.Client(t)
	for line := range strings.Lines(admin.ClientList(t.Context()).Val()) {
		if id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(line, "cmd=wait") {
			require.NoError(t, admin.Do(t.Context(), "client", "unblock", id).Err())
		}
	}
}

// TestPairGoesToTheMasterOfItsKey: in a cluster both commands of a call go there in one pipeline.
// If the slot has moved, or the slots are not known, the call is sent again until it reaches the
// master.
func TestPairGoesToTheMasterOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, second = "192.0.2.1:1", "192.0.2.2:1" // go-redis changes loopback addresses
		var master atomic.Value
		master.Store("")
		var sent []string
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{first},
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				if master.Load() == "" {
					return nil, io.EOF
				}
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: master.Load().(string)}}}}, nil
			},
			NewClient: func(o *redis.Options) *redis.Client {
				server := redis.NewClient(o)
				server.AddHook(fake(func(b commands) error {
					require.Len(t, b, 2)
					if sent = append(sent, o.Addr); o.Addr != master.Load() {
						return answer("MOVED 12182 " + second)
					}
					return nil
				}).hook(t))
				return server
			},
		})
		defer client.Close()
		n := NewSlow(client)
		for range 2 {
			pair := post(n, waits(Command("set", "foo", 1)))
			time.Sleep(time.Second)
			master.CompareAndSwap("", first)
			r := <-pair
			require.NoError(t, r.Err)
			require.Equal(t, &Reply{Value: "OK"}, r.Then)
			master.Store(second)
		}
		require.Greater(t, len(sent), 2, "the first master refuses")
		require.Equal(t, []string{first, second}, slices.Compact(sent))
		time.Sleep(time.Second) // go-redis may reload its slots in the background
	})
}

// least has no other methods than a node needs, in place of a whole [redis.UniversalClient].
type least struct{ client *redis.Client }

func (l least) Process(ctx context.Context, cmd redis.Cmder) error { return l.client.Process(ctx, cmd) }

func (l least) Pipeline() redis.Pipeliner { return leastPipe{pipe: l.client.Pipeline()} }

// leastPipe has no other methods of a pipeline than a node needs: the others panic.
type leastPipe struct {
	redis.Pipeliner
	pipe redis.Pipeliner
}

func (l leastPipe) Process(ctx context.Context, cmd redis.Cmder) error {
	return l.pipe.Process(ctx, cmd)
}
func (l leastPipe) Exec(ctx context.Context) ([]redis.Cmder, error) { return l.pipe.Exec(ctx) }

// TestANodeNeedsTwoMethods: so another client can be used with a few lines.
func TestANodeNeedsTwoMethods(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, reflect.TypeFor[client]().NumMethod(), 10)
	carriesOn(t, least{dial(t, redistest.Start(t).Options())})
}
