package fencemodel

import "math/bits"

// The explored world: 3 nodes, a few attempts, small fences.
const (
	explored    = 3
	majority    = explored/2 + 1
	maxAttempts = 4
	maxFence    = 15
)

// bounds limit what the explorer visits.
type bounds struct {
	attempts int    // acquisitions in all, each with a token of its own
	clients  int    // acquisitions that may be open at once
	resends  uint16 // how often an acquire arrives once more
	wipes    uint16 // how often a node is emptied
	counters fence  // the nodes' counters begin anywhere from 0 to this
	plain    bool   // without the reductions of explore.go and reduce.go
}

// A state is the whole world at one moment, with the messages in flight.
type state struct {
	nodes    [explored]node
	attempts [maxAttempts]attempt
	late     [explored]uint16 // acquires of ended attempts that may still arrive
	granted  fences
	healed   uint16 // by bit: nodes that were healed with the highest fence, see wipe
	resends  uint16 // that are left
	wipes    uint16 // that are left
}

// An attempt is one acquisition.
type attempt struct {
	phase phase
	f     fence // of the round, or the fence that was granted
	after fence // the highest fence that had been granted when it began
	legs  [explored]leg
}

type phase uint16

const (
	fresh   phase = iota // not begun
	voting               // steps 1 and 2
	raising              // steps 3 and 4
	granted              // f is its fence
	over                 // given up
)

func (a *attempt) open() bool { return a.phase == voting || a.phase == raising }

// A leg is the messages in flight between an attempt and a node.
type leg struct {
	acquires uint16 // how often the acquire may still arrive
	raises   fences // raises that may still arrive
	said     fences // counters in replies that may have arrived
}

// fences is a set of fences.
type fences uint16

func set(f fence) fences { return 1 << f }

func (s fences) has(f fence) bool { return s&set(f) != 0 }

// above returns the fences of s that are larger than f.
func (s fences) above(f fence) fences { return s &^ (set(f)<<1 - 1) }

// highest returns the largest fence of s, or 0 for the empty set. No set contains 0.
func (s fences) highest() fence { return fence(bits.Len16(uint16(s|1)) - 1) }

// each yields the fences of s in ascending order.
func (s fences) each(yield func(fence) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(fence(bits.TrailingZeros16(uint16(s)))) {
			return
		}
	}
}

// tokenOf returns the token of the attempt with this index.
func tokenOf(attempt int) token { return token(attempt + 1) }
