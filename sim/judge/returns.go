package judge

import (
	"time"

	"github.com/redlatch/redlatch"
)

// returns: "`Lock` and `TryLock` return when ctx ends, even in the middle of a command", and "If
// Redis hangs, it takes little longer than the op timeout. Exception: just after a hand-over it takes
// up to 2 s.", of Unlock. A call does not wait for a client that was closed.
func returns(h *History, broken func(time.Duration, string, ...any)) {
	for _, c := range h.calls {
		if by := c.latest(); min(c.Returned, h.over) > by {
			broken(by, "%v has not returned until %v: %v", c, c.Returned, c.Err)
		}
	}
}

// lateBy is how much longer than their timeout some commands of a call take.
const lateBy = 4 * time.Millisecond

// closes is how long a line may take to notice that its client is closed, by a look.
const closes = 5 * time.Second

// latest returns when a call must have returned.
func (c *Call) latest() time.Duration {
	bound := Never
	switch c.What {
	case "TryLock", "TryDo":
		bound = c.attempt()
	case "TryDoAll":
		bound = time.Duration(len(c.Places)) * c.attempt()
	case "Extend", "Inspect":
		bound = c.Timeout
	case "Forget": // it ends each keep of a permit
		bound = 20 * c.Timeout
	case "Adopt":
		if bound = c.Timeout; c.Mode == Reader { // it acquires a permit
			bound = c.attempt()
		} else if c.Quorum { // nodes that attest another fence are asked again
			bound *= 2
		}
	case "Unlock", "UnlockAfter":
		bound = c.unlock()
	}
	by := c.Waits
	if by < c.Ends { // each key that is left when the time of WithMaxWait has passed gets an attempt
		by = min(c.Ends, by+time.Duration(len(c.Places)-1)*c.attempt())
	}
	if bound < Never {
		if c.Migrates {
			bound *= 2
		}
		by = min(by, c.Begun+bound+lateBy)
	}
	if c.Closed > 0 && len(c.Holds) == 0 && c.What != "Lead" { // the line may have the key, until it is lost
		by = min(by, max(c.Begun, c.Closed)+3*c.ttl()+closes)
	}
	switch c.What { // they release what they have been granted
	case "DoAll", "TryDoAll", "Do", "TryDo", "Lead":
		end := c.Begun
		for _, k := range c.Holds {
			if k.Unlocking == Never {
				return Never // a function still runs
			}
			end = max(end, k.Unlocking)
		}
		if c.What == "Lead" { // another term may follow
			end = max(end, by)
		} else if end > c.Begun {
			by = end
		}
		releases := max(len(c.Holds), len(c.Places)-1)
		if !isAny(c.Err, redlatch.ErrNotAcquired, redlatch.ErrUnavailable) { // its ctx ended when the last lock was granted
			releases = len(c.Places)
		}
		if by < Never/2 {
			by = max(by, end) + time.Duration(releases)*(c.unlock()+lateBy)
		}
	case "Lock", "TryLock":
		if c.Migrates && by < Never/2 { // the other side
			by += c.unlock() + lateBy
		}
	}
	return by
}

// attempt bounds an attempt and its release. A quorum repeats one that split the votes.
func (a *Ask) attempt() time.Duration {
	if a.Quorum {
		return 3 * a.Timeout
	}
	return 2 * a.Timeout
}

// unlock bounds a release. An extension from a claim is waited for.
func (a *Ask) unlock() time.Duration {
	bound := max(a.Timeout, 2*time.Second, a.MinHold)
	if a.Migrates {
		bound *= 2
	}
	return bound
}
