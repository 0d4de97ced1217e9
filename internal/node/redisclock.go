package node

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A clockOffset is how far the clock of Redis is ahead of this process's:
//
//	ahead  = T − the instant at which an answer with a time T of Redis arrived
//	latest = deadline − timeout / 10 + ahead, with the deadline of the first send
//
// The answer was under way after T, so the offset is not too large, and what runs by latest runs
// before the deadline. If it is too small, the command is refused, and the refusal has the time. The
// fastest answer counts, so that a slow one does not shorten the time of the next send. The offset is
// too large if the clock of Redis was set back since, or has lost time. So it is known for an hour only.
type clockOffset struct {
	by    time.Duration
	until clock.Mono // it is known; 0: it never was
}

// offsetLasts is how long an offset is known. That one call an hour is sent twice costs nothing
// that can be noticed.
const offsetLasts = time.Hour

// told notes that an answer with the time redis, since 1970, arrived at now.
func (a *clockOffset) told(redis clock.Redis, now clock.Mono) {
	if by := time.Duration(redis) - time.Duration(now); now >= a.until || by > a.by {
		a.by, a.until = by, now.Add(offsetLasts)
	}
}

// latest returns the time of Redis, in µs since 1970, until which a call that is sent at now may
// still create something. limit is that time by the clock of the node. If the offset is not known,
// it is 0: Redis then refuses, and says the time.
func (a clockOffset) latest(now, limit clock.Mono) int64 {
	if now >= a.until {
		return 0
	}
	return time.Duration(limit.Add(a.by)).Microseconds()
}

// AppendLatest adds the word that says until when the script may create something, in µs of the
// clock of Redis: nine tenths of the timeout, counted from Began. A script that comes later changes
// nothing and answers {"late", seconds, µs of TIME}. The node sends a call that came too late once
// more, while there is time.
func (c *command) AppendLatest() {
	c.latest = len(c.words)
	c.words = append(c.words, 0)
}

// KeepsFrom says that the script keeps something for a time, which begins at the latest time. So a call that
// comes too late is still of use: what it keeps ends as if it had come in time. But the node may be wrong
// about the clock of Redis, which somebody has set, or which is that of another server now. So the script
// answers as if it could do nothing, which tells the time, and is sent once more with a minus sign before
// the latest time.
func (c *command) KeepsFrom() { c.from = true }

// latestLocked returns the latest time of a call that is sent at now.
func (n *Node) latestLocked(c *Call, now clock.Mono) int64 {
	if c.clock.until > 0 {
		return c.clock.latest(now, c.limit)
	}
	return n.clock.latest(now, c.limit)
}

// stampLocked writes the latest time into a call that is about to be sent. If it is not known,
// Redis refuses: the call then has the source of the script, which a server that was never asked
// may not have.
func (n *Node) stampLocked(c *Call, now clock.Mono) {
	if c.latest == 0 {
		return
	}
	latest := n.latestLocked(c, now)
	if c.toldNow {
		latest = -latest
	}
	if c.words[c.latest] = latest; latest == 0 {
		c.sendSource()
	}
}

// inTimeLocked reports whether a call that came too late may come in time now: the refusal has
// shown that its latest time was too early.
func (n *Node) inTimeLocked(c *Call, now clock.Mono) bool {
	return (now < c.limit || c.Insists) && n.latestLocked(c, now) > c.words[c.latest].(int64)
}

// tooLate reads the answer of a script that came too late to create anything: {"late", seconds, µs
// of TIME}.
func tooLate(value any) (redis clock.Redis, late bool) {
	fields, _ := value.([]any)
	if len(fields) != 3 || fields[0] != "late" {
		return 0, false
	}
	seconds, whole := fields[1].(int64)
	micros, exact := fields[2].(int64)
	return clock.RedisAt(seconds, micros), whole && exact
}
