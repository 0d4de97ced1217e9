package line

import "github.com/redlatch/redlatch/internal/clock"

// granted begins a turn.
func (m *Machine[T, A]) granted(f Facts, handed bool, out []Effect[T, A]) []Effect[T, A] {
	m.early, m.hasten, m.looks, m.token.mayBeInRedis = false, false, 0, true
	m.polling.pause = eased(m.polling.pause, m.Shortest)
	switch {
	case m.callers.length == 0:
		return m.idle(out)
	case m.Together:
		for m.turn.pass = 0; m.callers.length > 0; m.turn.pass++ {
			out = m.serve(handed, out)
		}
		m.token = token[A]{} // the permit has it
		return m.idle(out)
	// The fence of the grant may be older than the call, and others have newer ones.
	case m.Several && m.callers.head.number > m.askedFor:
		return m.replace(f, false, out)
	case m.Several:
		out = m.serve(handed, out)
		m.token = token[A]{} // the permit has it
		if m.callers.length == 0 {
			return m.idle(out)
		}
		return m.ask(f, out)
	}
	m.state, m.shown, m.news = Holding, m.callers.arrivals, News{Outcome: Outcome{Answer: Held}, At: f.Now}
	m.turn = turn{began: f.Now, last: m.callers.arrivals}
	return m.tell(m.serve(handed, out))
}

// passes reports whether the turn may serve another caller:
//
//	pass < Passes, age < 5 ms, age < TTL / 100, and the caller was in line when the turn began
func (m *Machine[T, A]) passes(now clock.Mono) bool {
	t, head := &m.turn, m.callers.head
	return t.pass < m.Passes && now.Sub(t.began) < min(turnLasts, m.TTL/turnShare) &&
		head != nil && head.number <= t.last
}

// serve gives the lock to the first caller.
func (m *Machine[T, A]) serve(handed bool, out []Effect[T, A]) []Effect[T, A] {
	c := m.callers.head
	m.callers.leave(c)
	out = append(out, Effect[T, A]{
		Kind: Serve, Token: m.token.number, Of: m.token.of, Caller: c, Attempts: m.since(c),
		Pass: m.turn.pass, Handed: handed,
	})
	if m.callers.length == 0 {
		out = m.unsubscribe(out)
	}
	return out
}

// wasRefused notes a refusal.
func (m *Machine[T, A]) wasRefused(f Facts, o Outcome, out []Effect[T, A]) []Effect[T, A] {
	m.shown = max(m.shown, m.askedFor)
	if m.polling.stays++; o.Moved {
		m.polling.moves, m.polling.stays = m.polling.moves+1, 0
	}
	if m.token.entry == NoEntry {
		m.polling.pause = doubled(m.polling.pause, m.Shortest, m.Longest)
	} else {
		out = m.missed(f, o.NewEntry, out)
		m.token.seen = m.asked
	}
	if m.callers.length > 0 {
		out = m.subscribe(f, out)
	}
	if o.Moved {
		out = m.follow(out)
	}
	return m.tell(out)
}

// missed has the channel opened anew if the entry was in the queue and has gone: it was skipped, or
// has lost a claim.
func (m *Machine[T, A]) missed(f Facts, newEntry bool, out []Effect[T, A]) []Effect[T, A] {
	if newEntry && m.token.seen > 0 && f.Listens {
		out = append(out, Effect[T, A]{Kind: Missed, At: m.token.seen})
	}
	return out
}

// follow reports another holder to those who know of a refusal. They are the first in line.
func (m *Machine[T, A]) follow(out []Effect[T, A]) []Effect[T, A] {
	for c := m.callers.head; c != nil && c.number <= m.callers.told; c = c.next {
		if c.Follows {
			out = m.tellOne(c, true, out)
		}
	}
	return out
}

// failed ends the waits of those who joined before the attempt and have seen no other owner. A
// permanent error ends all.
func (m *Machine[T, A]) failed(o Outcome, out []Effect[T, A]) []Effect[T, A] {
	if o.Opens {
		return out
	}
	for c := m.callers.head; c != nil; {
		after := c.next
		if o.Answer == Permanent || !c.Refused && m.shown < c.number && c.number <= m.askedFor {
			m.callers.leave(c)
			out = append(out, Effect[T, A]{Kind: Fail, Caller: c, Attempts: m.since(c), Err: o.Err})
		}
		c = after
	}
	return out
}

// tell reports a refusal to those who have not seen one. They are the last in line.
func (m *Machine[T, A]) tell(out []Effect[T, A]) []Effect[T, A] {
	l := &m.callers
	c := l.tail
	if c == nil || c.number <= l.told {
		return out
	}
	for c.prev != nil && c.prev.number > l.told {
		c = c.prev
	}
	for ; c != nil; c = c.next {
		if c.Tell {
			out = m.tellOne(c, false, out)
		}
	}
	l.told = l.arrivals
	return out
}

// tellOne reports the newest refusal to a caller.
func (m *Machine[T, A]) tellOne(c *Caller[T], moved bool, out []Effect[T, A]) []Effect[T, A] {
	return append(out, Effect[T, A]{
		Kind: Tell, Token: m.token.number, Of: m.token.of, Caller: c, Attempts: m.since(c),
		Err: m.news.Err, Moved: moved,
	})
}
