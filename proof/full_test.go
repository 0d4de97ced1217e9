package proof

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestFullRedisLosesNoLock: while a server is full, for longer than a lease lasts, every lock is renewed, extended and
// released, also with a min hold. No other fault happens, so that each loss and each failure is a mistake.
func TestFullRedisLosesNoLock(t *testing.T) {
	for i, s := range []strategy{setNXPX, redlock, semaphore, mutex} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play(t, newWorld(t, s.onFullServers()).newFullEpisode(seed(t), i))
		})
	}
}

// TestBrokenRenewalsAreCaught: this exposes a permit that is renewed by a command that needs memory.
func TestBrokenRenewalsAreCaught(t *testing.T) {
	for name, mistake := range map[string]mistake{
		"renewals that need memory": {flaws{growing: true}, false, []string{"was lost"}},
		"nothing":                   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := brokenStrategy(name, mistake.flaws, 2).onFullServers()
			s.make = func(clients []redis.UniversalClient, _ wish) (locker, error) {
				return broken{client: clients[0], flaws: mistake.flaws, limit: s.holders, renews: true}, nil
			}
			w, from := newWorld(t, s), seed(t)
			caught(t, mistake.shown, func(round int) error {
				e := w.newFullEpisode(from+uint64(round), round)
				e.pictures = t.TempDir()
				return e.run()
			})
		})
	}
}

// onFullServers returns s with leases and commands that outlast the pauses of a busy machine, and with more locks that
// are renewed.
func (s strategy) onFullServers() strategy {
	s.ttl, s.opTimeout, s.overstays = 1500*time.Millisecond, 1500*time.Millisecond, 50
	return s
}

// newFullEpisode returns an episode in which servers are full, mostly for longer than a lease lasts.
func (w *world) newFullEpisode(seed uint64, round int) *episode {
	e := w.newEpisode(seed, true, round)
	e.steady = true
	e.faults = []fault{{"full Redis", onServer(func(g *gremlin, s *server) {
		g.setMemory(s, "1")
		g.wait(w.strategy.ttl + time.Duration(g.rng.Int64N(int64(w.strategy.ttl))))
		g.setMemory(s, "0")
		g.wait(w.strategy.ttl / 4)
	})}}
	e.ops, e.length = 200, 6*time.Second
	if !testing.Short() {
		e.ops, e.length = 1000, 20*time.Second
	}
	return e
}
