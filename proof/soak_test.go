package proof

import (
	"fmt"
	"testing"
	"time"
)

// TestSoak plays histories of all strategies at once, with every kind of fault: while servers keep
// their data, there are at most as many owners at a time as a key admits, whatever fails. In every
// second history, except with LegacySetNX, servers may lose their data. Then there may be more owners.
// But fences grow, every waiter is served, and nothing is left. Each strategy has one world for all
// its histories.
func TestSoak(t *testing.T) {
	if *soakFlag == 0 {
		t.Skip("it runs for as long as -soak says")
	}
	end := time.Now().Add(*soakFlag)
	if deadline, ok := t.Deadline(); ok && deadline.Before(end.Add(3*time.Minute)) {
		t.Fatalf("-soak %v needs more time than -timeout leaves: add -timeout 0", *soakFlag)
	}
	from := seed(t)
	for _, s := range []strategy{setNXPX, legacySetNX, redlock, semaphore, mutex, readWrite} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s)
			for round := 0; time.Now().Before(end) && !t.Failed(); round++ {
				e := w.newEpisode(from+uint64(round), s.untimed || round%2 == 0, round)
				if err := e.run(); err != nil {
					t.Error(err)
				}
				fmt.Printf("round %d of %v\n", round, e)
			}
		})
	}
}
