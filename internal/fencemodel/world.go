package fencemodel

import "math/bits"

// The explored world: 3 nodes, a few attempts, small fences.
const (
	explored    = 3
	majority    = explored/2 + 1
	maxAttempts = 4
	maxFence    = 15
)

// bounds say how far the explorer looks.
type bounds struct {
	attempts int    // acquisitions in all, each with a token of its own
	clients  int    // acquisitions under way at once
	resends  uint16 // how often an acquire lands once more
	wipes    uint16 // how often a node is emptied
	counters fence  // the nodes' counters begin anywhere from 0 to this
	plain    bool   // without the reductions of explore.go and reduce.go
}

// A state is all there is to know at one moment, the messages under way included.
type state struct {
	nodes    [explored]node
	attempts [maxAttempts]attempt
	late     [explored]uint16 // acquires that may still land, of attempts that have ended
	granted  fences
	healed   uint16 // by bit: nodes whose healing vouches for the highest fence, see wipe
	resends  uint16 // still to come
	wipes    uint16 // still to come
}

// An attempt is one acquisition.
type attempt struct {
	phase phase
	f     fence // of the round, or granted
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

// A leg is what is under way between an attempt and a node.
type leg struct {
	acquires uint16 // how often the acquire may still land
	raises   fences // raises that may still land
	said     fences // counters in replies that may have arrived
}

// fences is a set of fences.
type fences uint16

func set(f fence) fences { return 1 << f }

func (s fences) has(f fence) bool { return s&set(f) != 0 }

// above returns those larger than f.
func (s fences) above(f fence) fences { return s &^ (set(f)<<1 - 1) }

// highest returns 0 for the empty set: no set has 0 in it.
func (s fences) highest() fence { return fence(bits.Len16(uint16(s|1)) - 1) }

// each yields from the lowest up.
func (s fences) each(yield func(fence) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(fence(bits.TrailingZeros16(uint16(s)))) {
			return
		}
	}
}

// tokenOf returns the token of the attempt with an index.
func tokenOf(attempt int) token { return token(attempt + 1) }
