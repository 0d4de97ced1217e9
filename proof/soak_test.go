package proof

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// round is how long one history of a soak lasts. All locks must be free at its end.
const round = 15 * time.Second

// TestSoak plays histories of all strategies at once, with every kind of fault. Each strategy has
// one world for all its histories. In every second history, except with LegacySetNX, servers may
// lose their data.
func TestSoak(t *testing.T) {
	if *soakFlag == 0 {
		t.Skip("it runs for as long as -soak says")
	}
	end := time.Now().Add(*soakFlag)
	if deadline, ok := t.Deadline(); ok && deadline.Before(end.Add(3*time.Minute)) {
		t.Fatalf("-soak %v needs more time than -timeout leaves: add -timeout 0", *soakFlag)
	}
	from := seed(t)
	fmt.Printf("soak for %v with -seed %d\n", *soakFlag, from)
	var mu sync.Mutex // guards totals
	totals := make(map[string]summary)
	soaked := []strategy{setNXPX, legacySetNX, redlock, semaphore}
	t.Run("all", func(t *testing.T) {
		for _, s := range soaked {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, s).withOddClients()
				w.deadly = true
				for i := 0; i == 0 || time.Now().Before(end); i++ {
					e := w.newEpisode(from+uint64(i), s.name == legacySetNX.name || i%2 == 0, i)
					e.length, e.limit = round, 10*round
					err := e.run()
					sum := e.summary()
					mu.Lock()
					totals[s.name] = totals[s.name].plus(sum)
					mu.Unlock()
					fmt.Printf("%s, round %d: %v\n", s.name, i, sum)
					if err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
	for _, s := range soaked {
		fmt.Printf("%s, in all: %v\n", s.name, totals[s.name])
	}
}
