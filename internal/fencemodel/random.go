package fencemodel

import (
	"fmt"
	"math/rand/v2"
)

// A random run plays the protocol message by message, in worlds that are too large to explore. It follows the rules
// of model.go without the reductions of the explorer. Messages are lost, carried out twice and reordered. Clients wait
// for more votes, are refused, give up and unlock. If a lock is acquired for an attempt that has ended, it is released.
const (
	runNodes    = 5
	runQuorum   = runNodes/2 + 1
	runClients  = 4
	runAttempts = 4 * runClients
	runSteps    = 2000
	maxResends  = 10
)

// A run may have a clock. Then the floor of a node is the time on its clock, which each tick moves by run.tick. If
// run.tick is trustedTick, no counter gets ahead of the clock, since a run has fewer acquires than that.
const (
	maxLag      = 1 // ticks that the clock of a node may be behind
	maxTicks    = 10
	trustedTick = runAttempts*runNodes + maxResends + 1
)

// An event is one kind of step in a run.
type event int

const (
	delivers  event = iota // a message
	loses                  // a message
	repeats                // a request, which also stays in flight
	begins                 // an attempt
	givesUpOn              // an attempt
	unlocks                // a lock that was granted
	lapses                 // a lock vanishes from a node
	healsNode              // a heal is sent
	empties                // a node
	ticks                  // the clock
	events
)

// odds are the relative frequencies of events. Each run draws its own at random, up to most. So some runs lose many
// messages and others none.
type odds [events]int

var most = odds{
	loses: 3, repeats: 1, begins: 3, unlocks: 5, lapses: 16, healsNode: 2, empties: 2, ticks: 1,
}

// least is added to the odds that were drawn. Without these events nothing is granted.
var least = odds{delivers: 24, begins: 1, givesUpOn: 1}

// A run is one random run of the protocol.
type run struct {
	rules
	random   *rand.Rand
	odds     odds
	total    int     // of the odds
	clients  int     // how many attempts may be open at once
	patience float64 // the probability that a client waits for more votes instead of raising
	tick     fence   // how far the clock moves at each tick; 0: there is no clock

	now      fence
	nodes    [runNodes]runNode
	attempts []*runAttempt
	wire     []message // in flight
	resent   int

	granted         map[fence]bool
	highest         fence // of granted
	byVotes, byAcks int   // grants
	breaks          string

	logs bool
	log  []string
}

type runNode struct {
	node
	lag    fence
	away   fence // it answers nothing before this time
	healed fence // the highest fence that it was healed with
}

type runAttempt struct {
	phase   phase
	f       fence // of the round, or granted
	after   fence // the highest fence that had been granted when it began
	votes   [runNodes]fence
	refused [runNodes]bool
	acks    [runNodes]bool
	ended   bool // given up, or unlocked
}

func (a *runAttempt) open() bool { return a.phase == voting || a.phase == raising }
func (a *runAttempt) held() bool { return a.phase == granted && !a.ended }

// newRun returns the run of a seed.
func newRun(r rules, seed uint64, logs bool) *run {
	u := &run{
		rules:   r,
		random:  rand.New(rand.NewPCG(seed, 0)),
		granted: map[fence]bool{},
		logs:    logs,
	}
	for e := range u.odds {
		u.odds[e] = least[e] + u.random.IntN(most[e]+1)
		u.total += u.odds[e]
	}
	u.clients = 2 + u.random.IntN(runClients-1)
	u.patience = u.random.Float64()
	if u.random.IntN(2) == 0 { // The counters meet a clock of small ticks.
		u.tick = []fence{1, 2, trustedTick}[u.random.IntN(3)]
	}
	for n := range u.nodes {
		u.nodes[n].lag = fence(u.random.IntN(maxLag + 1))
		if u.tick == 0 {
			u.nodes[n].counter = fence(u.random.IntN(4))
		}
	}
	return u
}

// play plays the run to its end, and reports whether every property held.
func (u *run) play() bool {
	for step := 0; step < runSteps && u.breaks == "" && !u.over(); step++ {
		at := u.random.IntN(u.total)
		what := event(0)
		for at >= u.odds[what] {
			at -= u.odds[what]
			what++
		}
		u.happen(what)
	}
	return u.breaks == ""
}

// over reports whether no more grant is possible.
func (u *run) over() bool {
	return len(u.attempts) == runAttempts && len(u.which((*runAttempt).open)) == 0
}

func (u *run) note(format string, args ...any) {
	if u.logs {
		u.log = append(u.log, fmt.Sprintf(format, args...))
	}
}

func (u *run) happen(what event) {
	switch what {
	case delivers, loses, repeats:
		if len(u.wire) == 0 {
			return
		}
		i := u.random.IntN(len(u.wire))
		m := u.wire[i]
		if what == repeats {
			if !m.reply && u.resent < maxResends {
				u.resent++
				u.deliver(m)
			}
			return
		}
		u.wire[i] = u.wire[len(u.wire)-1]
		u.wire = u.wire[:len(u.wire)-1]
		if what == delivers {
			u.deliver(m)
		}
	case begins:
		if open := len(u.which((*runAttempt).open)); open < u.clients && len(u.attempts) < runAttempts {
			u.attempts = append(u.attempts, &runAttempt{phase: voting, after: u.highest})
			u.note("%c begins", 'a'+len(u.attempts)-1)
			u.send(message{kind: acquireMessage, attempt: len(u.attempts) - 1})
		}
	case givesUpOn:
		if t, ok := u.one((*runAttempt).open); ok {
			u.end(t, "gives up")
		}
	case unlocks:
		if t, ok := u.one((*runAttempt).held); ok {
			u.end(t, "unlocks")
		}
	case lapses:
		n := u.random.IntN(runNodes)
		u.nodes[n].holder = 0
		u.note("n%d: the lock vanishes", n+1)
	case healsNode:
		if t, ok := u.one((*runAttempt).held); ok {
			u.wire = append(u.wire, message{
				kind: healMessage, attempt: t, node: u.random.IntN(runNodes), f: u.attempts[t].f,
			})
		}
	case empties:
		u.empty(u.random.IntN(runNodes))
	case ticks:
		if u.tick > 0 && u.now < maxTicks {
			u.now++
			u.note("the clock ticks")
		}
	}
}

// which returns the attempts for which is holds.
func (u *run) which(is func(*runAttempt) bool) []int {
	var all []int
	for t, a := range u.attempts {
		if is(a) {
			all = append(all, t)
		}
	}
	return all
}

// one returns a random attempt for which is holds.
func (u *run) one(is func(*runAttempt) bool) (t int, ok bool) {
	all := u.which(is)
	if len(all) == 0 {
		return 0, false
	}
	return all[u.random.IntN(len(all))], true
}

// end ends an attempt, or the lock that it was granted, and releases it on all nodes.
func (u *run) end(t int, how string) {
	a := u.attempts[t]
	if a.phase != granted {
		a.phase = over
	}
	a.ended = true
	u.note("%c %s", 'a'+t, how)
	u.send(message{kind: releaseMessage, attempt: t})
}

// empty deletes the lock and the counter of a node. If no counter can be ahead of the clock,
// this may happen at any time and to any number of nodes. But each node must stay away until
// its floor is above what any clock showed when it was emptied:
//
//	away = now + one tick + maxLag
//
// Otherwise it happens under the conditions of the explored world, see wipe.
func (u *run) empty(n int) {
	away := fence(0)
	if u.tick == trustedTick {
		away = u.now + 1 + maxLag
	} else {
		remember := 0
		for m := range u.nodes {
			if m != n && max(u.nodes[m].counter, u.nodes[m].healed) >= u.highest {
				remember++
			}
		}
		if remember < runQuorum || len(u.which((*runAttempt).open)) > 0 {
			return
		}
	}
	u.nodes[n] = runNode{lag: u.nodes[n].lag, away: away}
	u.note("n%d is emptied", n+1)
}
