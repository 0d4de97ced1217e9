package fencemodel

import "fmt"

// A message is a request to a node, or its reply.
type message struct {
	kind    messageKind
	attempt int
	node    int
	f       fence // the target of a raise, or the fence of a heal
	reply   bool
	counter fence // in a reply, 0 for a refusal
}

type messageKind uint8

const (
	acquireMessage messageKind = iota
	raiseMessage
	healMessage
	releaseMessage
)

func (m message) String() string {
	kind := [...]string{"acquire", "raise", "heal", "release"}[m.kind]
	if m.reply {
		return fmt.Sprintf("%c gets the reply of n%d to %s %d: %d", 'a'+m.attempt, m.node+1, kind, m.f, m.counter)
	}
	return fmt.Sprintf("n%d gets %c's %s %d", m.node+1, 'a'+m.attempt, kind, m.f)
}

// send sends a request to all nodes.
func (u *run) send(m message) {
	for n := range u.nodes {
		m.node = n
		u.wire = append(u.wire, m)
	}
}

// deliver lets a message arrive.
func (u *run) deliver(m message) {
	if m.reply {
		u.note("%v", m)
		u.receive(m)
		return
	}
	n := &u.nodes[m.node]
	if u.now < n.away {
		return
	}
	token := tokenOf(m.attempt)
	floor := u.tick * (u.now - min(u.now, n.lag))
	ok := false
	switch m.kind {
	case acquireMessage:
		m.counter, ok = n.acquire(token, floor) // 1.
		if ok && u.attempts[m.attempt].ended {
			u.wire = append(u.wire, message{kind: releaseMessage, attempt: m.attempt, node: m.node})
		}
	case raiseMessage:
		m.counter, ok = u.raise(&n.node, token, m.f) // 3.
	case healMessage:
		if u.healNode(&n.node, token, m.f, floor) { // 5.
			n.healed = max(n.healed, m.f)
		}
	case releaseMessage:
		if n.holder == token {
			n.holder = 0
		}
	}
	u.note("%v: %d held by %d", m, n.counter, n.holder)
	if ok || m.kind == acquireMessage {
		m.reply = true
		u.wire = append(u.wire, m)
	}
}

// receive lets a client handle a reply.
func (u *run) receive(m message) {
	a := u.attempts[m.attempt]
	if m.counter == 0 {
		a.refused[m.node] = true
		if a.phase == voting && tally(a.refused) > runNodes-runQuorum {
			u.end(m.attempt, "is refused")
		}
		return
	}
	switch a.phase {
	case voting:
		a.votes[m.node] = m.counter
		switch what, f := u.decide(a.votes[:], runQuorum); what {
		case grant: // 2.
			u.byVotes++
			u.grant(m.attempt, f)
		case raiseToF: // 3.
			if count(a.votes[:], 0) == 0 || u.random.Float64() >= u.patience {
				u.round(m.attempt, f)
			}
		}
	case raising:
		switch u.classify(a.f, m.f, m.counter) {
		case larger:
			u.round(m.attempt, m.counter) // 3.
		case ack:
			a.acks[m.node] = true
			if u.acknowledged(tally(a.acks), runQuorum) { // 4.
				u.byAcks++
				u.grant(m.attempt, a.f)
			}
		}
	}
}

// round starts a round.
func (u *run) round(t int, f fence) {
	a := u.attempts[t]
	u.note("%c raises to %d", 'a'+t, f)
	a.phase, a.f, a.acks = raising, f, [runNodes]bool{}
	for n, vote := range a.votes {
		a.acks[n] = u.ackByVote && vote == f
	}
	u.send(message{kind: raiseMessage, attempt: t, f: f})
}

// tally counts nodes.
func tally(nodes [runNodes]bool) int {
	n := 0
	for _, yes := range nodes {
		if yes {
			n++
		}
	}
	return n
}

func (u *run) grant(t int, f fence) {
	a := u.attempts[t]
	a.phase, a.f = granted, f
	u.note("%c is granted %d", 'a'+t, f)
	u.breaks = broken(f, u.granted[f], a.after)
	u.granted[f] = true
	u.highest = max(u.highest, f)
}
