package node

import "time"

// A lane is what goes on for one key among the ordered calls. Its calls are linked, from the one that is
// under way to the newest, which Node.lanes has.

// queueInLaneLocked puts c behind the calls on its key, and reports whether it has to wait there.
func (n *Node) queueInLaneLocked(c *Call, now time.Duration) bool {
	if n.lanes == nil {
		n.lanes = make(map[string]*Call)
	}
	before := n.lanes[c.Key]
	n.lanes[c.Key] = c
	if before == nil {
		return false
	}
	if before.place != queued && now >= before.deadline {
		before.overtaken = true
		return false
	}
	c.ahead, before.behind = before, c
	c.place = queued
	return true
}

// leaveLaneLocked takes c out of its lane, so that the call behind it takes its place there.
func (n *Node) leaveLaneLocked(c *Call) {
	if !c.Ordered {
		return
	}
	ahead, behind := c.ahead, c.behind
	c.ahead, c.behind = nil, nil
	if ahead != nil {
		ahead.behind = behind
	}
	if behind != nil {
		behind.ahead = ahead
	}
	if n.lanes[c.Key] == c {
		if ahead == nil {
			delete(n.lanes, c.Key)
		} else {
			n.lanes[c.Key] = ahead
		}
	}
	if behind != nil && ahead == nil {
		behind.due = behind.deadline
		n.sendLocked(behind)
	}
}

// passLaneLocked lets the call behind c, if any, go on without waiting for c.
func (n *Node) passLaneLocked(c *Call) {
	if behind := c.behind; behind != nil {
		c.behind, behind.ahead = nil, nil
		c.overtaken = true
		behind.due = behind.deadline
		n.sendLocked(behind)
	}
}
