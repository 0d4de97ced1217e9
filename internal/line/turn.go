package line

import "time"

// granted begins a turn.
func (m *Machine[T]) granted(f Facts, handed bool, out []Effect[T]) []Effect[T] {
	m.early, m.hasten, m.looks, m.token.left = false, false, 0, true
	m.pace.rest = eased(m.pace.rest, m.Shortest)
	switch {
	case m.callers.length == 0:
		return m.idle(out)
	case m.Shares && m.callers.head.number > m.before: // its fence may be older than the call, and others have newer ones
		return m.replace(f, out)
	case m.Shares:
		out = m.serve(handed, out)
		m.token = token{} // the permit has it
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
func (m *Machine[T]) passes(now time.Duration) bool {
	t, head := &m.turn, m.callers.head
	return t.pass < m.Passes && now-t.began < min(turnLasts, m.TTL/turnShare) && head != nil && head.number <= t.last
}

// serve gives the lock to the first caller.
func (m *Machine[T]) serve(handed bool, out []Effect[T]) []Effect[T] {
	c := m.callers.head
	m.callers.leave(c)
	out = append(out, Effect[T]{
		Kind: Serve, Token: m.token.number, Caller: c, Attempts: m.since(c), Pass: m.turn.pass, Handed: handed,
	})
	if m.callers.length == 0 {
		out = m.unsubscribe(out)
	}
	return out
}

// wasRefused notes a refusal.
func (m *Machine[T]) wasRefused(f Facts, o Outcome, out []Effect[T]) []Effect[T] {
	m.shown = max(m.shown, m.before)
	if m.pace.stays++; o.Moved {
		m.pace.moves, m.pace.stays = m.pace.moves+1, 0
	}
	if m.token.entry == NoEntry {
		m.pace.rest = doubled(m.pace.rest, m.Shortest, m.Longest)
	} else {
		out = m.missed(f, o.Fresh, out)
		m.token.seen = m.asked
	}
	if m.callers.length > 0 {
		out = m.subscribe(out)
	}
	if o.Moved && !m.Shares { // with several holders, the one that is named changes often
		out = m.follow(out)
	}
	return m.tell(out)
}

// missed has the channel opened anew if the entry was in the queue, and was not there any more: it was skipped, or has lost a claim.
func (m *Machine[T]) missed(f Facts, fresh bool, out []Effect[T]) []Effect[T] {
	if fresh && m.token.seen > 0 && f.Listens {
		out = append(out, Effect[T]{Kind: Missed, At: m.token.seen})
	}
	return out
}

// follow reports another holder to those who know of a refusal. They are the first in line.
func (m *Machine[T]) follow(out []Effect[T]) []Effect[T] {
	for c := m.callers.head; c != nil && c.number <= m.callers.told; c = c.after {
		if c.Follows {
			out = append(out, Effect[T]{Kind: Tell, Moved: true, Caller: c, Attempts: m.since(c), Err: m.news.Err})
		}
	}
	return out
}

// failed ends the waits of those who joined before the attempt and have seen no other owner. A permanent error ends all.
func (m *Machine[T]) failed(o Outcome, out []Effect[T]) []Effect[T] {
	for c := m.callers.head; c != nil; {
		after := c.after
		if o.Answer == Permanent || !c.Refused && m.shown < c.number && c.number <= m.before {
			m.callers.leave(c)
			out = append(out, Effect[T]{Kind: Fail, Caller: c, Attempts: m.since(c), Err: o.Err})
		}
		c = after
	}
	return out
}

// tell reports a refusal to those who have not seen one. They are the last in line.
func (m *Machine[T]) tell(out []Effect[T]) []Effect[T] {
	l := &m.callers
	c := l.tail
	if c == nil || c.number <= l.told {
		return out
	}
	for c.before != nil && c.before.number > l.told {
		c = c.before
	}
	for ; c != nil; c = c.after {
		if c.Tell {
			out = append(out, Effect[T]{Kind: Tell, Caller: c, Attempts: m.since(c), Err: m.news.Err})
		}
	}
	l.told = l.arrivals
	return out
}
