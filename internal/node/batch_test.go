package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// together posts calls that leave as one batch, and returns them.
func together(t *testing.T, n *Node, calls ...*Call) (all []*posted) {
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
		if c.Timeout == 0 {
			c.Timeout = limit
		}
		all = append(all, post(t.Context(), n, c))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy -= couriers
	n.dispatchLocked()
	return all
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
	g := newGate()
	g.open()
	client.AddHook(g.hook())
	for range 3 {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
		require.NoError(t, client.Set(t.Context(), "text", "hello", 0).Err())
		for len(g.sent) > 0 {
			<-g.sent
		}
		var calls []*Call
		var check []func(i int, r Reply)
		add := func(c *Call, f func(i int, r Reply)) { calls, check = append(calls, c), append(check, f) }
		for i := range 9 {
			number := int64(i)
			add(Command("set", fmt.Sprint("k", i), i), func(_ int, r Reply) { requireOK(t, false, r) })
			add(Command("get", "nothing"), func(_ int, r Reply) { require.Equal(t, Reply{Overtaken: true}, r) })
			add(Eval(increase, 1, fmt.Sprint("n", i), &number), func(_ int, r Reply) {
				require.NoError(t, r.Err)
				require.Equal(t, number, r.Value)
				require.False(t, r.Resent)
			})
			add(Eval(fail, 1, "text"), func(_ int, r Reply) {
				require.ErrorIs(t, r.Err, ErrOtherData)
				require.True(t, Answered(r.Err))
			})
			add(Command("lpush", "text", "x"), func(_ int, r Reply) { require.ErrorIs(t, r.Err, ErrOtherData) })
			add(Eval(broken, 0), func(_ int, r Reply) {
				require.Regexp(t, "Unknown (Redis )?command", r.Err) // Valkey omits its name
				require.False(t, r.Resent)
			})
			add(Command("echo", i), func(_ int, r Reply) { require.Equal(t, fmt.Sprint(i), r.Value) })
		}
		for i, p := range together(t, n, calls...) {
			check[i](i, p.wait(t))
		}
		require.Len(t, <-g.sent, len(calls), "they were one batch")
		for i := range 9 {
			require.Equal(t, fmt.Sprint(i), client.Get(t.Context(), fmt.Sprint("k", i)).Val())
		}
	}
	requireIdle(t, n)
}

// TestBatchOnAReplicaWaitsForAPrimary: writes are refused until the server is a primary. Reads
// in the same batch are not.
func TestBatchOnAReplicaWaitsForAPrimary(t *testing.T) {
	t.Parallel()
	replica := redistest.StartReplica(t, redistest.StartTCP(t))
	client := replica.Client(t)
	n := New(client)
	var calls []*Call
	for i := range 10 {
		calls = append(calls, Command("echo", i), Eval(increase, 1, fmt.Sprint("n", i), 1),
			within(Command("set", fmt.Sprint("k", i), i), time.Second))
	}
	all := together(t, n, calls...)
	var notDone []string // the others may be in flight
	for i := 0; i < len(all); i += 3 {
		require.NoError(t, all[i].wait(t).Err)
		r := all[i+2].wait(t)
		require.ErrorContains(t, r.Err, "still failing after 1s: READONLY")
		require.False(t, r.Resent, "it was refused each time")
		if errors.As(r.Err, new(*NotDone)) {
			notDone = append(notDone, fmt.Sprint("k", i/3))
		}
		require.ErrorContains(t, r.Err, "this server is a replica")
	}
	require.NoError(t, client.ReplicaOf(t.Context(), "NO", "ONE").Err())
	for i := 1; i < len(all); i += 3 {
		r := all[i].wait(t)
		require.NoError(t, r.Err)
		require.Equal(t, int64(1), r.Value)
		require.False(t, r.Resent)
	}
	requireIdle(t, n)
	for _, key := range notDone {
		require.Zero(t, client.Exists(t.Context(), key).Val())
	}
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
				call := Eval(increase, 1, fmt.Sprint("n", i), 1)
				call.OutlivesCaller = i%2 == 1
				calls = append(calls, call)
			}
			require.NoError(t, n.Do(t.Context(), within(Eval(increase, 1, "n", 1), limit)).Err) // the script is loaded
			c.lose(p, 1, "evalsha")
			for i, posted := range together(t, n, calls...) {
				r := posted.wait(t)
				require.True(t, r.Resent)
				got, _ := s.Client(t).Get(t.Context(), fmt.Sprint("n", i)).Int64()
				require.NoError(t, r.Err)
				require.Equal(t, c.each, r.Value)
				require.Equal(t, c.each, got)
			}
			require.Equal(t, 1, p.Lost())
		})
	}
}

// TestReleaseOfABrokenBatchIsSentAgain: the releases are sent again although their callers have left.
func TestReleaseOfABrokenBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	n := New(p.Client(t))
	direct := s.Client(t)
	var calls []*Call
	for i := range longestBatch {
		require.NoError(t, direct.Set(t.Context(), fmt.Sprint("k", i), "mine", 0).Err())
		c := Command("del", fmt.Sprint("k", i))
		c.Timeout, c.OutlivesCaller = 2*time.Second, true
		calls = append(calls, c)
	}
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	p.Silence()
	for _, posted := range together(t, n, calls...) {
		require.ErrorContains(t, posted.wait(t).Err, "no reply within 2s")
	}
	p.Cut()
	p.Heal()
	eventually(t, "they are deleted", func() bool { return len(direct.Keys(t.Context(), "k*").Val()) == 0 })
	requireIdle(t, n)
}

// TestHookSeesWordsThatStay: the words of a command that a hook keeps do not change, even if the script is
// sent as a whole afterwards.
func TestHookSeesWordsThatStay(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	kept := &keeper{}
	client.AddHook(kept.hook())
	n := New(client)
	var calls []*Call
	for i := range 20 {
		calls = append(calls, Eval(increase, 1, fmt.Sprint("n", i), i))
	}
	for _, p := range together(t, n, calls...) {
		require.NoError(t, p.wait(t).Err)
	}
	require.NoError(t, n.Do(t.Context(), within(Eval(increase, 1, "alone", 1), limit)).Err)
	requireIdle(t, n)
	kept.requireUnchanged(t)
	var shas, sources int
	for _, cmd := range kept.cmds {
		switch words := said(cmd); words[0] {
		case "evalsha":
			require.Len(t, words[1], 40)
			shas++
		case "eval":
			require.True(t, strings.HasPrefix(words[1], "return "))
			sources++
		}
	}
	require.Equal(t, 21, shas)
	require.Equal(t, 20, sources)
}

// A keeper is a hook that keeps the commands that it sees, like a hook that logs from a goroutine of its own.
type keeper struct {
	mu   sync.Mutex // guards the fields below
	ctxs []context.Context
	cmds []redis.Cmder
	said [][]string // the words of the commands at that time
}

func (k *keeper) hook() hook {
	return func(ctx context.Context, cmds []redis.Cmder, next func() error) error {
		k.mu.Lock()
		k.ctxs = append(k.ctxs, ctx)
		for _, cmd := range cmds {
			k.cmds, k.said = append(k.cmds, cmd), append(k.said, said(cmd))
		}
		k.mu.Unlock()
		return next()
	}
}

// requireUnchanged checks that the words of the commands have not changed, and that every ctx has ended.
func (k *keeper) requireUnchanged(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	require.NotEmpty(t, k.cmds)
	for i, cmd := range k.cmds {
		require.Equal(t, k.said[i], said(cmd))
	}
	for _, ctx := range k.ctxs {
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	}
}

// TestAnswerEndsACall: a command that the server refuses for good is not sent again.
func TestAnswerEndsACall(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	g := newGate()
	g.open()
	client.AddHook(g.hook())
	n := New(client)
	require.True(t, Answered(n.Do(t.Context(), within(Command("get"), limit)).Err))
	require.Nil(t, n.Do(t.Context(), within(Command("get", "nothing"), limit)).Value)
	requireIdle(t, n)
	var sent []string
	for len(g.sent) > 0 {
		if b := <-g.sent; b[0][0] == "get" {
			sent = append(sent, strings.Join(b[0], " "))
		}
	}
	require.Equal(t, []string{"get", "get nothing"}, sent)
}

// TestAbandonedReleaseOfAnUnknownScriptIsCarriedOut: the caller of a release leaves before the node
// learns that the server does not have its script.
func TestAbandonedReleaseOfAnUnknownScriptIsCarriedOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	direct := s.Client(t)
	n := New(p.Client(t))
	require.NoError(t, direct.Set(t.Context(), "k", "mine", 0).Err())
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	p.Delay(4 * time.Second)
	c := within(Eval(NewScript("return redis.call('DEL', KEYS[1])"), 1, "k"), 3*time.Second)
	c.OutlivesCaller = true
	require.ErrorContains(t, n.Do(t.Context(), c).Err, "no reply within 3s")
	p.Heal()
	eventually(t, "it is released", func() bool { return direct.Exists(t.Context(), "k").Val() == 0 })
	requireIdle(t, n)
}
