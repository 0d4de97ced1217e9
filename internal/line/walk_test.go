package line

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testing/explore"
)

var walkSeed = flag.Uint64("line.walk", 0, "the seed of the first random history; 0 chooses one at random")

// A random history has far more callers and faults than the explorer can walk. From time to time,
// the faults end. Then everybody is served, and nothing is left.
func TestNothingGoesWrongInLongRandomHistories(t *testing.T) {
	seed := *walkSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i, c := range games {
		t.Run(c.name, func(t *testing.T) {
			seed := seed + uint64(i)
			c.game.wander(t, rand.New(rand.NewPCG(seed, 0)), seed)
		})
	}
}

// wander takes random steps.
func (g *game) wander(t *testing.T, random *rand.Rand, seed uint64) {
	g.world()
	w := g.start(0, 0)
	rounds := 0
	for n, calm := 0, 0; n < 20_000 || calm > 0; n++ {
		switch {
		case calm > 0 && g.clean(&w):
			calm = 0
			rounds++
		case calm > 2000:
			t.Fatalf("no end without faults, with -line.walk %d after %d steps\n%s", seed, n, g.Log)
		case calm > 0 || random.IntN(100) == 0:
			calm++
		}
		g.again = calm == 0
		g.refresh(&w, random, calm > 0)
		kinds := g.Kinds(&w)
		if len(kinds) == 0 { // all processes are dead, and start now
			continue
		}
		j := random.IntN(len(kinds))
		for random.IntN(8) > 0 && kinds[j] == explore.Fault {
			j = random.IntN(len(kinds))
		}
		if n%100 == 0 { // the newest steps are enough
			g.Log = new(strings.Builder)
		}
		w = g.Take(&w, j)
		if g.wrong != "" {
			t.Fatalf("%s, with -line.walk %d after %d steps\n%s", g.wrong, seed, n, g.Log)
		}
	}
	t.Logf("%d times to the end", rounds)
}

// refresh allows faults again, once their effects have passed, and starts processes that have
// crashed.
func (g *game) refresh(w *scene, random *rand.Rand, calm bool) {
	lost := false
	for i := range g.procs {
		p := &w.procs[i]
		lost = lost || slices.ContainsFunc(p.gives[:], func(r release) bool { return r.lost == 1 })
		used := p.ask.state != none
		w.tokens(i, func(*uint8) { used = true })
		if p.dead == 1 && w.keys[0] == 0 {
			for used && w.queue[0].token != 0 { // the queue has a TTL
				w.dequeue(w.queue[0].token)
			}
		}
		if p.dead == 1 && !used {
			*p = proc{channel: g.channels[i]}
		}
		if p.channel != g.channels[i] && random.IntN(100) == 0 && p.dead == 0 && p.line.subscribed == 0 {
			p.channel = g.channels[i] // the next line opens another one
		}
	}
	w.left = 1 - bit(calm)
	for kind := range w.faults {
		w.faults[kind] = 1 - bit(calm)
	}
	w.faults[releaseLost] = bit(!lost && !calm)
	if w.foreign == 2 && random.IntN(50) == 0 && !calm {
		w.foreign = 0
	}
}
