package proof

import (
	"fmt"
	"testing"
)

// TestHistoryOfKeptLocks: while servers keep their data, there is one owner at a time, whatever fails.
func TestHistoryOfKeptLocks(t *testing.T) {
	for i, s := range []strategy{setNXPX, legacySetNX, redlock} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t, s).withOddClients().newEpisode(seed(t), true, i))
		})
	}
}

// TestHistoryOfForgottenLocks: if servers lose their data, there may be two owners. But fences grow,
// every waiter is served, and nothing is left.
func TestHistoryOfForgottenLocks(t *testing.T) {
	for i, s := range []strategy{setNXPX, redlock} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t, s).withOddClients().newEpisode(seed(t), false, i))
		})
	}
}

// TestHistoryOfSemaphores: while the server keeps its data, there are at most as many owners at a time as
// the limit, and one if it is one. If the server loses its data, the other rules still hold.
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
