package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// A Call is one call of the library.
type Call struct {
	Ask
	N               int
	Begun, Returned time.Duration // Never: it has not returned
	Ends            time.Duration // when its ctx does
	Waits           time.Duration // until when it waits: its ctx, or WithMaxWait, ends that
	Err             error
	Panic           string
	Exit            string  // how its function left it, if not by a return
	Runs            int     // how often its function was called
	Result          *Event  // of the newest run; nil: it has not ended
	order           int     // its place among all events
	Holds           []*Hold // that it was granted
}

// A Hold is one handle on a lock.
type Hold struct {
	*Call
	N         int
	Places    []string
	Of        *Hold // whose token was adopted
	Adopted   bool  // by another one
	Granted   time.Duration
	Fence     uint64
	Until     time.Duration // the newest
	First     time.Duration // the one at the grant
	Checks    []Event       // with Extends
	Unlocking time.Duration // Never: it was not given back
	Keep      time.Duration // of UnlockAfter
	Ended     time.Duration // when Done was closed; Never: nobody has watched, or it has not ended
	Why       error
	Gone      bool    // Redis had no such token then
	CtxEnded  *Event  // of a function that ran under it; nil: there is none, or it has not ended
	Releases  []*Call // of Unlock
	Extends   []*Call
	order     int           // its place among all events
	back      time.Duration // when Redis, or the line, had it back; Never: that is unknown
	given     time.Duration // when it, or another handle of its token, was given back
}

// A History is what happened in a world.
type History struct {
	Events []Event
	Losses []Loss
	Faulty bool          // there are faults
	Back   time.Duration // by how much clocks of servers were set back, in sum
	Start  time.Time     // when the world began

	calls  []*Call
	number map[int]*Call
	holds  []*Hold
	calm   time.Duration // when the last fault has ended
	over   time.Duration
}

// A Loss is when servers lose keys, or their clock jumps forward.
type Loss struct {
	At     time.Duration
	Places []string // that may be lost
	Clock  bool     // so claims that were learned of by then may end later than they seem to
}

// loses reports whether anything is lost.
func (h *History) loses() bool { return len(h.Losses) > 0 }

// lost reports whether one of the keys of a lock may have been lost between its grant and an instant. The
// grant may have been known late, and what its line knows of the clock may be a few seconds old.
func (h *History) lost(k *Hold, until time.Duration) bool {
	const known, looks = 4 * time.Second, 5 * time.Second
	from := max(k.Begun, k.Granted-known) - 10*time.Millisecond // a turn, or readers who join
	return slices.ContainsFunc(h.Losses, func(l Loss) bool {
		since := from
		if l.Clock {
			since -= looks
		}
		return since <= l.At && l.At <= until && shares(l.Places, k.Places)
	})
}

// A Broken is a rule that was broken.
type Broken struct {
	Rule string
	At   time.Duration
	Text string
}

func (b Broken) String() string { return fmt.Sprintf("%v: %s: %s", b.At, b.Rule, b.Text) }

// A rule is a promise. check calls broken for each case in which it was broken.
type rule struct {
	name  string
	check func(h *History, broken func(at time.Duration, format string, args ...any))
}

var rules = []rule{
	{"exclusion", exclusion},
	{"fences", fences},
	{"ends", ends},
	{"lease", lease},
	{"returns", returns},
	{"errors", classes},
	{"gaps", gaps},
	{"order", order},
	{"kept", kept},
	{"left", left},
	{"ghosts", ghosts},
	{"hooks", hooks},
	{"answers", answers},
	{"reports", reports},
	{"late", late},
	{"costs", costs},
	{"functions", functions},
}

// Check returns the rules that were broken, in the order of time.
func Check(h History) (all []Broken) {
	h.digest()
	for _, r := range rules {
		r.check(&h, func(at time.Duration, format string, args ...any) {
			all = append(all, Broken{r.name, at, fmt.Sprintf(format, args...)})
		})
	}
	slices.SortStableFunc(all, func(a, b Broken) int { return cmp.Compare(a.At, b.At) })
	return all
}

// digest finds calls and locks in the events.
func (h *History) digest() {
	calls, holds := make(map[int]*Call), make(map[int]*Hold)
	for i, e := range h.Events {
		h.over = max(h.over, e.At)
		hold, call := holds[e.Hold], calls[e.Call]
		switch e.Kind {
		case Called:
			c := &Call{Ask: *e.Ask, N: e.Call, Begun: e.At, Returned: Never, Ends: e.Ends, order: i}
			if c.Waits = c.Ends; c.MaxWait > 0 && c.mayWait() {
				c.Waits = min(c.Ends, c.Begun+c.MaxWait)
			}
			calls[e.Call] = c
			h.calls = append(h.calls, c)
			h.method(holds[c.Hold], c)
		case Returned:
			call.Returned, call.Err = e.At, e.Err
		case Panicked:
			call.Returned, call.Panic = e.At, e.Text
		case Exited:
			call.Returned, call.Exit = e.At, e.Text
		case Runs:
			call.Runs, call.Result = call.Runs+1, nil
		case RunEnds:
			call.Result = &e
		case CtxEnded:
			hold.CtxEnded = &e
		case Granted:
			k := &Hold{
				Call: call, N: e.Hold, Places: e.Places, Of: holds[e.Of], Granted: e.At, Fence: e.Fence,
				Until: e.Until, First: e.Until,
				Unlocking: Never, Ended: Never, back: Never, given: Never, order: i,
			}
			if k.Of != nil {
				k.Of.Adopted = true
			}
			holds[e.Hold], h.holds, call.Holds = k, append(h.holds, k), append(call.Holds, k)
		case Checked:
			hold.Checks = append(hold.Checks, e)
			hold.Until = max(hold.Until, e.Until)
		case Unlocking:
			if hold.Unlocking == Never {
				hold.Unlocking, hold.Keep = e.At, e.For
				root(hold).given = min(root(hold).given, e.At)
			}
		case Ended:
			hold.Ended, hold.Why, hold.Gone = e.At, e.Err, e.Gone
			hold.Until = max(hold.Until, e.Until)
		case Calm:
			h.calm = e.At
		case Seen, Hooked, Answered, Queued, Used, Idle, Left:
		}
	}
	h.number = calls
	for _, k := range h.holds {
		k.back = k.released(h.Faulty)
	}
}

// method notes a call of a method of a lock.
func (*History) method(k *Hold, c *Call) {
	switch {
	case k == nil:
	case c.What == "Extend":
		k.Extends = append(k.Extends, c)
	default:
		k.Releases = append(k.Releases, c)
	}
}

// trusted returns until when the holder surely trusted the lock. Each handle of a token may give it
// back. Adopt "makes a second holder on purpose".
func (k *Hold) trusted() time.Duration { return min(k.trusts(), max(root(k).given, k.Granted)) }

func (k *Hold) trusts() time.Duration {
	last := k.Granted
	for _, e := range k.Checks {
		if e.Err != nil {
			return min(last, k.Unlocking)
		}
		last = e.At
	}
	switch {
	case k.Ended != Never:
		return min(k.Ended, k.Unlocking)
	case k.Unlocking != Never:
		return k.Unlocking
	}
	return last
}

// released returns when an Unlock has returned with nil; Never: none has. A function that runs under a
// lock does not see that, but without faults it is released when Do returns.
func (k *Hold) released(faulty bool) time.Duration {
	for _, c := range k.Releases {
		if c.Returned != Never && c.Err == nil {
			return c.Returned
		}
	}
	if strings.Contains(k.What, "Do") && !faulty && k.Unlocking < k.Until && !errors.Is(k.Why, lost) {
		return k.Returned
	}
	return Never
}

// busy returns until when the lock can keep others out at most.
func (h *History) busy(k *Hold) time.Duration {
	if k.back != Never {
		return k.back
	}
	ttl := k.ttl()
	until := k.Until
	for _, x := range k.Extends {
		if x.Err != nil {
			until = max(until, min(x.Returned, h.over)+x.TTL)
		}
	}
	if h.Faulty && !k.Fixed {
		until += ttl // a renewal of unknown outcome
	}
	if k.Whole {
		until += 3 * time.Second
	}
	if k.Unlocking == Never && !k.Fixed {
		return Never
	}
	return max(until+k.Grace+drift(until+k.Grace-k.Granted)+2*time.Millisecond, min(k.Unlocking, h.over))
}

// ttl is that of an acquire.
func (a *Ask) ttl() time.Duration {
	ttl := max(a.TTL, a.MinHold+time.Millisecond)
	if a.Whole {
		ttl = (ttl + time.Second - 1).Truncate(time.Second)
	}
	return ttl
}

// drift is what a lease of ttl ends early, or a keep at most.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

func (k *Hold) String() string {
	return fmt.Sprintf("lock %d of op %d, %s by %s, %v to %v, fence %d",
		k.N, k.Op, k.Mode, k.Owner, k.Granted, k.trusted(), k.Fence)
}

func (c *Call) String() string {
	return fmt.Sprintf("call %d, op %d: %s %q by %s", c.N, c.Op, c.What, c.Places, c.Owner)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

var lost = redlatch.ErrLost
