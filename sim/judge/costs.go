package judge

import (
	"strings"
	"time"
)

// costs: a grant and its release cost "two; none if a waiter of the same process" passed the lock on, a lock
// that is held "one each TTL/3, and one 20 ms after a hand-over", and the waiters of a process for one key
// "one each second or two; if they poll, ten a second or more". When all have left, nothing is sent.
//
// A line has one entry in the queue, and somebody who waits. A command more now and then does not break it:
// leases and keeps that end have their waiters look.
func costs(h *History, broken func(time.Duration, string, ...any)) {
	for _, e := range h.Events {
		switch {
		case e.Kind == Idle && e.For > 0:
			broken(e.At, "%d commands were sent in a day in which nobody asked for anything", e.For)
		case h.Faulty:
		case e.Kind == Queued:
			if n := h.lines(e); int(e.For) > n {
				broken(e.At, "%q: the queue has %d entries of %s, and its callers stand in %d lines", e.Places, e.For, e.Owner, n)
			}
		case e.Kind == Used:
			for word, most := range h.mostOf(e) {
				if e.Sent[word] > most {
					const text = "%q: %d scripts of %s that begin with %s, and at most %d are needed"
					broken(e.At, text, e.Places, e.Sent[word], e.Owner, word, most)
				}
			}
		}
	}
}

// lines returns in how many lines an owner waits for a key at the time of an event, or did just before: those who wait for
// permits have one for each, at most 16, and others one. A call with options of its own is a line.
func (h *History) lines(e Event) (n int) {
	type line struct {
		name  string
		limit int
	}
	callers := make(map[line]int)
	for _, c := range h.calls {
		if c.Owner != e.Owner {
			continue
		}
		until := c.Returned
		if len(c.Places) == 1 && c.What != "Lead" {
			until = c.waited()
		}
		just := 10*time.Millisecond + 10*c.Trip
		waits := (c.mayWait() || c.What == "Lead") && shares(c.Places, e.Places)
		if !waits || c.Begun > e.At || min(until, h.over)+just < e.At {
			continue
		}
		l, most := line{c.Line, c.Limit}, 1
		if c.Mode == Permit {
			most = min(max(c.Limit, 1), 16)
		}
		if callers[l]++; c.Line == "" || callers[l] <= most {
			n++
		}
		if c.Migrates { // its wait for one side begins anew with the other side, before the last entry has left
			n++
		}
	}
	return n
}

// mostOf returns how many commands of each kind an owner may need for a key.
func (h *History) mostOf(e Event) map[string]int {
	var inspects, extends, releases, acquires float64
	waits := make(map[string][]span) // of each line
	told := true                     // by messages, when the key is free
	shortest := time.Second          // lease, by whose end all lines look
	for _, c := range h.calls {
		if c.acquires() && shares(c.Places, e.Places) {
			shortest = min(shortest, c.TTL)
			if c.Mode != Alone && c.mayWait() { // its Locker looks for ghosts, when the channel is open again and when it looks
				inspects += 2
			}
		}
		switch mine := c.Owner == e.Owner && shares(c.Places, e.Places); {
		case c.What == "Inspect" && shares(c.Places, e.Places):
			inspects++
		case c.What == "Forget" && shares(c.Places, e.Places): // of any keeps
			inspects++
			releases += 20
		case !mine:
		case c.Hold > 0:
			extends++
			releases++
		default:
			told = told && c.Queues
			n := float64(max(len(c.Holds), 1))
			extends += 3*n + float64(c.held(h.over))/float64(c.renewal())
			releases += 3 * n
			acquires += 4 * n
			until := c.waited()
			if c.What == "Lead" {
				until = c.Returned
			}
			line := c.Line
			if line == "" || c.Mode == Permit && c.Limit > 1 { // several lines
				line += c.String()
			}
			waits[line] = append(waits[line], span{c.Begun, min(until, h.over)})
		}
	}
	most := map[string]int{"Extends": 4 + int(extends)}
	if e.Owner == "" {
		most["Returns"] = int(inspects)
	}
	if told {
		for _, line := range waits {
			for _, s := range crowded(line, 1) {
				acquires += 2.5 * (s.to - s.from).Seconds() * (1 + 1/shortest.Seconds())
			}
		}
		most["Acquires"], most["Releases"] = 10+int(1.1*acquires), 4+int(releases)
	}
	return most
}

// held returns for how long a call may have had locks. One for several keys had some before it knew.
func (c *Call) held(over time.Duration) (d time.Duration) {
	if strings.Contains(c.What, "All") || c.What == "Lead" || c.Migrates {
		return min(c.Returned, over) - c.Begun
	}
	for _, k := range c.Holds {
		d += min(k.Until, k.Unlocking, over) - k.Granted
	}
	return d
}

// renewal returns how often a lock is renewed.
func (a *Ask) renewal() time.Duration {
	if a.Fixed {
		return Never
	}
	return min(a.TTL/3, (a.TTL-drift(a.TTL)-a.Grace)/2)
}
