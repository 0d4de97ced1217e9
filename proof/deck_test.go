package proof

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// deck deals faults: each kind once, then each once again, in another order.
type deck struct {
	mu     sync.Mutex // guards the fields below
	faults []fault
	rng    *rand.Rand
	left   []fault
}

func newDeck(faults []fault, rng *rand.Rand) *deck { return &deck{faults: faults, rng: rng} }

func (d *deck) draw() fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		d.left = slices.Clone(d.faults)
		d.rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	f := d.left[0]
	d.left = d.left[1:]
	return f
}

func TestDeckDealsEachFaultOnceARound(t *testing.T) {
	faults := (&world{strategy: setNXPX}).faults(false)
	d := newDeck(faults, rand.New(rand.NewPCG(1, 1)))
	for range 3 {
		seen := make(map[string]bool)
		for range faults {
			seen[d.draw().name] = true
		}
		if len(seen) != len(faults) {
			t.Error("a fault was dealt twice before another was dealt at all")
		}
	}
}
