package proof

import (
	"fmt"
	"testing"
	"time"
)

// TestHistories: while servers keep their data, there are at most as many owners at a time as a key
// admits, whatever fails. If they lose their data, there may be more. But fences grow, every waiter
// is served, and nothing is left.
func TestHistories(t *testing.T) {
	t.Parallel()
	for name, strategies := range map[string][]strategy{
		"data is kept": {setNXPX, legacySetNX, redlock, semaphore, mutex, readWrite},
		"data is lost": {setNXPX, redlock, semaphore, readWrite},
	} {
		for i, s := range strategies {
			t.Run(s.name+", "+name, func(t *testing.T) {
				t.Parallel()
				play(t, newWorld(t, s).newEpisode(seed(t), name == "data is kept", i))
			})
		}
	}
}

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
	for _, s := range []strategy{setNXPX, legacySetNX, redlock, semaphore, readWrite} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s)
			for round := 0; time.Now().Before(end) && !t.Failed(); round++ {
				e := w.newEpisode(from+uint64(round), s.untimed || round%2 == 0, round)
				e.length, e.limit = 15*time.Second, 3*time.Minute
				play(t, e)
				fmt.Printf("round %d of %v\n", round, e)
			}
		})
	}
}

func play(t *testing.T, e *episode) {
	err := e.run()
	t.Log(e)
	if err != nil {
		t.Error(err)
	}
}
