package judge

import "time"

// late: calls that have ended "soon leave nothing in Redis". Each command that creates something says until
// when it may, by the clock of Redis: its op timeout bounds that. Nothing is created later.
//
// What is known of the clock of Redis is too late by what it was set back, or has lost, since.
func late(h *History, broken func(time.Duration, string, ...any)) {
	for _, e := range h.Events {
		if e.Kind != Used {
			continue
		}
		var most time.Duration
		for _, c := range h.calls {
			if c.Owner == e.Owner && shares(c.Places, e.Places) {
				most = max(most, c.Timeout)
			}
		}
		if h.Faulty {
			most += h.Back + 100*time.Millisecond
		}
		if e.Text != "" {
			broken(e.At, "%q: %s has created something with commands that came too late: %s", e.Places, e.Owner, e.Text)
		}
		if e.For > most {
			broken(e.At, "%q: a command of %s has %v to create something, of at most %v", e.Places, e.Owner, e.For, most)
		}
	}
}
