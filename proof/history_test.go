package proof

import (
	"fmt"
	"testing"
)

// TestHistoryOfKeptLocks: while servers keep their data, one owner at a time, whatever else happens.
func TestHistoryOfKeptLocks(t *testing.T) {
	for i, s := range []strategy{setNXPX, legacySetNX, redlock} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t, s).withOddClients().newEpisode(seed(t), true, i))
		})
	}
}

// TestHistoryOfForgottenLocks: where servers forget there may be two owners, but fences grow, everybody
// is served, and nothing stays.
func TestHistoryOfForgottenLocks(t *testing.T) {
	for i, s := range []strategy{setNXPX, redlock} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t, s).withOddClients().newEpisode(seed(t), false, i))
		})
	}
}

// TestHistoryOfSemaphores: as many owners as the limit at a time, and one where it is one, while the server
// keeps its data. Where it forgets, the rest still holds.
func TestHistoryOfSemaphores(t *testing.T) {
	for i, kind := range []struct {
		strategy
		keeping bool
	}{{semaphore, true}, {semaphore, false}, {mutex, true}} {
		t.Run(fmt.Sprintf("%s keeping %v", kind.name, kind.keeping), func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t, kind.strategy).withOddClients().newEpisode(seed(t), kind.keeping, i))
		})
	}
}

func play(t *testing.T, e *episode) {
	err := e.run()
	t.Log(e.summary())
	if err != nil {
		t.Error(err)
	}
}
