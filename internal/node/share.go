package node

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A share says how many couriers may be at work at once, so that others find a connection: commands
// of the client's user, and other Lockers. It reads no clock.
//
// A third of the connections is for couriers. Further ones may use what others have not needed for
// one to two minutes:
//
//	couriers = open connections − the most that others have used or waited for
//
// One connection stays free if the client may open no more. A server, or what is before it, may
// admit fewer connections than that. If couriers used the last ones, commands of the user would
// fail. So the node first opens as many connections as calls wait for. If that fails, couriers have
// a third for a minute.
//
// The number grows by one a trip while calls wait, so that the nodes of several Lockers see each
// other.
type share struct {
	size, third int // the most connections that the client opens; they do not change
	most        int // couriers
	open        int // connections
	proven      int // connections that were open after the newest try to open further ones; 0: it failed

	grew      clock.Mono // when most grew
	notBefore clock.Mono // the next try to open connections

	// The most connections that others have used, in the last minute and in that before.
	began         clock.Mono
	newer, before int
}

const (
	othersLast = time.Minute // the shortest time for which the use of others counts
	afterError = time.Minute // from a try to open connections that failed until the next one
	afterNone  = time.Second // from a try that opened none
)

// shareOf returns the share of a client that opens so many connections.
func shareOf(size int) share { return share{size: size, third: size / 3, most: size / 3} }

// A use says who uses the connections of a client.
type use struct {
	open, used int // connections
	pending    int // commands that wait for a connection, or open one
	own        int // couriers and commands that open connections for them. Some may not have one yet
}

// others returns how many connections others use or wait for, of a client that opens so many.
func (u use) others(size int) int {
	others := u.used - u.own
	if u.open >= size { // nobody opens one
		others += u.pending
	}
	return others
}

// lacks reports whether a call finds no connection since others have some of them, and none is left.
func (u use) lacks(size int) bool { return u.used >= size && u.others(size) > 0 }

// observe notes the use at an instant.
func (s *share) observe(u use, now clock.Mono) {
	switch age := now.Sub(s.began); {
	case age >= 2*othersLast:
		s.began, s.newer, s.before = now, 0, 0
	case age >= othersLast:
		s.began, s.newer, s.before = now, 0, s.newer
	}
	s.open, s.newer = u.open, max(s.newer, u.others(s.size))
	s.most = min(s.most, s.room())
}

// others returns the most connections that others have used.
func (s *share) others() int { return max(s.newer, s.before) }

// room returns how many couriers leave others what they need.
func (s *share) room() int {
	others := s.others()
	free := s.open - others
	switch {
	case s.open >= s.size:
		free -= min(others, 1)
	case s.proven == 0, s.open < s.proven: // the server may admit no more
		return s.third
	}
	return max(s.third, free)
}

// waited notes that calls wait after a trip.
func (s *share) waited(trip time.Duration, now clock.Mono) {
	if s.most < s.room() && now.Sub(s.grew) >= trip {
		s.most, s.grew = s.most+1, now
	}
}

// lacks returns how many connections the node opens now. So many calls wait. The node must use the
// idle connections meanwhile, which it does not while others may need them.
func (s *share) lacks(calls, idle int, now clock.Mono) int {
	if s.most < s.room() || now < s.notBefore || idle > s.open-s.most-s.others() {
		return 0
	}
	return max(min(calls, s.size-s.open), 0)
}

// tried notes that the node has tried to open connections, and that so many are open.
func (s *share) tried(open int, failed bool, now clock.Mono) {
	switch {
	case failed:
		s.proven, s.notBefore = 0, now.Add(afterError)
	case open <= s.proven: // others gave theirs back meanwhile, or a hook answers in place of a server
		s.proven, s.notBefore = open, now.Add(afterNone)
	default:
		s.proven = open
	}
	s.open = open
	s.most = min(s.most, s.room())
}
