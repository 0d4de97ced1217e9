package server

import "time"

// A clock was set to a time at an instant of the bubble, and runs at a rate since.
type clock struct {
	bubble, server time.Time
	rate           float64
}

func (c *clock) now() time.Time {
	return c.server.Add(time.Duration(float64(time.Since(c.bubble)) * c.rate))
}

// Step sets the clock forward by d. If d is negative, keys last longer, as in Redis.
func (s *Server) Step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked()
	s.redis.Keys() // which lets keys expire by then
	s.clock.server = s.clock.server.Add(d)
	s.tickLocked()
	if d < 0 {
		s.redis.FastForward(d) // miniredis does not count a step back
	}
}

// Rate has the clock run at another rate.
func (s *Server) Rate(rate float64) (heal func()) {
	set := func(rate float64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clock = clock{time.Now(), s.clock.now(), rate}
	}
	set(rate)
	return func() { set(1) }
}
