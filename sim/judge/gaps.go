package judge

import (
	"cmp"
	"slices"
	"time"
)

// gaps: "While nothing fails, a queued waiter gets a key in less than 0.3 s after its release or the
// end of its min hold of up to 10 s. It gets a key that expires in less than 1.6 s.", and "if the
// message of a hand-over is lost, the line gets the lock about a second later, rarely up to five".
func gaps(h *History, broken func(time.Duration, string, ...any)) {
	taken, expires := h.taken()
	for _, c := range h.calls {
		if !c.waits() {
			continue
		}
		place := c.Places[0]
		from, to := max(c.Begun, h.calm), min(c.waited(), c.Waits, h.over)
		for _, free := range without(span{from, to}, taken[place]) {
			bound := 300*time.Millisecond + 10*c.Trip
			switch {
			case h.Faulty:
				bound = 5*time.Second + 2*c.Poll + h.Back // so much longer does a lock last
			case c.Quorum, c.Whole, !c.Queues:
				bound = time.Second + 8*c.Poll
			case slices.Contains(expires[place], free.from):
				bound = 1600 * time.Millisecond
			}
			if free.to-free.from > bound {
				broken(free.from, "%v: %q was free for %v while it waited", c, place, free.to-free.from)
			}
		}
	}
}

// waits reports whether a call waits for one key.
func (c *Call) waits() bool {
	return c.What != "DoAll" && c.mayWait() && !c.Migrates && len(c.Places) == 1 && c.Panic == ""
}

// mayWait reports whether WithMaxWait bounds a call.
func (c *Call) mayWait() bool { return c.What == "Lock" || c.What == "Do" || c.What == "DoAll" }

// waited returns until when a call has waited.
func (c *Call) waited() time.Duration {
	if len(c.Holds) > 0 {
		return c.Holds[0].Granted
	}
	return c.Returned
}

type span struct{ from, to time.Duration }

// taken returns when each key was taken, in the order of time. A semaphore is while the smallest
// limit in use is reached. expires has the instants at which a key became free without a release.
func (h *History) taken() (all map[string][]span, expires map[string][]time.Duration) {
	all, expires = make(map[string][]span), make(map[string][]time.Duration)
	least := make(map[string]int)
	for _, c := range h.calls {
		for _, place := range c.Places {
			if least[place] == 0 || c.Limit < least[place] {
				least[place] = c.Limit
			}
			if len(c.Places) > 1 || c.Migrates || !c.waits() && c.acquires() {
				all[place] = append(all[place], span{c.Begun, c.Returned}) // it has, or may have, the key meanwhile
				expires[place] = append(expires[place], c.Returned)        // or may have had
			}
		}
	}
	for _, k := range h.holds {
		for _, place := range k.Places {
			all[place] = append(all[place], span{k.Granted, h.kept(k)})
			if k.back == Never {
				expires[place] = append(expires[place], h.kept(k))
			}
		}
	}
	for place, spans := range all {
		all[place] = crowded(spans, max(least[place], 1))
	}
	return all, expires
}

// kept returns until when a lock, or its keep, keeps others out at most.
func (h *History) kept(k *Hold) time.Duration {
	until := h.busy(k)
	if k.Unlocking != Never {
		until = max(until, min(k.Unlocking, Never/2)+k.Keep, k.Granted+k.MinHold)
	}
	return until
}

// crowded returns when at least n spans overlap.
func crowded(spans []span, n int) (some []span) {
	type edge struct {
		at   time.Duration
		more int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.more, a.more)) })
	count := 0
	for _, e := range edges {
		before := count
		count += e.more
		switch {
		case before < n && count >= n:
			some = append(some, span{from: e.at})
		case before >= n && count < n:
			some[len(some)-1].to = e.at
		}
	}
	return some
}

// without returns what is left of s without others, which are in order.
func without(s span, others []span) (rest []span) {
	for _, o := range others {
		if o.to <= s.from || o.from >= s.to {
			continue
		}
		if o.from > s.from {
			rest = append(rest, span{s.from, o.from})
		}
		s.from = max(s.from, o.to)
	}
	if s.from < s.to {
		rest = append(rest, s)
	}
	return rest
}
