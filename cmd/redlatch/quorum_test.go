//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestQuorumIsLockedByRun: run locks on a quorum if it gets several URLs.
func TestQuorumIsLockedByRun(t *testing.T) {
	t.Parallel()
	var urls []string
	var nodes []*server
	for range 3 {
		nodes = append(nodes, onMiniredis(t))
		urls = append(urls, nodes[len(nodes)-1].url)
	}
	all := strings.Join(urls, " ")
	cmd := redlatchCmd(t, "", "run", "-redis", urls[0], "-redis", urls[1], "-redis", urls[2], "-ttl", "1m", "k", "--", "sh", "-c", "echo ready; read -r x")
	in := pipe(t, cmd)
	p := start(t, cmd)
	p.expect("ready")
	locktest.Eventually(t, "on all nodes", func() bool {
		return nodes[0].holds(t) != "" && nodes[1].holds(t) == nodes[0].holds(t) && nodes[2].holds(t) == nodes[0].holds(t)
	})
	require.Equal(t, exitBusy, redlatchRun(t, all, []string{"-ttl=1m", "-try"}, "exit 0").code())
	require.NoError(t, in.Close())
	require.Equal(t, 1, p.code())
	for _, s := range nodes {
		require.Empty(t, s.holds(t))
	}
	require.Zero(t, redlatchRun(t, all, patient, "exit 0").code())
	require.Equal(t, exitUnavailable, redlatchRun(t, urls[0]+" "+nowhere+" redis://127.0.0.1:2", []string{"-try"}, "exit 0").code())
}

// TestDeadNodeOfAQuorumCostsNoTime: one of three nodes refuses connections, or accepts them and is
// silent. Nothing stays on the others.
func TestDeadNodeOfAQuorumCostsNoTime(t *testing.T) {
	t.Parallel()
	first, second, third := onMiniredis(t), onMiniredis(t), onMiniredis(t)
	proxy := faultproxy.New(t, third.network, third.addr)
	proxy.Silence()
	fastest := func(urls ...string) time.Duration {
		fastest := longest
		for range 5 {
			begun := time.Now()
			require.Zero(t, redlatchRun(t, strings.Join(urls, " "), nil, "exit 0").code())
			fastest = min(fastest, time.Since(begun))
			require.Empty(t, first.holds(t))
			require.Empty(t, second.holds(t))
		}
		return fastest
	}
	alive := fastest(first.url, second.url, third.url)
	for _, dead := range []string{nowhere, "redis://" + proxy.Addr()} {
		require.Less(t, fastest(first.url, second.url, dead), 2*alive+time.Second)
	}
}

// TestSlowNodeOfAQuorumIsReleasedToo: its replies are late, but the others do not wait for them.
func TestSlowNodeOfAQuorumIsReleasedToo(t *testing.T) {
	t.Parallel()
	first, second, third := onMiniredis(t), onMiniredis(t), onMiniredis(t)
	proxy := faultproxy.New(t, third.network, third.addr)
	cmd := redlatchCmd(t, first.url+" "+second.url+" redis://"+proxy.Addr(), "run", "-ttl", "1m", "k", "--", "sh", "-c", "echo ready; read -r x; exit 3")
	in := pipe(t, cmd)
	p := start(t, cmd)
	p.expect("ready")
	locktest.Eventually(t, "on all nodes", func() bool { return third.holds(t) != "" })
	proxy.Delay(300 * time.Millisecond)
	require.NoError(t, in.Close())
	require.Equal(t, 3, p.code())
	require.Empty(t, third.holds(t))
}

// TestNodeWithoutTheScriptHasNotRunIt: a release is sent by the hash of its script, and then by its
// text.
func TestNodeWithoutTheScriptHasNotRunIt(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), onMiniredis(t)
	node := &traffic{}
	s.client.AddHook(node)
	require.Error(t, s.client.EvalSha(ctx, "unknown", nil).Err())
	require.True(t, node.alive())
	require.Zero(t, node.done())
	require.Equal(t, 1, node.due(), "it is sent again")
	require.NoError(t, s.client.Eval(ctx, "return 1", nil).Err())
	require.Equal(t, 1, node.done())
	require.Equal(t, 1, node.due())
	require.NoError(t, s.client.Eval(ctx, "return {'late', 1, 2}", nil).Err())
	require.Equal(t, 1, node.done(), "it came too late, and is sent again")
	require.Equal(t, 2, node.due())
	require.Error(t, s.client.Eval(ctx, "return redis.error_reply('ERR no')", nil).Err())
	require.False(t, node.busy())
	require.Equal(t, 1, node.due(), "it was refused for good")
}
