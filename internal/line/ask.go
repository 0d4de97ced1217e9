package line

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// yielded returns when a line may ask for a key that its process leaves to others: when it may ask
// again, or before, so that three quarters of the wait remain. It is now if an answer would come
// too late then.
func (m *Machine[T, A]) yielded(f Facts) clock.Mono {
	at := min(f.Yield, f.Now.Add(m.callers.patient.Sub(f.Now)/4))
	if m.callers.patient < at.Add(max(f.Took, f.Idle)) {
		return f.Now
	}
	return at
}

// ask sends an acquire, with a token whose entry is of the right kind.
func (m *Machine[T, A]) ask(f Facts, out []Effect[T, A]) []Effect[T, A] {
	if m.token.entry == Plain && m.kind(f) == Dashed {
		return m.replace(f, false, out)
	}
	return m.send(f, out)
}

func (m *Machine[T, A]) send(f Facts, out []Effect[T, A]) []Effect[T, A] {
	m.attempts++
	fresh := m.token.number == 0
	if fresh {
		m.token.number = m.attempts
	}
	if m.token.entry == NoEntry && (f.Listens || f.Now.Sub(m.callers.head.Since) >= queuesAfter) {
		if m.token.entry = m.entry(f); m.token.entry != NoEntry {
			m.looks = 0
		}
	}
	m.state, m.asked, m.askedFor = Asking, f.Now, m.callers.arrivals
	return append(out, Effect[T, A]{
		Kind: Ask, Token: m.token.number, Of: m.token.of, NewToken: fresh,
		Entry: m.token.entry, Again: m.token.seen > 0,
		Caller: m.callers.head, Age: f.Now.Sub(m.callers.head.Since),
	})
}

// entry returns the entry for a token without one.
func (m *Machine[T, A]) entry(f Facts) Entry {
	if !f.Queues || m.hurried(f) {
		return NoEntry
	}
	return m.kind(f)
}

// kind returns the kind of entry to queue with. Releases skip one without a dash if no message
// comes, and cannot tell that a process is gone from one with a dash.
func (m *Machine[T, A]) kind(f Facts) Entry {
	if f.Listens && !m.Dash {
		return Plain
	}
	return Dashed
}

// hurried reports whether the line must poll, since nobody can wait for the queue.
func (m *Machine[T, A]) hurried(f Facts) bool {
	return hurried(f.Now.Sub(m.callers.filled), m.callers.patient.Sub(f.Now), f.Took, f.Idle)
}

// replace gives the token up and goes on with a fresh one. If the line can queue, the acquire comes
// first, so that the release finds its entry, or the release carries it. Otherwise the acquire
// follows after a pause, so that others that poll can find the key free.
func (m *Machine[T, A]) replace(f Facts, carries bool, out []Effect[T, A]) []Effect[T, A] {
	if m.callers.length == 0 {
		return m.idle(out)
	}
	old := m.token
	m.token = token[A]{entry: m.entry(f)}
	if m.token.entry != NoEntry {
		out = m.send(f, out)
		if ask := &out[len(out)-1]; carries && old.mayBeInRedis {
			ask.Kind, ask.Token, ask.Of, ask.Next = Give, old.number, old.of, ask.Token
			return out
		}
		return give(old, out)
	}
	out = give(old, out)
	if m.Quorum {
		return m.wait(f, f.Now.Add(min(f.Took, m.Longest)), out)
	}
	return m.wait(f, f.Now.Add(halfRandom(max(m.polling.pause, m.Shortest/2), f.Random)), out)
}

// useless gives a grant back that cannot be used, and goes on with a fresh token after a pause, so
// that it is no loop.
func (m *Machine[T, A]) useless(f Facts, left time.Duration, out []Effect[T, A]) []Effect[T, A] {
	out = give(m.token, out)
	m.token = token[A]{}
	m.looks++
	return m.wait(f, f.Now.Add(poll(m.looks, m.Shortest, m.Longest, left, f.Random)), out)
}

// give gives a token back, if Redis may have something of it. No acquire with it is under way.
func give[T, A any](t token[A], out []Effect[T, A]) []Effect[T, A] {
	if !t.mayBeInRedis {
		return out
	}
	return append(out, Effect[T, A]{Kind: Give, Token: t.number, Of: t.of})
}

// idle ends the line.
func (m *Machine[T, A]) idle(out []Effect[T, A]) []Effect[T, A] {
	out = give(m.token, out)
	m.state, m.token, m.news, m.looks, m.polling = Idle, token[A]{}, News{}, 0, polling{}
	return m.unsubscribe(out)
}

// wait waits for a message, or for a time at which to look. It plans no look whose answer would
// find everybody gone.
func (m *Machine[T, A]) wait(f Facts, at clock.Mono, out []Effect[T, A]) []Effect[T, A] {
	m.state, m.due = Waiting, at
	if m.callers.patient < at.Add(min(f.Took, m.Longest/4)) {
		m.due = 0
		return out
	}
	return append(out, Effect[T, A]{Kind: Look, At: at})
}

// next returns when to ask after an attempt that failed with o.
func (m *Machine[T, A]) next(f Facts, o Outcome) clock.Mono {
	queued := m.token.entry != NoEntry
	switch {
	case o.Opens: // the attempt has lasted for its timeout
		return f.Now
	case o.Answer != Refused, !f.Listens, f.Untold, o.First && o.Foreign, !queued && (!f.Queues || m.hurried(f)):
		m.looks++
		d := poll(m.looks, m.Shortest, m.Longest, o.Left, f.Random)
		if !f.Queues || o.Answer == Refused && (!f.Listens || f.Untold) {
			d = min(d, halfRandom(eager(m.polling.moves, m.polling.stays, m.Shortest, m.Longest), f.Random))
		}
		return f.Now.Add(d)
	case !queued:
		m.looks = 0
		return f.Now
	}
	m.looks++
	return f.Now.Add(pause(o.First, o.Left, m.looks-1, f.Random))
}

// subscribe begins to use the channel, so that it is open when the line queues.
func (m *Machine[T, A]) subscribe(f Facts, out []Effect[T, A]) []Effect[T, A] {
	if !f.Queues || m.subscribed {
		return out
	}
	m.subscribed = true
	return append(out, Effect[T, A]{Kind: Subscribe})
}

func (m *Machine[T, A]) unsubscribe(out []Effect[T, A]) []Effect[T, A] {
	if !m.subscribed {
		return out
	}
	m.subscribed = false
	return append(out, Effect[T, A]{Kind: Unsubscribe})
}
