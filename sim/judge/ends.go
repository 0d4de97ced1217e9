package judge

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch"
)

// ends: "An end is final: `Done` is closed once, when `Unlock` is called or at `Until`, and `Err` returns
// the same error from then on. A second `Unlock` returns `ErrReleased`." With WithMaxHold it is at that
// time at the latest.
func ends(h *History, broken func(time.Duration, string, ...any)) {
	for _, k := range h.holds {
		if k.First <= k.Granted {
			broken(k.Granted, "%v: it had ended at %v", k, k.First)
		}
		if k.Ended != Never {
			ended(h, k, broken)
		}
		again(k, broken)
		var end error
		for _, e := range k.Checks {
			switch {
			case e.Err == nil && end != nil:
				broken(e.At, "%v: it is trusted again, after %v", k, end)
			case e.Err == nil && e.At >= e.Until:
				broken(e.At, "%v: it is trusted after its end, %v", k, e.Until)
			case e.Err == nil && k.Ended < e.At:
				broken(e.At, "%v: it is trusted, and Done was closed at %v", k, k.Ended)
			case e.Err == nil && k.MaxHold > 0 && e.At >= k.Granted+k.MaxHold:
				broken(e.At, "%v: it is trusted, and WithMaxHold says %v", k, k.MaxHold)
			case end != nil && end.Error() != e.Err.Error():
				broken(e.At, "%v: %v, and it was %v", k, e.Err, end)
			}
			end = e.Err
		}
	}
}

// ended checks an end that somebody has watched.
func ended(h *History, k *Hold, broken func(time.Duration, string, ...any)) {
	switch {
	case len(k.Holds) > 1 && k.Ended > k.Unlocking: // several are released one after the other
	case errors.Is(k.Why, redlatch.ErrReleased):
		if k.Ended != k.Unlocking {
			broken(k.Ended, "%v: ErrReleased, and Unlock was called at %v", k, k.Unlocking)
		}
	case !errors.Is(k.Why, lost):
		broken(k.Ended, "%v: it ended with %v", k, k.Why)
	case k.Unlocking < k.Ended:
		broken(k.Ended, "%v: it was lost after Unlock: %v", k, k.Why)
	case k.Ended > k.Until:
		broken(k.Ended, "%v: it ended after %v", k, k.Until)
	case k.Ended < k.Until && !h.loses() && !k.Adopted && k.Of == nil:
		broken(k.Ended, "%v: it ended before %v: %v", k, k.Until, k.Why)
	}
}

// again checks that a lock is released once.
func again(k *Hold, broken func(time.Duration, string, ...any)) {
	first := 0
	for _, c := range k.Releases {
		switch {
		case c.Returned == Never || errors.Is(c.Err, redlatch.ErrReleased):
		case first > 0:
			broken(c.Returned, "%v: it was released twice, by calls %d and %d: %v", k, first, c.N, c.Err)
		default:
			first = c.N
		}
	}
}
