package node

import (
	"maps"
	"slices"
)

// Repeats returns how many calls the node, and those of its servers, still send though nobody waits for
// them.
func (n *Node) Repeats() int {
	n.mu.Lock()
	repeats, servers := n.repeats, slices.Collect(maps.Values(n.servers))
	n.mu.Unlock()
	for _, s := range servers {
		repeats += s.Repeats()
	}
	return repeats
}
