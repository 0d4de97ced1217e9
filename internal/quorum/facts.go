package quorum

import (
	"slices"
	"time"
)

// Facts about the answers. After the decision they do not change.

// Outcome returns what a node answered last.
func (o *Op) Outcome(node int) Outcome { return o.nodes[node].Outcome }

// Holder returns the owner that most nodes named in refusals, or "", and how many nodes did.
func (o *Op) Holder() (most string, nodes int) {
	for i := range o.nodes {
		if m := &o.nodes[i]; m.Outcome == Held && m.Holder != "" {
			n := o.count(func(n *member) bool { return n.Outcome == Held && n.Holder == m.Holder })
			if n > nodes {
				most, nodes = m.Holder, n
			}
		}
	}
	return most, nodes
}

// Split reports whether an acquire was refused though no quorum named one owner: attempts split the votes.
func (o *Op) Split() bool {
	_, nodes := o.Holder()
	return o.result == Refused && nodes < o.token.need
}

// Divided reports whether the refusals of an acquire name no owner more often than all others together.
func (o *Op) Divided() bool {
	_, nodes := o.Holder()
	return 2*nodes <= o.counts()[Held]
}

// Soonest returns when a quorum of the nodes can be free at the earliest. It is 0 if that is unknown or can be now.
func (o *Op) Soonest() time.Duration {
	var room [Most]time.Duration
	free := room[:0]
	for i := range o.nodes {
		switch m := &o.nodes[i]; {
		case m.Outcome == Done:
			free = append(free, 0)
		case m.Outcome == Held && m.Left > 0:
			free = append(free, m.Left)
		}
	}
	if len(free) < o.token.need {
		return 0
	}
	slices.Sort(free)
	return free[o.token.need-1]
}

// Status returns the holder that a quorum agrees on, "" if the key is free, and how long a quorum keeps the key for it.
func (o *Op) Status() (holder string, left time.Duration, agreed bool) {
	var room [Most]time.Duration
	for i := range o.nodes {
		if o.nodes[i].Outcome != Done {
			continue
		}
		holder, all := o.nodes[i].Holder, room[:0]
		for j := range o.nodes {
			if m := &o.nodes[j]; m.Outcome == Done && m.Holder == holder {
				all = append(all, m.Left)
			}
		}
		if len(all) >= o.token.need {
			slices.Sort(all)
			return holder, all[len(all)-o.token.need], true
		}
	}
	return "", 0, false
}

func (o *Op) counts() (c [outcomes]int) {
	for i := range o.nodes {
		c[o.nodes[i].Outcome]++
	}
	return c
}

func (o *Op) count(is func(*member) bool) (n int) {
	for i := range o.nodes {
		if is(&o.nodes[i]) {
			n++
		}
	}
	return n
}

// onlySilentPending reports whether all nodes without an answer were silent at their last command.
func (o *Op) onlySilentPending() bool {
	for i := range o.nodes {
		if o.nodes[i].Outcome == Pending && o.silent&(1<<i) == 0 {
			return false
		}
	}
	return true
}
