package proof

import "testing"

// TestHistoryOfKeptLocks: while servers keep their data, one owner at a time, whatever else happens.
func TestHistoryOfKeptLocks(t *testing.T) {
	for i, s := range strategies {
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

func play(t *testing.T, e *episode) {
	err := e.run()
	t.Log(e.summary())
	if err != nil {
		t.Error(err)
	}
}
