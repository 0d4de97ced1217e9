package history

import (
	"cmp"
	"slices"
)

// inTime returns the history with an earlier Return of grants. A known grant took effect before its
// lease was over, even if its owner, which may have been stopped, noted that later.
func inTime(ops []Op) []Op {
	all := slices.Clone(ops)
	for i, op := range all {
		if op.Kind == Grant && !op.Unknown && !op.Blurred && op.Until > op.Call {
			all[i].Return = min(op.Return, op.Until)
		}
	}
	return all
}

// ordered returns the history of one key in the order of its calls, in which each grant knows what
// comes before it.
func ordered(ops []Op) []Op {
	all := slices.Clone(ops)
	had := func(op Op) bool { return op.Kind == Grant && !op.Unknown }
	slices.SortStableFunc(all, func(a, b Op) int { return cmp.Compare(a.Fence, b.Fence) })
	var after uint64
	for i := range all {
		if all[i].mints() {
			all[i].after, after = after, all[i].Fence
		}
	}
	slices.SortStableFunc(all, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	turn := 0
	for i := range all {
		if had(all[i]) {
			turn++
			all[i].turn = turn
		}
	}
	// The ends of leases come from a map, in no fixed order.
	slices.SortStableFunc(all, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Return, b.Return), cmp.Compare(a.Token, b.Token))
	})
	return all
}

// withEnds returns the history of one key with the ends of its leases. If a lease was not surely
// released, it ended at its until or later, but before the next grant:
//
//	[until, the return of the first grant that was requested after this one returned]
//
// The second bound only saves porcupine useless tries: if an end may come early, a later end allows
// nothing more. An unknown release does nothing behind that bound, or behind a release that is sure: it ends there, or is
// left out. A lease on a blurred clock may end as soon as its grant has returned. A lease whose
// grant is unknown may end as soon as it was requested. But no lease ends before its last use. What a
// release keeps ends at its Kept or later.
func withEnds(ops []Op) []Op {
	leases := make(map[string]*lease)
	var grants []Op
	worker := 0
	for _, op := range ops {
		worker = max(worker, op.Worker+1) // a line of its own in the picture
		if op.Kind == Grant {
			leases[op.Token] = &lease{grant: op, until: op.Until, over: Never}
			if !op.Unknown {
				grants = append(grants, op)
			}
		}
	}
	for _, op := range ops {
		if l := leases[op.Token]; l != nil {
			if !op.Blurred {
				l.until = max(l.until, op.Until)
			}
			if op.Kind == Use {
				l.used = max(l.used, op.Call)
			}
			if op.keeps() {
				l.kept = max(l.kept, op.Kept)
			}
			if op.Kind == Release && !op.Unknown && !op.late() {
				l.released, l.over = true, min(l.over, op.Return)
			}
		}
	}
	slices.SortFunc(grants, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })

	all := slices.Clone(ops)
	add := func(l *lease, token string, from int64) (latest int64) {
		end := Op{Kind: End, Worker: worker, Key: l.grant.Key, Token: token, Call: from, Return: Never}
		first, _ := slices.BinarySearchFunc(grants, end.Call, func(g Op, t int64) int { return cmp.Compare(g.Return, t) })
		for _, g := range grants[first:] {
			if g.Call > l.grant.Return {
				end.Return = g.Return
				break
			}
		}
		all = append(all, end)
		return end.Return
	}
	for token, l := range leases {
		if l.kept > 0 {
			add(l, token+nobody, l.kept)
		}
		if l.released {
			continue
		}
		from := l.until
		switch {
		case l.grant.Unknown:
			from = l.grant.Call + 1
		case l.grant.Blurred:
			from = l.grant.Return
		}
		l.over = add(l, token, max(from, l.used))
	}
	idle := func(op Op) bool {
		l := leases[op.Token]
		return op.Kind == Release && op.Unknown && l != nil && op.Call >= l.over
	}
	all = slices.DeleteFunc(all, idle)
	for i, op := range all {
		if l := leases[op.Token]; op.Kind == Release && op.Unknown && l != nil {
			all[i].Return = min(op.Return, l.over)
		}
	}
	return all
}

// lease is what is known of one token.
type lease struct {
	grant    Op
	until    int64 // the latest
	used     int64 // when it was used last
	kept     int64 // how long a release keeps the key; 0: not at all
	released bool  // for sure, while it lasted
	over     int64 // when it has surely ended, by a release or in another way
}
