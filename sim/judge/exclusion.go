package judge

import (
	"slices"
	"time"
)

// exclusion: "At most one holder trusts the lock on a key at a time. For a semaphore, at most `limit`
// holders do. A reader and a writer never do."
//
// Each caller of a semaphore brings its limit. Of those who hold a key at one instant, one was granted
// it last, while all others had it. Those of whom a server has lost the key do not count.
func exclusion(h *History, broken func(time.Duration, string, ...any)) {
	holding := make(map[string][]*Hold)
	for _, k := range h.holds {
		for _, place := range k.Places {
			held := slices.DeleteFunc(holding[place], func(o *Hold) bool {
				return o.trusted() <= k.Granted || h.lost(o, k.Granted) || h.lost(k, k.Granted)
			})
			for _, o := range held {
				if !mayShare(k, o) && k.trusted() > k.Granted {
					broken(k.Granted, "%q: %v, beside %v", place, k, o)
				}
			}
			held = append(held, k)
			if n, limit := permits(held); n > limit {
				broken(k.Granted, "%q: %d permits, and a limit of %d, with %v", place, n, limit, k)
			}
			holding[place] = held
		}
	}
}

// mayShare reports whether two may hold a key at once.
func mayShare(a, b *Hold) bool {
	return root(a) == root(b) || a.Mode == b.Mode && (a.Mode == Permit || a.Mode == Reader)
}

// root returns the lock whose token was adopted first.
func root(k *Hold) *Hold {
	for k.Of != nil && k.Mode != Reader {
		k = k.Of
	}
	return k
}

// permits counts the permits, and returns the largest limit among them.
func permits(held []*Hold) (n, limit int) {
	roots := make(map[*Hold]bool)
	for _, k := range held {
		if k.Mode == Permit {
			roots[root(k)] = true
			limit = max(limit, root(k).Limit)
		}
	}
	return len(roots), limit
}
