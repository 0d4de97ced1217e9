package judge

import "time"

// ghosts: "If an attempt gets no reply, redlatch releases the lock that may have been granted."
//
// Nobody's token stays in Redis for longer than a claim and what a release takes. It ends later if the
// clock of Redis was set back.
func ghosts(h *History, broken func(time.Duration, string, ...any)) {
	type token struct{ place, text string }
	since := make(map[token]time.Duration)
	for _, e := range h.Events {
		if e.Kind != Seen || e.At < h.calm {
			continue
		}
		t := token{e.Places[0], e.Text}
		from, seen := since[t]
		owned, patience := h.owned(t.place, e.Owner, e.At)
		switch {
		case from == Never: // it was reported
		case owned, !seen:
			since[t] = e.At
		case e.At-from > patience:
			broken(e.At, "%q: a token of %s has nobody since %v", t.place, e.Owner, from)
			since[t] = Never
		}
	}
}

// owned reports whether a Locker has, or asks for, a key at an instant, and how long its tokens may
// stay when it does not.
func (h *History) owned(place, owner string, at time.Duration) (owned bool, patience time.Duration) {
	claim := 3 * time.Second // and a look
	if h.Faulty {
		claim = 8 * time.Second // and a subscription that has to be replaced
	}
	claim += h.Back
	for _, c := range h.calls {
		if c.Owner != owner || c.Begun > at || !shares(c.Places, []string{place}) {
			continue
		}
		patience = max(patience, claim+3*c.Timeout)
		if c.Returned >= at && !c.waits() { // a line takes up what it is handed
			return true, patience
		}
		for _, k := range c.Holds {
			if k.Granted <= at && h.busy(k) >= at {
				return true, patience
			}
		}
	}
	return false, patience
}
