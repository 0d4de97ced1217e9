package proof

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A fault is one kind of trouble. inject chooses the place at random, and returns when the trouble
// has ended. It reports false if it found no place without another fault.
type fault struct {
	name   string
	inject func(g *gremlin) bool
}

// A gremlin causes faults in a world until it is calm.
type gremlin struct {
	*world
	rng  *rand.Rand
	calm context.Context //nolint:containedctx // a gremlin is a job that ends with it
}

// faults returns the faults that a world can have. If keeping is set, no server may forget a lock
// while its lease lasts.
func (w *world) faults(keeping bool) []fault {
	all := []fault{
		{"lost replies", onRoad(func(g *gremlin, r *road) { r.LoseReplies(1+g.rng.IntN(4), "") })},
		{"lost requests", onRoad(func(g *gremlin, r *road) { r.LoseRequests(1+g.rng.IntN(4), "") })},
		{"delayed replies", onRoad(func(g *gremlin, r *road) { g.slow(r); g.span(); r.Heal() })},
		{"delayed replies of a server", onServer((*gremlin).slowAll)},
		{"silence", onRoad(func(g *gremlin, r *road) { r.Silence(); g.span(); r.Heal() })},
		{"silence, and what it held back is lost", onRoad(func(g *gremlin, r *road) { r.Silence(); g.span(); r.HealDropping() })},
		// What is sent again on new connections comes before what the open ones held back.
		{"silence of open connections", onRoad(func(g *gremlin, r *road) { r.SilenceOpen(); g.span(); r.Heal() })},
		{"cut connections", onRoad(func(_ *gremlin, r *road) { r.Cut() })},
		{"refused connections", onRoad(func(g *gremlin, r *road) { r.Refuse(); g.span(); r.Heal() })},
		{"kill -9 of a server", onServer(func(g *gremlin, s *server) { s.Kill(); g.span(); s.Restart(g.tb) })},
		{"SIGSTOP of a server", onServer(func(g *gremlin, s *server) { s.Pause(); g.span(); s.Resume() })},
		{"CLIENT PAUSE", onServer(func(g *gremlin, s *server) { s.do("CLIENT", "PAUSE", g.draw().Milliseconds(), "ALL") })},
		{"CLIENT KILL", onServer(func(_ *gremlin, s *server) { s.do("CLIENT", "KILL", "TYPE", "normal") })},
		{"full Redis", onServer(func(g *gremlin, s *server) { g.setMemory(s, "1"); g.span(); g.setMemory(s, "0") })},
		{"SCRIPT FLUSH", onServer(func(_ *gremlin, s *server) { s.do("SCRIPT", "FLUSH") })},
	}
	if w.strategy.queues {
		all = append(all, fault{"killed subscriptions", onServer(func(_ *gremlin, s *server) { s.do("CLIENT", "KILL", "TYPE", "pubsub") })})
	}
	if !keeping {
		all = append(all, fault{"FLUSHALL", onServer((*gremlin).flush)})
	}
	if !keeping && !w.strategy.quorum {
		all = append(all, fault{"deleted keys", onServer((*gremlin).remove)})
	}
	if w.strategy.quorum || !keeping {
		all = append(all, fault{"kill -9 of a server, its data lost", onServer((*gremlin).killForgetting)})
	}
	return all
}

// onRoad is a fault on the way between a client and a server.
func onRoad(inject func(*gremlin, *road)) func(*gremlin) bool {
	return func(g *gremlin) bool {
		roads := g.roads()
		r := roads[g.rng.IntN(len(roads))]
		return ifIdle(&r.busy, func() { inject(g, r) })
	}
}

// onServer is a fault of a server.
func onServer(inject func(*gremlin, *server)) func(*gremlin) bool {
	return func(g *gremlin) bool {
		s := g.servers[g.rng.IntN(len(g.servers))]
		return ifIdle(&s.busy, func() { inject(g, s) })
	}
}

// ifIdle calls f with busy locked, or reports false if somebody else has locked it.
func ifIdle(busy *sync.Mutex, f func()) bool {
	if !busy.TryLock() {
		return false
	}
	defer busy.Unlock()
	f()
	return true
}

// draw returns how long a fault lasts: mostly some milliseconds, at times longer than a lease.
func (g *gremlin) draw() time.Duration {
	if g.rng.IntN(6) == 0 {
		return g.strategy.ttl/2 + time.Duration(g.rng.Int64N(int64(g.strategy.ttl)))
	}
	return 5*time.Millisecond + time.Duration(g.rng.Int64N(int64(60*time.Millisecond)))
}

// span waits for as long as a fault lasts, or until it is calm.
func (g *gremlin) span() {
	select {
	case <-time.After(g.draw()):
	case <-g.calm.Done():
	}
}

// slow delays the replies on a road until it is healed.
func (g *gremlin) slow(r *road) {
	most := int64(g.draw())
	rng := rand.New(rand.NewPCG(g.rng.Uint64(), 0)) // of the proxy, which draws in its own goroutines
	r.DelayFunc(func() time.Duration { return time.Duration(rng.Int64N(most)) })
}

// slowAll delays the replies of a server to all clients.
func (g *gremlin) slowAll(s *server) {
	for _, r := range s.roads {
		if r.busy.TryLock() {
			defer r.busy.Unlock()
			defer r.Heal()
			g.slow(r)
		}
	}
	g.span()
	g.span()
}

// setMemory sets the limit of the memory of a server, whose policy is noeviction. The first
// connections may have been killed.
func (g *gremlin) setMemory(s *server, bytes string) {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = s.admin.ConfigSet(context.Background(), "maxmemory", bytes).Err(); err == nil {
			return
		}
	}
	g.tb.Errorf("CONFIG SET maxmemory: %v", err)
}

// aheadOfCounters is how long a server of a quorum stays away once it has lost its counters. Then
// its clock is ahead of them.
const aheadOfCounters = 1100 * time.Millisecond

// killForgetting restarts a server without its data. A server of a quorum stays away for the
// longest TTL, since a lock may still be on a quorum.
func (g *gremlin) killForgetting(s *server) {
	s.Kill()
	if g.strategy.quorum {
		time.Sleep(max(g.strategy.longest()+50*time.Millisecond, aheadOfCounters))
	} else {
		g.span()
	}
	s.RestartEmpty(g.tb)
}

// flush empties a server. A server of a quorum then does not answer for a while. No other fault
// ends that sooner.
func (g *gremlin) flush(s *server) {
	_, _ = s.admin.TxPipelined(context.Background(), func(p redis.Pipeliner) error { // its reply is of no use
		p.FlushAll(context.Background())
		if g.strategy.quorum {
			p.Do(context.Background(), "CLIENT", "PAUSE", aheadOfCounters.Milliseconds(), "ALL")
		}
		return nil
	})
	if g.strategy.quorum {
		time.Sleep(aheadOfCounters)
	}
}

// remove deletes some keys of a server: locks, queues, or the fence register.
func (g *gremlin) remove(s *server) {
	for range 1 + g.rng.IntN(6) {
		if key, err := s.admin.RandomKey(context.Background()).Result(); err == nil {
			s.do("DEL", key)
		}
	}
}
