package node

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// misused is called if a reply is dropped since it is for another call. Tests panic.
var misused = func(string) {}

// arrivedLocked handles the outcome of a send. The call may have ended with its timeout. gaveUp says
// that the batch has ended, so that the time of the call will soon have passed.
func (n *Node) arrivedLocked(i *item, gaveUp bool, now clock.Mono) {
	c := i.call
	if i.use != c.uses {
		misused("a reply to a call that was used again")
		return
	}
	if i.server != nil {
		n.locatedLocked(c, i.server, now)
		return
	}
	err, failed := n.outcomeOf(i)
	late := n.heardLocked(i, err, now)
	if c.at == over {
		return
	}
	took := now.Sub(c.batch.left)
	c.batch = nil
	toldBefore, redirected := c.toldNow, c.redirect
	c.toldNow, c.redirect = false, ""
	if err != nil && (!rediserr.NotSent(err) || failed != nil) { // if the second failed, the first was carried out
		c.resent = true
	}
	switch {
	case n.leavesLocked(c, redirected, err):
	case late && c.from && !toldBefore:
		c.toldNow = true
		n.sendLocked(c)
	case late && n.inTimeLocked(c, now):
		n.sendLocked(c)
	case late:
		trouble := cmp.Or(c.trouble, n.trouble, errTooLate)
		first := n.firstLocked(c, trouble, now)
		n.endLocked(c, Reply{Err: &rediserr.NoReply{Within: c.Timeout, Last: trouble, First: first}})
	case err == nil && i.then != nil:
		n.endLocked(c, Reply{Value: i.cmd.Val(), Then: &Reply{Value: i.then.Val(), Err: rediserr.Explain(failed)}})
	case err == nil:
		n.endLocked(c, Reply{Value: i.cmd.Val()})
	case c.script != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || rediserr.LacksEval(err)):
		n.noEvalSHA = n.noEvalSHA || rediserr.LacksEval(err)
		c.sendSource()
		n.sendLocked(c)
	case rediserr.Retryable(err) && gaveUp:
		if err == context.Canceled { //nolint:errorlint // an error of Sentinels may match it, too
			err = n.noConnection(c)
		}
		c.trouble = cmp.Or(c.trouble, rediserr.Explain(err))
	case rediserr.Retryable(err):
		n.retryLocked(c, rediserr.Explain(err), took, now)
	default:
		if rediserr.MissesRight(err) { // they may be given back
			n.repeatLocked(c, insistEvery, now)
		}
		n.endLocked(c, Reply{Err: rediserr.Explain(err)})
	}
}

// heardLocked notes what the outcome of a send says of the server. It reports whether the command
// came too late to create anything.
func (n *Node) heardLocked(i *item, err error, now clock.Mono) (late bool) {
	c := i.call
	if err == nil || rediserr.Answered(err) {
		n.answered, n.silent, n.trouble = now, false, nil
	}
	if err != nil && (redirects(err) || !rediserr.Answered(err)) {
		n.slots.Reload()
	}
	if err == nil || !rediserr.AboutServer(err) {
		n.illness.pass(c.kind(), c.sick, now)
	}
	if err == nil {
		n.served, n.first = now, cmp.Or(n.first, now)
	}
	if c.parked && (err == nil || rediserr.Mistake(err)) {
		n.followLocked(now)
	}
	at, late := tooLate(i.cmd.Val())
	if late = late && err == nil && c.latest > 0; late {
		n.clock.told(at, now)
		if n.several { // each has a clock of its own
			c.clock = clockOffset{}
			c.clock.told(at, now)
		}
	}
	return late
}

var errTooLate = errors.New("the command came too late (raise WithOpTimeout if connections or replies are slow)")

// outcomeOf returns the error of a send; nil if it was answered. failed is the error of the second
// command.
func (n *Node) outcomeOf(i *item) (err, failed error) {
	err = i.cmd.Err()
	if errors.Is(err, redis.ErrClosed) && n.isOpen(i.call.key()) {
		err = rediserr.ErrServerLeft
	}
	// No script answers nil, but the client of a Cluster does that does not know its servers. An
	// error of Sentinels may match redis.Nil.
	if err == redis.Nil && n.slots.client == nil { //nolint:errorlint // see above
		err = nil
	}
	if _, late := tooLate(i.cmd.Val()); err == nil && i.then != nil && !late {
		if failed = i.then.Err(); failed != nil && (!rediserr.Answered(failed) || rediserr.Retryable(failed)) {
			err = failed
		}
	}
	return err, failed
}

// noConnection returns why the client has waited for a connection until the time of c was nearly
// over.
func (n *Node) noConnection(c *Call) error {
	if client, plain := n.client.(*redis.Client); plain {
		s := client.PoolStats()
		u := use{open: int(s.TotalConns), used: int(s.TotalConns - s.IdleConns), pending: int(s.PendingRequests)}
		u.own = n.ownLocked() - 1 // the courier of c has none
		if u.lacks(connections(client)) {
			return redis.ErrPoolTimeout
		}
		if client.Options().Addr == "FailoverClient" {
			return &slowConnectionError{c.Timeout * 9 / 10, " (the Sentinels may be down)"}
		}
	}
	return &slowConnectionError{within: c.Timeout * 9 / 10}
}
