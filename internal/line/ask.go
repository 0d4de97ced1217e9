package line

import "time"

// rested returns when a line may ask for a key that its process leaves to others: when the rest has ended, or before, so that
// three quarters of the wait remain. It is now if an answer would come too late then.
func (m *Machine[T]) rested(f Facts) time.Duration {
	at := min(f.Rest, f.Now+(m.callers.patient-f.Now)/4)
	if m.callers.patient < at+max(f.Took, f.AtRest) {
		return f.Now
	}
	return at
}

// ask sends an acquire.
func (m *Machine[T]) ask(f Facts, out []Effect[T]) []Effect[T] {
	if m.token.entry == Plain && m.kind(f) == Dashed {
		return m.replace(f, out)
	}
	m.attempts++
	fresh := m.token.number == 0
	if fresh {
		m.token.number = m.attempts
	}
	if m.token.entry == NoEntry && (f.Listens || f.Now-m.callers.head.Since >= patience) {
		if m.token.entry = m.entry(f); m.token.entry != NoEntry {
			m.looks = 0
		}
	}
	m.state, m.asked, m.before = Asking, f.Now, m.callers.arrivals
	return append(out, Effect[T]{
		Kind: Ask, Token: m.token.number, Fresh: fresh, Entry: m.token.entry, Again: m.token.seen > 0,
		Caller: m.callers.head, Age: f.Now - m.callers.head.Since,
	})
}

// entry returns the entry for a token without one.
func (m *Machine[T]) entry(f Facts) Entry {
	if !m.Queues || m.hurried(f) {
		return NoEntry
	}
	return m.kind(f)
}

// kind returns the kind of entry to queue with. Releases skip one without a dash if no message comes, and cannot tell that a
// process is gone from one with a dash.
func (m *Machine[T]) kind(f Facts) Entry {
	if f.Listens && !m.Dash {
		return Plain
	}
	return Dashed
}

// hurried reports whether the line must poll, since nobody can wait for the queue.
func (m *Machine[T]) hurried(f Facts) bool {
	return hurried(f.Now-m.callers.filled, m.callers.patient-f.Now, f.Took, f.AtRest)
}

// replace gives the token up and goes on with a fresh one. If the line can queue, the acquire comes first, so that the release
// finds its entry. Otherwise the acquire follows after a pause, so that others that poll can find the key free.
func (m *Machine[T]) replace(f Facts, out []Effect[T]) []Effect[T] {
	if m.callers.length == 0 {
		return m.idle(out)
	}
	old := m.token
	m.token = token{entry: m.entry(f)}
	if m.token.entry != NoEntry {
		out = m.ask(f, out)
		return give(old, m.token.number, out)
	}
	out = give(old, 0, out)
	if m.Quorum {
		return m.wait(f, f.Now+min(f.Took, m.Longest), out)
	}
	return m.wait(f, f.Now+halfRandom(max(m.pace.rest, m.Shortest/2), f.Random), out)
}

// useless gives a grant back that cannot be used, and goes on with a fresh token after a pause, so that it is no loop.
func (m *Machine[T]) useless(f Facts, left time.Duration, out []Effect[T]) []Effect[T] {
	out = give(m.token, 0, out)
	m.token = token{}
	m.looks++
	return m.wait(f, f.Now+poll(m.looks, m.Shortest, m.Longest, left, f.Random), out)
}

// give gives a token back, if Redis may have something of it. No acquire with it is under way.
func give[T any](t token, next uint64, out []Effect[T]) []Effect[T] {
	if !t.left {
		return out
	}
	return append(out, Effect[T]{Kind: Give, Token: t.number, Next: next})
}

// idle ends the line.
func (m *Machine[T]) idle(out []Effect[T]) []Effect[T] {
	out = give(m.token, 0, out)
	m.state, m.token, m.news, m.looks, m.pace = Idle, token{}, News{}, 0, pace{rest: m.pace.rest}
	return m.unsubscribe(out)
}

// wait waits for a message, or for a time at which to look. It plans no look whose answer would find everybody gone.
func (m *Machine[T]) wait(f Facts, at time.Duration, out []Effect[T]) []Effect[T] {
	m.state, m.due = Waiting, at
	if m.callers.patient < at+min(f.Took, m.Longest/4) {
		m.due = 0
		return out
	}
	return append(out, Effect[T]{Kind: Look, At: at})
}

// next returns when to ask after an attempt that failed with o.
func (m *Machine[T]) next(f Facts, o Outcome) time.Duration {
	queued := m.token.entry != NoEntry
	switch {
	case !m.Queues, o.Answer != Refused, !f.Listens, o.First && o.Foreign, !queued && m.hurried(f):
		m.looks++
		d := poll(m.looks, m.Shortest, m.Longest, o.Left, f.Random)
		if !m.Queues {
			d = min(d, halfRandom(eager(m.pace.moves, m.pace.stays, m.Shortest, m.Longest), f.Random))
		}
		return f.Now + d
	case !queued:
		m.looks = 0
		return f.Now
	}
	m.looks++
	return f.Now + pause(o.First, o.Left, m.looks-1, f.Random)
}

// subscribe begins to use the channel, so that it is open when the line queues.
func (m *Machine[T]) subscribe(out []Effect[T]) []Effect[T] {
	if !m.Queues || m.subscribed {
		return out
	}
	m.subscribed = true
	return append(out, Effect[T]{Kind: Subscribe})
}

func (m *Machine[T]) unsubscribe(out []Effect[T]) []Effect[T] {
	if !m.subscribed {
		return out
	}
	m.subscribed = false
	return append(out, Effect[T]{Kind: Unsubscribe})
}
