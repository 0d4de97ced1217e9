package judge

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
)

// answers: "who holds it, since when, and who waits". Each field of a [redlatch.Status] and of a
// [redlatch.HeldError] was true at an instant of its call. A caller that waits may be told what its line
// has learned before.
func answers(h *History, broken func(time.Duration, string, ...any)) {
	for _, c := range h.calls {
		var held *redlatch.HeldError
		if c.Returned != Never && !c.failed() && errors.As(c.Err, &held) {
			h.refusal(c, held, c.Returned, broken)
		}
	}
	for _, e := range h.Events {
		if e.Kind == Answered {
			h.status(h.number[e.Call], e.Status, broken)
		}
	}
}

// refusal checks an error that describes the owner of a key, which a call was told at an instant.
func (h *History) refusal(
	c *Call, r *redlatch.HeldError, at time.Duration, broken func(time.Duration, string, ...any),
) {
	from := c.Begun
	if c.mayWait() || c.What == "Lead" {
		from -= h.stale(c)
	}
	o := h.outlook(c.Places, from, at)
	own := r.Owner == c.Owner
	switch {
	case r.Kept && (r.Owner != "" || !r.Since.IsZero()):
		broken(at, "%v: the key is kept, and has an owner: %+v", c, r)
	case r.Kept && !o.keeps():
		broken(at, "%v: nobody keeps the key: %+v", c, r)
	case r.Kept:
	case r.Owner == "" && !c.Whole && !c.Quorum && !h.Faulty: // else those who wait may come first for a key that is gone
		broken(at, "%v: no owner: %+v", c, r)
	case r.Owner != "" && !o.has(r.Owner):
		broken(at, "%v: %q has no lock: %+v", c, r.Owner, r)
	case r.Since.IsZero() && r.Owner != "" && !own && !c.Whole:
		broken(at, "%v: no time since which it is held: %+v", c, r)
	case !r.Since.IsZero() && r.Owner != "" && !o.asked(r.Owner, r.Since):
		broken(at, "%v: %q did not ask for it at %v", c, r.Owner, r.Since.Sub(h.Start))
	}
	if most := o.longest(); r.TTL < 0 || r.TTL > most {
		broken(at, "%v: %v are left, of at most %v", c, r.TTL, most)
	}
	if r.TTL == 0 && r.Owner != "" && !own && !c.Whole && !c.Quorum {
		broken(at, "%v: %q has it, for how long is not said", c, r.Owner)
	}
	if low, high, known := o.left(r.Owner); known && r.TTL > 0 && !r.Kept && (r.TTL < low || r.TTL > high) {
		broken(at, "%v: %v are left of the lock of %q, and not %v to %v", c, r.TTL, r.Owner, low, high)
	}
}

// stale returns how old the newest refusal of a line may be.
func (h *History) stale(c *Call) time.Duration {
	if h.Faulty {
		return 20 * time.Second
	}
	return 2500*time.Millisecond + c.Poll
}

// status checks an answer of Inspect.
func (h *History) status(c *Call, s *redlatch.Status, broken func(time.Duration, string, ...any)) {
	o := h.outlook(c.Places, c.Begun, c.Returned)
	say := func(is bool, format string, args ...any) {
		if is {
			broken(c.Returned, "%v: "+format+": %+v", append(append([]any{c}, args...), s)...)
		}
	}
	several := c.Mode != Alone
	say(s.Held && s.Kept, "the key is held, and kept")
	say(s.Held != (s.Token != "" && s.Holders > 0), "a token and holders, or neither")
	say(s.Owner == "" != !s.Held, "an owner, or neither")
	say(s.Held && !o.has(s.Owner), "%q has no lock", s.Owner)
	say(s.Held && (s.Since.IsZero() && !c.Whole || !s.Since.IsZero() && !o.asked(s.Owner, s.Since)),
		"%q did not ask for it then, %v", s.Owner, s.Since.Sub(h.Start))
	say(s.Kept && !o.keeps(), "nobody keeps it")
	say(s.TTL < 0 || s.TTL > o.longest() || s.TTL > 0 && !s.Held && !s.Kept, "a TTL of at most %v", o.longest())
	if low, high, known := o.left(s.Owner); known && s.Held {
		say(s.TTL < low || s.TTL > high, "%v to %v are left", low, high)
	}
	surely := o.surely()
	say(s.TTL == 0 && s.Held && surely > 0, "no TTL")
	partly := h.Faulty && (c.Quorum || c.Migrates) // not all servers answer
	say(!s.Held && surely > 0 && !partly, "somebody has it")
	say(s.Held && s.Holders < surely && several, "%d have it", surely)
	say(s.Holders > 1 && !several, "it has one holder")
	say(several != (s.Holding != nil) && s.Held, "holders")
	say(several && len(s.Holding) != min(s.Holders, 100), "all holders")
	for _, k := range s.Holding {
		say(!o.has(k.Owner) || k.Token == "", "%q has no lock", k.Owner)
		say(!o.asked(k.Owner, k.Since), "%q did not ask for it then", k.Owner)
		say(k.TTL <= 0 || k.TTL > o.longest(), "a TTL of at most %v", o.longest())
		say(k.Writes && s.Holders > 1, "a writer beside others")
	}
	say(len(s.Queue) != min(s.Waiters, 100), "all who wait")
	longest := func(a, b redlatch.Waiter) int { return cmp.Compare(b.Waited, a.Waited) }
	say(!slices.IsSortedFunc(s.Queue, longest), "the order of those who wait")
	for _, w := range s.Queue {
		since := o.waits(w.Owner)
		say(since == Never, "%q does not wait", w.Owner)
		tooLong := since != Never && !h.Faulty && w.Waited > o.to-since+c.Trip+time.Millisecond
		say(w.Waited < 0 || tooLong, "%q waits since %v", w.Owner, since)
	}
}

// An outlook is what may be said of some keys between two instants.
type outlook struct {
	*History
	places   []string
	from, to time.Duration
	asks     []*Call // for one of them, begun before its end
}

func (h *History) outlook(places []string, from, to time.Duration) outlook {
	o := outlook{h, places, from, to, nil}
	for _, c := range h.calls {
		if c.acquires() && c.Begun <= to && shares(c.Places, places) {
			o.asks = append(o.asks, c)
		}
	}
	return o
}

// has reports whether an owner may have had one of the keys, by the clock of a server that was set back.
func (o *outlook) has(owner string) bool {
	return slices.ContainsFunc(o.asks, func(c *Call) bool { return c.Owner == owner && o.reach(c)+o.Back >= o.from })
}

// asked reports whether a caller of an owner asked for one of the keys at a time.
func (o *outlook) asked(owner string, since time.Time) bool {
	at := since.Sub(o.Start)
	return slices.ContainsFunc(o.asks, func(c *Call) bool {
		return c.Owner == owner && c.Begun.Truncate(time.Millisecond) <= at && at <= min(c.Returned, o.to)
	})
}

// locks yields the locks on the keys that were granted before the end.
func (o *outlook) locks(yield func(*Hold) bool) {
	for _, c := range o.asks {
		for _, k := range c.Holds {
			if k.Granted <= o.to && shares(k.Places, o.places) && !yield(k) {
				return
			}
		}
	}
}

// keeps reports whether somebody may have kept others out after a release.
func (o *outlook) keeps() bool {
	for k := range o.locks {
		if (k.Keep > 0 || k.MinHold > 0) && k.Unlocking <= o.to && o.kept(k)+keepMargin+drift(k.Keep) >= o.from {
			return true
		}
	}
	return false
}

// keepMargin is how much longer than it was asked to Redis may keep a key.
const keepMargin = 101 * time.Millisecond

// longest returns the most that may be left of a lease, or of a keep.
func (o *outlook) longest() (most time.Duration) {
	for _, c := range o.asks {
		most = max(most, c.ttl())
	}
	for k := range o.locks {
		most = max(most, k.Keep, k.MinHold)
		for _, x := range k.Extends {
			most = max(most, x.TTL)
		}
	}
	if slices.ContainsFunc(o.asks, func(c *Call) bool { return c.Whole }) {
		most += 3 * time.Second // whole seconds
	}
	return most + keepMargin + o.Back
}

// left returns what was left of the lock of an owner, if only one of its locks can be meant, and nothing
// has extended it.
func (o *outlook) left(owner string) (low, high time.Duration, known bool) {
	var one *Call
	for _, c := range o.asks {
		if c.Owner != owner || o.reach(c) < o.from {
			continue
		}
		if one != nil {
			return 0, 0, false
		}
		one = c
	}
	if one == nil || len(one.Holds) != 1 || o.Faulty || one.Mode != Alone || one.Quorum || one.Whole || one.Migrates {
		return 0, 0, false
	}
	k := one.Holds[0]
	if !k.Fixed || k.MaxHold > 0 || k.MinHold > 0 || k.Keep > 0 || len(k.Extends) > 0 || k.Adopted || k.Of != nil {
		return 0, 0, false
	}
	ends := k.First + drift(k.ttl()) + k.Grace
	return ends - o.to - time.Millisecond, ends - o.from + 10*k.Trip + drift(k.ttl()), true
}

// surely returns how many had the keys all the time.
func (o *outlook) surely() int {
	type one struct {
		*Hold
		owner string
		fence uint64
	}
	all := make(map[one]bool)
	for k := range o.locks {
		switch {
		case k.Granted >= o.from || k.trusted() <= o.to || o.lost(k, o.to):
		case k.Mode == Reader: // several may share a permit
			all[one{nil, k.Owner, k.Fence}] = true
		default:
			all[one{Hold: root(k)}] = true
		}
	}
	return len(all)
}

// waits returns since when callers of an owner may have waited, one behind the other; Never: none does.
func (o *outlook) waits(owner string) time.Duration {
	since, gone := Never, 20*time.Millisecond
	if o.Faulty {
		gone = time.Minute // the queue of a line that is gone
	}
	for _, c := range slices.Backward(o.asks) { // they began in this order
		until := c.Returned
		if len(c.Holds) > 0 && len(c.Places) == 1 && c.What != "Lead" {
			until = c.Holds[0].Granted
		}
		waits := (c.mayWait() || c.What == "Lead") && c.Owner == owner
		if waits && min(until, o.over)+gone+10*c.Trip >= min(since, o.from) {
			since = min(since, c.Begun)
		}
	}
	return since
}
