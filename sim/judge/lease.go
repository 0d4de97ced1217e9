package judge

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch"
)

// lease: "The lease is counted from before the command is sent. So a slow reply shortens it, and
// never stretches it.", "Holders get `ErrLost` before Redis gives the key away." and "Redis cannot be
// reached for less than about two thirds of the TTL | Locks survive.": they do if it can be reached.
func lease(h *History, broken func(time.Duration, string, ...any)) {
	for _, k := range h.holds {
		if ttl := k.ttl(); k.First > k.Granted+ttl-drift(ttl)-k.Grace && k.Of == nil && !h.extended(k) {
			broken(k.Granted, "%v: it lasts until %v, and the TTL is %v", k, k.First, k.TTL)
		}
		tooLong := errors.Is(k.Why, redlatch.ErrMaxHold)
		if errors.Is(k.Why, lost) && !h.Faulty && !k.Fixed && !tooLong && !k.Adopted && k.Of == nil {
			broken(k.Ended, "%v: nothing has failed, and it was lost: %v", k, k.Why)
		}
		if k.Gone && !h.loses() && !k.Adopted && k.Of == nil && !h.gaveBack(k) {
			broken(k.Ended, "%v: it ended, and Redis had not the key any more", k)
		}
	}
}

// gaveBack reports whether somebody who shares a lock gave it back at the instant of its end, or may
// have, as DoAll does when it has some of its locks.
func (h *History) gaveBack(k *Hold) bool {
	for _, c := range h.calls {
		all := c.What == "DoAll" || c.What == "TryDoAll"
		if all && c.Owner == k.Owner && k.Mode == Reader && shares(c.Places, k.Places) &&
			c.Begun <= k.Ended && c.Returned >= k.Ended {
			return true
		}
	}
	for _, o := range h.holds {
		if o.Owner == k.Owner && o.Fence == k.Fence && o.Unlocking == k.Ended {
			return true
		}
	}
	return false
}

// extended reports whether somebody who shares a lock has extended it: "an `Extend` or a loss of one
// of them applies to all", and so does what keeps writers out.
func (h *History) extended(k *Hold) bool {
	for _, o := range h.holds {
		longer := len(o.Extends) > 0 || o.Keep > 0 || o.MinHold > 0
		if longer && o.Mode == Reader && o.Owner == k.Owner && o.Fence == k.Fence {
			return true
		}
	}
	return false
}
