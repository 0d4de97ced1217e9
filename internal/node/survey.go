package node

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// surveyLocked looks at the connections of the client when a courier is back from a trip, and has
// the client open more if calls wait for them.
func (n *Node) surveyLocked(trip time.Duration, now clock.Mono) {
	if n.share.size == 0 {
		return
	}
	stats := n.client.(*redis.Client).PoolStats()
	open, idle := int(stats.TotalConns), max(int(stats.IdleConns)-1, 0) // the courier takes one again
	n.share.observe(use{open: open, used: open - idle, pending: int(stats.PendingRequests), own: n.ownLocked()}, now)
	calls := n.mail.length()
	if calls == 0 || n.opening > 0 {
		return
	}
	n.share.waited(trip, now)
	if lacks := n.share.lacks(min(calls, n.width.couriers()-n.share.most), idle, now); lacks > 0 {
		n.openLocked(n.mail.first().ctx, lacks+idle)
	}
}

// ownLocked returns how many connections the node uses or waits for.
func (n *Node) ownLocked() int { return n.busy + n.writtenOff + n.opening }

// openLocked sends scripts that do nothing, all at once, with the values of ctx: a call waits for them.
// Those that find no idle connection have the client open one.
func (n *Node) openLocked(ctx context.Context, scripts int) {
	n.opening = scripts
	failed := false // guarded by mu
	for range scripts {
		b := &batch{Context: ctx}
		cmd := newCmd(b, []any{"eval", "return 0", 0}) //nolint:contextcheck // of the ctx, a batch has the values
		i := item{call: &Call{times: times{at: over}}, cmd: cmd}
		b.items = []item{i}
		go func() { //nolint:contextcheck // it ends when go-redis returns
			n.carry(b)
			n.mu.Lock()
			defer n.mu.Unlock()
			failed = failed || i.cmd.Err() != nil
			if n.opening--; n.opening == 0 {
				n.share.tried(int(n.client.(*redis.Client).PoolStats().TotalConns), failed, clock.MonoNow())
			}
		}()
	}
}
