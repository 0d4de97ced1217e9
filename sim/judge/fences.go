package judge

import "time"

// passes is how many fences a turn has.
const passes = 64

// fences: "A number that grows with every grant of a lock, of a permit, and of a writer." and "With
// `NewReadWrite`, a writer's fence is above every earlier fence. A reader's fence is above the fences
// of all earlier writers." and "redlatch does not pass a lock on after a call of `Token` or `Extend`,
// with several permits,"
//
// "The server makes a grant, returns to older data and makes the next grant, all within 10 ms." has no order.
//
// A grant is earlier if it was known before the call of the other. Of holders that exclude each
// other, those who are granted a key one after the other were so in that order.
func fences(h *History, broken func(time.Duration, string, ...any)) {
	earlier := make(map[string][]*Hold)
	for _, k := range h.holds {
		if !k.Fenced {
			if k.Fence != 0 {
				broken(k.Granted, "%v: there are none", k)
			}
			continue
		}
		if h.loses() && k.Quorum { // such a node would have to stay away
			continue
		}
		place := k.Places[len(k.Places)-1] // of a migration, that of to
		if k.Mode == Permit && !k.Lock && k.Fence%passes > 0 {
			broken(k.Granted, "%q: %v was passed on", place, k)
		}
		for _, o := range earlier[place] {
			known := o.order < k.Call.order
			if h.loses() && k.Granted-o.Granted < 10*time.Millisecond+k.Trip {
				continue
			}
			if k.Lock && o.Limit != k.Limit && k.Fence%passes > 0 {
				continue // its turn may have begun before the call of o
			}
			ordered := !mayShare(o, k) && !o.Adopted && !k.Adopted && o.Of == nil && k.Of == nil && !h.loses()
			if (known || ordered) && o.Fence >= k.Fence && (k.Mode != Reader || o.Mode != Reader) {
				broken(k.Granted, "%q: %v, after %v", place, k, o)
			}
		}
		earlier[place] = append(earlier[place], k)
	}
}
