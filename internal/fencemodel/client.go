package fencemodel

// This file has the steps of a client in the explored world. A client may decide on any subset of the replies that may
// have arrived.

// decisions takes steps 2 and 3 for every subset of the votes that may have arrived.
func (x *explorer) decisions(s *state, t int, emit func(step, *state)) {
	var votes [explored]fence
	var grants, raises fences
	var choose func(n int)
	choose = func(n int) {
		if n == explored {
			switch what, f := x.decide(votes[:], majority); what {
			case grant:
				grants |= set(f)
			case raiseToF:
				raises |= set(f)
			}
			return
		}
		votes[n] = 0
		choose(n + 1)
		for v := range s.attempts[t].legs[n].said.each {
			votes[n] = v
			choose(n + 1)
		}
	}
	choose(0)
	for f := range grants.each {
		x.grant(s, t, f, votesAgree, emit) // 2.
	}
	for f := range raises.each {
		x.round(s, t, f, emit) // 3.
	}
}

// rounds takes step 3 for each reply with a larger counter, and step 4 if a quorum has acknowledged.
func (x *explorer) rounds(s *state, t int, emit func(step, *state)) {
	a := &s.attempts[t]
	var counters fences
	acks := 0
	for n := range a.legs {
		counters |= a.legs[n].said
		if a.legs[n].said.has(a.f) {
			acks++
		}
	}
	for f := range counters.above(a.f).each {
		x.round(s, t, f, emit) // 3.
	}
	if x.acknowledged(acks, majority) {
		x.grant(s, t, a.f, isAcknowledged, emit) // 4.
	}
}

// round starts a round with a new f. It drops replies with smaller counters, which have no effect from here on.
func (x *explorer) round(s *state, t int, f fence, emit func(step, *state)) {
	to := *s
	a := &to.attempts[t]
	a.phase, a.f = raising, f
	for n := range a.legs {
		leg := &a.legs[n]
		leg.raises |= set(f)
		exactly := leg.said & set(f)
		leg.said = leg.said.above(f)
		if x.ackByVote {
			leg.said |= exactly
		}
	}
	emit(step{kind: startsRound, attempt: t, f: f}, &to)
}

func (x *explorer) grant(s *state, t int, f fence, why kind, emit func(step, *state)) {
	to := *s
	a := &to.attempts[t]
	a.phase, a.f = granted, f
	p := step{kind: why, attempt: t, f: f, breaks: broken(f, s.granted.has(f), a.after)}
	if f > s.granted.highest() {
		to.healed = 0
	}
	to.granted |= set(f)
	emit(p, &to)
}

// heal takes step 5. A client that was granted a lock may heal long after it has lost the lock.
func (x *explorer) heal(s *state, t int, emit func(step, *state)) {
	f := s.attempts[t].f
	for n := range s.nodes {
		to := *s
		if !x.plain {
			to.nodes[n].holder = 0
		}
		if !x.healNode(&to.nodes[n], tokenOf(t), f, 0) { // 5.
			continue
		}
		if to.nodes[n].counter > maxFence {
			x.cut = true
			continue
		}
		if f == s.granted.highest() {
			to.healed |= 1 << n
		}
		if !x.plain && to.nodes[n].counter == s.nodes[n].counter && to.healed == s.healed {
			continue
		}
		emit(step{kind: heals, attempt: t, node: n, f: f}, &to)
	}
}

// keep notes the counter of a reply that may still have an effect. For an acknowledgement it notes f.
func (l *leg) keep(what answer, f, counter fence) {
	switch what {
	case ack:
		l.said |= set(f)
	case larger:
		l.said |= set(counter)
	}
}
