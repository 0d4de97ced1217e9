package judge

import (
	"slices"
	"time"
)

// kept: "Nobody else gets a key during its min hold or the time of `UnlockAfter`." and "This holds if
// `Unlock` or `UnlockAfter` has returned nil. Redis measures that time, so it can differ by 1 %."
// That of a reader keeps only writers out. What a server has lost is not kept, and Forget ends a keep.
func kept(h *History, broken func(time.Duration, string, ...any)) {
	for i, k := range h.holds {
		if k.back == Never || k.Mode == Permit && k.Limit > 1 || k.Unlocking > k.trusted() {
			continue
		}
		until := k.Granted
		if k.MinHold > 0 && len(k.Holds) == 1 { // of several, the first were granted before they were known
			until = k.Granted + k.MinHold - drift(k.MinHold)
		}
		if k.Keep > 0 {
			until = max(until, k.Unlocking+k.Keep-drift(k.Keep))
		}
		for _, o := range h.holds[i+1:] {
			if !shares(o.Places, k.Places) || o.Granted <= k.Unlocking || o.Granted >= until || o.Of != nil || k.Adopted {
				continue
			}
			if k.Mode == Reader && o.Mode == Reader || o.Mode == Permit && o.Limit > 1 {
				continue
			}
			if h.lost(k, o.Granted) || h.forgotten(k, o.Granted) {
				continue
			}
			broken(o.Granted, "%q: %v, and %v keeps others out until %v", k.Places, o, k, until)
		}
	}
}

// forgotten reports whether Forget may have ended what a lock keeps before an instant.
func (h *History) forgotten(k *Hold, until time.Duration) bool {
	return slices.ContainsFunc(h.calls, func(c *Call) bool {
		return c.What == "Forget" && shares(c.Places, k.Places) && c.Begun <= until && c.Returned >= k.Unlocking
	})
}
