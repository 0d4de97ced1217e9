package judge

import "time"

// hooks: "report each grant, and its end, once."
func hooks(h *History, broken func(time.Duration, string, ...any)) {
	open := make(map[string]int) // locks that have not ended, by the Locker
	for _, e := range h.Events {
		switch {
		case e.Kind != Hooked:
		case e.Text == "Acquired":
			open[e.Owner]++
		case e.Text == "Lost" || e.Text == "Released":
			if open[e.Owner]--; open[e.Owner] < 0 {
				broken(e.At, "%s of %s, which has no lock any more", e.Text, e.Owner)
				open[e.Owner] = 0
			}
		}
	}
	for owner, n := range open {
		if n > 0 {
			broken(h.over, "%s was not told of the end of %d locks", owner, n)
		}
	}
}
