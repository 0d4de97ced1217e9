package fencemodel

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// played is the result of some random runs.
type played struct {
	runs, byVotes, byAcks int
	broken                *run // the first found that breaks a property, with its log
	seed                  uint64
}

// playFor plays random runs until limit has passed or a run breaks a property. Run i has the seed
// -fencemodel.seed + i.
func playFor(t *testing.T, r rules, limit time.Duration) played {
	seed := *first
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-fencemodel.seed %d", seed)
	deadline := time.Now().Add(limit)
	var mu sync.Mutex // guards all
	var all played
	var next atomic.Uint64
	var stop atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			var mine played
			for !stop.Load() && time.Now().Before(deadline) {
				at := seed + next.Add(1) - 1
				u := newRun(r, at, false)
				ok := u.play()
				mine.runs++
				mine.byVotes += u.byVotes
				mine.byAcks += u.byAcks
				if !ok {
					mine.seed, mine.broken = at, newRun(r, at, true)
					mine.broken.play()
					stop.Store(true)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.runs += mine.runs
			all.byVotes += mine.byVotes
			all.byAcks += mine.byAcks
			if mine.broken != nil {
				all.seed, all.broken = mine.seed, mine.broken
			}
		})
	}
	workers.Wait()
	return all
}

func TestRandomRunsBreakNoFence(t *testing.T) {
	all := playFor(t, rules{}, *random)
	t.Logf("%d runs: %d grants by votes, %d by acknowledgements", all.runs, all.byVotes, all.byAcks)
	if all.broken != nil {
		t.Fatalf("the fences of run %d are not %s\n%s", all.seed, all.broken.breaks, strings.Join(all.broken.log, "\n"))
	}
	require.NotZero(t, all.byVotes)
	require.NotZero(t, all.byAcks)
}

// TestRandomRunsCatchWrongVariants leaves the rare variants to the explorer.
func TestRandomRunsCatchWrongVariants(t *testing.T) {
	for _, tt := range variants {
		if tt.safe || tt.rare {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			all := playFor(t, tt.rules, time.Minute)
			require.NotNil(t, all.broken)
			t.Logf("caught by run %d of %d", all.seed, all.runs)
		})
	}
}
