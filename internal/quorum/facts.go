package quorum

import (
	"slices"
	"time"
)

// Facts about the answers. After the decision they do not change.

// Outcome returns what a node answered last.
func (o *Op) Outcome(node int) Outcome { return o.nodes[node].Outcome }

// Holder returns the owner that most nodes named, and how many did. If they named all others
// together as often, it is "".
func (o *Op) Holder() (holder string, nodes int) {
	all := 0
	for i := range o.nodes {
		name := o.nodes[i].Holder
		if name == "" {
			continue
		}
		all++
		if n := o.count(func(m *member) bool { return m.Holder == name }); n > nodes {
			holder, nodes = name, n
		}
	}
	if 2*nodes <= all {
		return "", 0
	}
	return holder, nodes
}

// Left returns how long a quorum keeps the key for its holder, or 0 if no quorum named one.
func (o *Op) Left() time.Duration {
	holder, nodes := o.Holder()
	if nodes < o.token.need {
		return 0
	}
	var room [Most]time.Duration
	all := room[:0]
	for i := range o.nodes {
		if m := &o.nodes[i]; m.Holder == holder {
			all = append(all, m.Left)
		}
	}
	slices.Sort(all)
	return all[nodes-o.token.need]
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
