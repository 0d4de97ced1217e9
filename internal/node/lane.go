package node

import "time"

// A lane links the ordered calls for one key, from the oldest, which is under way, to the newest, which is in Node.lanes.

// queueInLaneLocked puts c behind the other calls for its key. It reports whether c must wait.
func (n *Node) queueInLaneLocked(c *Call, now time.Duration) bool {
	before := n.lanes[c.Key]
	n.lanes[c.Key] = c
	if before == nil {
		return false
	}
	if before.place != queued && now >= before.deadline {
		before.overtaken = true
		return false
	}
	c.ahead, c.place, before.behind = before, queued, c
	return true
}

// leaveLaneLocked removes c from its lane, unless it still travels. If it was the oldest, the next call is sent.
func (n *Node) leaveLaneLocked(c *Call) {
	if !c.Ordered || c.place == travelling {
		return
	}
	ahead, behind := c.ahead, c.behind
	c.ahead, c.behind = nil, nil
	if ahead != nil {
		ahead.behind = behind
	}
	switch {
	case behind != nil && ahead == nil:
		behind.ahead = nil
		n.sendLocked(behind)
	case behind != nil:
		behind.ahead = ahead
	case n.lanes[c.Key] != c: // it has left, or the next call has passed it
	case ahead != nil:
		n.lanes[c.Key] = ahead
	default:
		delete(n.lanes, c.Key)
	}
}

// passLaneLocked sends the call behind c, if any, before c and those before it have returned.
func (n *Node) passLaneLocked(c *Call) {
	if behind := c.behind; behind != nil {
		c.behind, behind.ahead = nil, nil
		for ; c != nil; c = c.ahead {
			c.overtaken = true
		}
		n.sendLocked(behind)
	}
}
