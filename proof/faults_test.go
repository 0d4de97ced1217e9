package proof

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A fault is one kind of trouble. inject chooses the place at random, and returns when the trouble has ended.
// It reports false if it found no place without another fault.
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
		{"delayed replies", onRoad((*gremlin).delay)},
		{"delayed replies of a server", onServer((*gremlin).delayAll)},
		{"silence", onRoad((*gremlin).silence)},
		{"silence of open connections", onRoad((*gremlin).silenceOpen)},
		{"cut connections", onRoad(func(_ *gremlin, r *road) { r.Cut() })},
		{"refused connections", onRoad(func(g *gremlin, r *road) { r.Refuse(); g.span(); r.Heal() })},
		{"kill -9 of a server", onServer((*gremlin).kill)},
		{"SIGSTOP of a server", onServer(func(g *gremlin, s *server) { s.Pause(); g.span(); s.Resume() })},
		{"CLIENT PAUSE", onServer(func(g *gremlin, s *server) { g.admin(s, "CLIENT", "PAUSE", g.draw().Milliseconds(), "ALL") })},
		{"CLIENT KILL", onServer(func(g *gremlin, s *server) { g.admin(s, "CLIENT", "KILL", "TYPE", "normal") })},
		{"full Redis", onServer((*gremlin).fill)},
		{"SCRIPT FLUSH", onServer(func(g *gremlin, s *server) { g.admin(s, "SCRIPT", "FLUSH") })},
	}
	if w.odd {
		all = append(all,
			fault{"SIGSTOP of a client", onProcess((*gremlin).stopClient)}, fault{"parted clocks", (*gremlin).partClocks})
	}
	if w.deadly {
		all = append(all, fault{"kill -9 of a client", onProcess((*gremlin).killClient)})
	}
	if w.strategy.queues {
		all = append(all, fault{"killed subscriptions", onServer(func(g *gremlin, s *server) {
			g.admin(s, "CLIENT", "KILL", "TYPE", "pubsub")
		})})
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
		if !r.busy.TryLock() {
			return false
		}
		defer r.busy.Unlock()
		inject(g, r)
		return true
	}
}

// onServer is a fault of a server.
func onServer(inject func(*gremlin, *server)) func(*gremlin) bool {
	return func(g *gremlin) bool {
		s := g.servers[g.rng.IntN(len(g.servers))]
		if !s.busy.TryLock() {
			return false
		}
		defer s.busy.Unlock()
		inject(g, s)
		return true
	}
}

// onProcess is a fault of a process of clients.
func onProcess(inject func(*gremlin, *process)) func(*gremlin) bool {
	return func(g *gremlin) bool {
		for _, s := range g.sites {
			if s.process != nil && s.process.busy.TryLock() {
				defer s.process.busy.Unlock()
				inject(g, s.process)
				return true
			}
		}
		return false
	}
}

// draw returns how long a fault lasts: mostly some milliseconds, at times longer than a lease.
func (g *gremlin) draw() time.Duration {
	if g.rng.IntN(6) == 0 {
		return g.strategy.ttl/2 + time.Duration(g.rng.Int64N(int64(g.strategy.ttl)))
	}
	return 5*time.Millisecond + time.Duration(g.rng.Int64N(int64(60*time.Millisecond)))
}

// span waits for as long as a fault lasts, or until it is calm.
func (g *gremlin) span() { g.wait(g.draw()) }

// wait waits for d, or until it is calm.
func (g *gremlin) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.calm.Done():
	}
}

func (g *gremlin) delay(r *road) {
	g.slow(r)
	g.span()
	r.Heal()
}

// delayAll delays the replies of a server to all clients.
func (g *gremlin) delayAll(s *server) {
	for _, r := range g.roadsTo(s) {
		if r.busy.TryLock() {
			defer r.busy.Unlock()
			defer r.Heal()
			g.slow(r)
		}
	}
	g.span()
	g.span()
}

// slow delays the replies on a road until it is healed.
func (g *gremlin) slow(r *road) {
	most := int64(g.draw())
	rng := rand.New(rand.NewPCG(g.rng.Uint64(), 0)) // of the proxy, which draws in its own goroutines
	r.DelayFunc(func() time.Duration { return time.Duration(rng.Int64N(most)) })
}

func (g *gremlin) silence(r *road) {
	r.Silence()
	g.span()
	if g.rng.IntN(2) == 0 {
		r.HealDropping()
	} else {
		r.Heal()
	}
}

// silenceOpen holds back what is on the open connections. New ones work, and what is sent again on these comes first.
func (g *gremlin) silenceOpen(r *road) {
	r.SilenceOpen()
	g.span()
	r.Heal()
}

// fill makes a server refuse commands that need memory for a while.
func (g *gremlin) fill(s *server) {
	g.setMemory(s, "1")
	g.span()
	g.setMemory(s, "0")
}

// setMemory sets the limit of the memory of a server, whose policy is noeviction. The first connections may have been
// killed.
func (g *gremlin) setMemory(s *server, bytes string) {
	for end := time.Now().Add(10 * time.Second); ; {
		err := s.admin.ConfigSet(context.Background(), "maxmemory", bytes).Err()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			g.tb.Errorf("CONFIG SET maxmemory: %v", err)
			return
		}
	}
}

// admin sends a command past the proxies. Its reply is of no use: the connection may be the one that
// is killed.
func (g *gremlin) admin(s *server, words ...any) {
	_ = s.admin.Do(context.Background(), words...).Err()
}

func (g *gremlin) kill(s *server) {
	s.Kill()
	g.span()
	s.Restart(g.tb)
}

// killForgetting restarts a server without its data. A server of a quorum stays away for the longest
// TTL, since a lock may still be on a quorum. It also stays away for a second, so that its clock is
// ahead of its counters.
func (g *gremlin) killForgetting(s *server) {
	s.Kill()
	if g.strategy.quorum {
		time.Sleep(max(g.strategy.longest()+50*time.Millisecond, 1100*time.Millisecond))
	} else {
		g.span()
	}
	s.RestartEmpty(g.tb)
}

// flush empties a server. A server of a quorum then does not answer for a second, so that its clock
// is ahead of its counters. No other fault ends that sooner.
func (g *gremlin) flush(s *server) {
	_, _ = s.admin.TxPipelined(context.Background(), func(p redis.Pipeliner) error { // its reply is of no use
		p.FlushAll(context.Background())
		if g.strategy.quorum {
			p.Do(context.Background(), "CLIENT", "PAUSE", 1100, "ALL")
		}
		return nil
	})
	if g.strategy.quorum {
		time.Sleep(1100 * time.Millisecond)
	}
}

// remove deletes some keys of a server: locks, queues, or the fence register.
func (g *gremlin) remove(s *server) {
	for range 1 + g.rng.IntN(6) {
		if key, err := s.admin.RandomKey(context.Background()).Result(); err == nil {
			g.admin(s, "DEL", key)
		}
	}
}

// stopClient stops a process of clients for a while.
func (g *gremlin) stopClient(p *process) {
	p.signal(syscall.SIGSTOP)
	g.span()
	p.signal(syscall.SIGCONT)
}

// killClient ends a process of clients, whatever they hold or wait for, and starts another later.
func (g *gremlin) killClient(p *process) {
	p.kill()
	g.span()
	p.start()
}

// partClocks sets the wall clock of one client, and stops the monotonic clock of another, as when a
// machine sleeps. A client with both faults would have no clock to rely on.
func (g *gremlin) partClocks() bool {
	struck := false
	for _, s := range g.sites {
		switch {
		case s.parted == nil:
		case s.stepped:
			s.parted.wall.Store(g.rng.Int64N(int64(4*g.strategy.ttl)) - int64(2*g.strategy.ttl))
			struck = true
		default:
			s.parted.mono.Add(-g.rng.Int64N(int64(g.strategy.ttl)))
			struck = true
		}
	}
	return struck
}
