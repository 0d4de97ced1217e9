package node

import (
	"slices"
	"time"
)

// An ahead says how far the clock of Redis is ahead of the clock of a node:
//
//	ahead  = T − the instant at which the newest answer with a time T of Redis arrived
//	latest = deadline − timeout / 10 + ahead
//
// The answer was under way after T, so ahead is not too large, and what runs by latest runs before the deadline. If it is too
// small, the command is refused, and the refusal has the time. It is too large if the clock of Redis was set back since, or has
// lost time, so it is known for an hour only.
type ahead struct {
	by    time.Duration
	until time.Duration // it is known; 0: it never was
}

// aheadLasts is how long an ahead is known. The second trip of a call in each hour costs nothing that can be noticed.
const aheadLasts = time.Hour

// told notes that an answer with the time redis, since 1970, arrived at now.
func (a *ahead) told(redis, now time.Duration) { a.by, a.until = redis-now, now+aheadLasts }

// latest returns the time of Redis, in µs since 1970, until which a call that is sent at now and ends at deadline may still create
// something. If ahead is not known, it is 0: Redis then refuses, and says the time.
func (a ahead) latest(now, deadline, timeout time.Duration) int64 {
	if now >= a.until {
		return 0
	}
	return (deadline - timeout/10 + a.by).Microseconds()
}

// AppendLatest adds the word that says until when the script may create something: nine tenths of the timeout, in µs of the clock
// of Redis. A script that comes later changes nothing and answers {"late", seconds, µs of TIME}. The node then sends it once
// more.
func (c *command) AppendLatest() {
	c.latest = len(c.words)
	c.words = append(c.words, 0)
}

// stampLocked writes the latest time into a call that is about to be sent. If it is not known, Redis refuses: the call then has
// the source of the script, which a server that was never asked may not have.
func (c *Call) stampLocked(n *Node, now time.Duration) {
	clock := c.clock
	switch {
	case c.latest == 0:
		return
	case clock.until == 0:
		clock = n.clock
	}
	if c.sent {
		c.words = slices.Clone(c.words) // hooks may keep the words that were sent
	}
	latest := clock.latest(now, c.deadline, c.Timeout)
	if c.words[c.latest] = latest; latest == 0 {
		c.sendSource()
	}
}

// tooLate reads the answer of a script that came too late to create anything: {"late", seconds, µs of TIME}.
func tooLate(value any) (redis time.Duration, late bool) {
	fields, _ := value.([]any)
	if len(fields) != 3 || fields[0] != "late" {
		return 0, false
	}
	seconds, whole := fields[1].(int64)
	micros, exact := fields[2].(int64)
	return time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond, whole && exact
}
