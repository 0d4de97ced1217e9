package judge

import (
	"slices"
	"time"
)

// order: "Redis serves lines in the order in which their first waiters came, give or take the time of
// a command." and "serves the waiters that were in the line when it began".
//
// Within a line the order is exact, once a caller was told that it waits: before, an error ends its wait.
// Between lines it is judged without faults. "The order also holds
// for a key that nobody released: its lease or min hold ended, or somebody deleted it." is judged
// alike.
func order(h *History, broken func(time.Duration, string, ...any)) {
	told := make(map[waits]time.Duration)
	for _, e := range h.Events {
		if e.Kind == Hooked && e.Text == "Waiting" && e.Report != nil {
			told[waits{e.Report.Owner, e.Places[0], e.At - e.Report.Elapsed}] = e.At
		}
	}
	waiting, last := make(map[string][]*Call), make(map[string]*Hold)
	for _, c := range h.calls {
		if c.waits() {
			waiting[c.Places[0]] = append(waiting[c.Places[0]], c)
		}
	}
	for _, k := range h.holds {
		place := k.Places[0]
		before := last[place]
		last[place] = k
		if !k.waits() || k.Mode == Reader || k.Mode == Permit && k.Limit > 1 || k.Of != nil {
			continue
		}
		adopted := h.adopted(place, k.Granted)
		for _, a := range waiting[place] {
			if a.waited() <= k.Granted || a.Waits <= k.Granted || a.Begun >= k.Begun {
				continue
			}
			at, known := told[waits{a.Owner, place, a.Begun}]
			inLine := a.Line != "" && a.Line == k.Line && (!h.Faulty || known && at < k.Begun)
			turn := before != nil && before.Fence/passes == k.Fence/passes
			between := !h.Faulty && !adopted && !turn && a.Queues && k.Queues && !a.Confirms && !h.asking(a, k) &&
				a.Begun+patience < h.filled(k)
			if inLine || between {
				broken(k.Granted, "%q: %v came at %v, and %v, which came at %v, still waits", place, k, k.Begun, a, a.Begun)
			}
		}
	}
}

// patience is how much later somebody must have come to be out of order. A line that polls at first
// queues after a second.
const patience = 1500 * time.Millisecond

// filled returns since when the line of k has waited: a caller that leaves keeps the place of its
// line. One of DoAll or Lead may have waited at any time of its call.
func (h *History) filled(k *Hold) time.Duration {
	since := k.Begun
	for _, c := range slices.Backward(h.calls) { // they began in this order
		if k.Line == "" || c.Line != k.Line || c.Begun >= since || !shares(c.Places, k.Places) {
			continue
		}
		until := min(c.waited(), c.Waits)
		if c.What == "DoAll" || c.What == "Lead" {
			until = c.Returned
		}
		if (c.mayWait() || c.What == "Lead") && until >= since {
			since = c.Begun
		}
	}
	return since
}

// asking reports whether the line of a asked for a key when k was granted it: its lock had just expired, so
// it had no entry in the queue. One that DoAll held may never have been seen.
func (h *History) asking(a *Call, k *Hold) bool {
	just := func(at time.Duration) bool { return k.Granted >= at-k.Trip && k.Granted <= at+a.Trip+k.Trip }
	return a.Line != "" && slices.ContainsFunc(h.calls, func(c *Call) bool {
		if c.Line != a.Line || !shares(c.Places, a.Places) {
			return false
		}
		return c.What == "DoAll" && just(c.Returned) ||
			slices.ContainsFunc(c.Holds, func(o *Hold) bool { return o.Until <= o.Unlocking && just(o.Until) })
	})
}

// adopted reports whether some lock on a key was adopted and not given back by then: the line of its
// first handle does not wait meanwhile, though the other one may have given it back.
func (h *History) adopted(place string, at time.Duration) bool {
	return slices.ContainsFunc(h.holds, func(k *Hold) bool {
		return k.Adopted && k.Granted <= at && at <= k.Unlocking && slices.Contains(k.Places, place)
	})
}
