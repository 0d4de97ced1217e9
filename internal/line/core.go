package line

import "time"

// Machine decides for one line. Its zero value, with Config set, is an idle line.
type Machine[T any] struct {
	Config

	callers    list[T]
	state      State
	token      token
	early      bool          // a message has handed the key to the token while an acquire was under way
	hasten     bool          // look again when the acquire under way has ended
	subscribed bool          // the line uses the channel
	looks      int           // that found nothing, in a row
	attempts   uint64        // acquires that were sent
	asked      time.Duration // when the newest acquire was sent
	before     uint64        // the newest arrival then
	shown      uint64        // the newest arrival that has seen another owner
	due        time.Duration // of the next look; 0: none is planned
	rest       time.Duration // after a turn, of a line that polls
	moves      int           // how often such a line has seen the key change hands
	stays      int           // how often it has found it with the same holder since then
	news       News
	turn       turn
}

// A token asks, waits or holds. The zero value is none: the next attempt makes one.
type token struct {
	number uint64        // of the attempt that made it
	entry  Entry         // with which it asked
	seen   time.Duration // when the acquire was sent that last found the entry in the queue; 0: none yet
	left   bool          // Redis may have the token, or its entry
}

// A turn serves callers one after the other, without a command between them.
type turn struct {
	began time.Duration
	last  uint64 // the newest arrival that it may serve
	pass  int
}

// State returns the state of the line. The shell may forget a line that is Idle and has no permit out.
func (m *Machine[T]) State() State { return m.state }

// Head returns the first caller, or nil.
func (m *Machine[T]) Head() *Caller[T] { return m.callers.head }

// News returns what the line can report to a caller.
func (m *Machine[T]) News(c *Caller[T]) News {
	n := m.news
	n.Attempts, n.Shown = m.since(c), c.Refused || c.number <= m.shown
	if m.state == Asking {
		n.Asking = m.asked
	}
	return n
}

// since returns how often the line has asked since a caller joined.
func (m *Machine[T]) since(c *Caller[T]) int { return int(m.attempts - c.joined) }

// Join adds a caller at the end of the line.
func (m *Machine[T]) Join(f Facts, c *Caller[T], out []Effect[T]) []Effect[T] {
	m.callers.join(c, f.Now)
	c.joined = m.attempts
	if m.state == Idle && f.Rest <= f.Now {
		return m.ask(f, out)
	}
	out = m.subscribe(out)
	switch {
	case m.state == Idle:
		out = m.wait(f, m.rested(f), out)
	case m.state == Holding:
		m.shown = c.number
	case m.state == Waiting && m.due == 0:
		out = m.wait(f, f.Now+halfRandom(m.Shortest, f.Random), out)
	}
	if m.news.Answer == Held || m.news.Answer == Refused {
		out = m.tell(out)
	}
	return out
}

// Leave removes a caller whose ctx has ended. It reports false if the caller was served or failed before.
func (m *Machine[T]) Leave(c *Caller[T], out []Effect[T]) ([]Effect[T], bool) {
	if !m.callers.leave(c) {
		return out, false
	}
	if m.callers.length > 0 {
		return out, true
	}
	switch m.state {
	case Waiting:
		out = m.idle(out)
	case Holding:
		out = m.unsubscribe(out)
	}
	return out, true
}

// Granted is an outcome of the acquire under way: the token holds the key, and enough of the lease is left.
func (m *Machine[T]) Granted(f Facts, out []Effect[T]) []Effect[T] { return m.granted(f, false, out) }

// NotGranted is the other outcome. If a message has handed the key to the token meanwhile, the line has it all the same.
func (m *Machine[T]) NotGranted(f Facts, o Outcome, out []Effect[T]) []Effect[T] {
	early, hasten := m.early, m.hasten
	m.early, m.hasten = false, false
	if early && !o.Ended {
		return m.granted(f, true, out)
	}
	m.news = News{Outcome: o, At: f.Now}
	if o.Answer == Refused {
		out = m.wasRefused(f, o, out)
	} else {
		out = m.failed(o, out)
	}
	m.token.left = m.token.left || !o.Clean || o.Answer >= Late || o.Answer == Refused && m.token.entry != NoEntry
	switch {
	case m.callers.length == 0:
		return m.idle(out)
	case early, o.Answer >= Late:
		return m.useless(f, o.Left, out)
	case m.FreshTokens:
		out = give(m.token, 0, out)
		m.token = token{}
	}
	at := m.next(f, o)
	if hasten || at <= f.Now {
		return m.ask(f, out)
	}
	return m.wait(f, at, out)
}

// Message says that Redis has handed the key to a token. late says that nothing is left of the claim.
func (m *Machine[T]) Message(f Facts, number uint64, late bool, out []Effect[T]) []Effect[T] {
	switch {
	case number != m.token.number: // it was given up, and its Give follows
	case m.state == Asking && m.Confirms:
		m.hasten = true
	case m.state == Asking:
		m.early = true // the outcome says whether the claim has ended
	case m.state != Waiting:
	case m.Confirms:
		return m.ask(f, out)
	case late:
		return m.useless(f, 0, out)
	default:
		return m.granted(f, true, out)
	}
	return out
}

// Due says that the time of a Look has come. If that was not the newest one, it is planned again.
func (m *Machine[T]) Due(f Facts, out []Effect[T]) []Effect[T] {
	switch {
	case m.state != Waiting || m.due == 0:
		return out
	case f.Now < m.due:
		return append(out, Effect[T]{Kind: Look, At: m.due})
	case f.Now < f.Rest && f.Rest < m.callers.patient:
		return m.wait(f, f.Rest, out)
	}
	return m.ask(f, out)
}

// rested returns when a line may ask for a key that its process leaves to others: when the rest has ended, or before, so that
// three quarters of the wait remain.
func (m *Machine[T]) rested(f Facts) time.Duration {
	return min(f.Rest, f.Now+(m.callers.patient-f.Now)/4)
}

// Changed says that messages may have been lost, or come again.
func (m *Machine[T]) Changed(f Facts, out []Effect[T]) []Effect[T] {
	switch m.state {
	case Asking:
		m.hasten = true
	case Waiting:
		return m.ask(f, out)
	}
	return out
}

// Unlock ends the lock of a caller that was served with a token. passable says that no one else relies on that token, so that the
// turn may pass the lock on.
func (m *Machine[T]) Unlock(f Facts, number uint64, passable bool, out []Effect[T]) []Effect[T] {
	switch {
	case m.Shares:
		give := Effect[T]{Kind: Give, Token: number}
		if entry := m.behind(f); m.state == Waiting && m.token.entry == NoEntry && entry != NoEntry {
			m.token.entry = entry
			out = m.ask(f, out)
			give.Next = m.token.number
		}
		return append(out, give)
	case m.state != Holding || number != m.token.number:
		return out
	case passable && m.passes(f.Now):
		m.turn.pass++
		return m.serve(false, out)
	}
	return m.replace(f, out)
}

// Lost says that the lease with a token has ended. There is no Give: the key ends by itself now, and who held it releases it.
func (m *Machine[T]) Lost(f Facts, number uint64, out []Effect[T]) []Effect[T] {
	if m.Shares || m.state != Holding || number != m.token.number {
		return out
	}
	m.token.left = false
	return m.replace(f, out)
}

// granted begins a turn.
func (m *Machine[T]) granted(f Facts, handed bool, out []Effect[T]) []Effect[T] {
	m.early, m.hasten, m.looks, m.token.left = false, false, 0, true
	m.rest = eased(m.rest, m.Shortest)
	switch {
	case m.callers.length == 0:
		return m.idle(out)
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
	if m.stays++; o.Moved {
		m.moves, m.stays = m.moves+1, 0
	}
	if m.token.entry == NoEntry {
		m.rest = doubled(m.rest, m.Shortest, m.Longest)
	} else {
		if o.Fresh && m.token.seen > 0 && f.Channel == Open { // it was skipped, or has lost a claim
			out = append(out, Effect[T]{Kind: Missed, At: m.token.seen})
		}
		m.token.seen = m.asked
	}
	if m.callers.length > 0 {
		out = m.subscribe(out)
	}
	return m.tell(out)
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

// ask sends an acquire.
func (m *Machine[T]) ask(f Facts, out []Effect[T]) []Effect[T] {
	if m.token.entry == Plain && f.Channel == Closed { // releases skip it
		return m.replace(f, out)
	}
	m.attempts++
	fresh := m.token.number == 0
	if fresh {
		m.token.number = m.attempts
	}
	if m.token.entry == NoEntry {
		m.token.entry = m.entry(f)
	}
	m.state, m.asked, m.before = Asking, f.Now, m.callers.arrivals
	return append(out, Effect[T]{
		Kind: Ask, Token: m.token.number, Fresh: fresh, Entry: m.token.entry, Again: m.token.seen > 0,
		Caller: m.callers.head, Age: f.Now - m.callers.head.Since,
	})
}

// entry returns the entry for a token without one.
func (m *Machine[T]) entry(f Facts) Entry {
	switch {
	case !m.Queues, m.hurried(f), f.Channel == Opening:
		return NoEntry
	case f.Channel == Open && !m.Dash:
		return Plain
	case f.Channel == Closed && f.Now-m.callers.head.Since < Patience:
		return NoEntry
	}
	return Dashed
}

// behind returns the entry to queue with a release. A line that gets no messages queues then without Patience: others of its kind
// get their turns only if it is behind them.
func (m *Machine[T]) behind(f Facts) Entry {
	if m.Queues && f.Channel == Closed && !m.hurried(f) {
		return Dashed
	}
	return m.entry(f)
}

// replace gives the token up and goes on with a fresh one. If the line can queue, the acquire comes first, so that the release
// finds its entry. Otherwise the acquire follows: at once if the line will queue, or else after a pause, so that others that poll
// can find the key free.
func (m *Machine[T]) replace(f Facts, out []Effect[T]) []Effect[T] {
	if m.callers.length == 0 {
		return m.idle(out)
	}
	old := m.token
	m.token = token{entry: m.behind(f)}
	if m.token.entry != NoEntry {
		out = m.ask(f, out)
		return give(old, m.token.number, out)
	}
	out = give(old, 0, out)
	if m.Queues && f.Channel == Opening && !m.hurried(f) {
		return m.ask(f, out)
	}
	if m.Tells {
		return m.wait(f, f.Now+min(f.Took, m.Longest), out)
	}
	return m.wait(f, f.Now+halfRandom(max(m.rest, m.Shortest/2), f.Random), out)
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
	m.state, m.token, m.news, m.looks, m.moves, m.stays = Idle, token{}, News{}, 0, 0, 0
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
	case !m.Queues, o.Answer != Refused, f.Channel == Closed, o.First && o.Foreign, !queued && m.hurried(f):
		m.looks++
		d := poll(m.looks, m.Shortest, m.Longest, o.Left, f.Random)
		if !m.Queues {
			d = min(d, halfRandom(eager(m.moves, m.stays, m.Shortest, m.Longest), f.Random))
		}
		return f.Now + d
	case !queued && f.Channel == Opening: // Changed comes before
		m.looks = 0
		return f.Now + Patience
	case !queued:
		m.looks = 0
		return f.Now
	}
	m.looks++
	return f.Now + pause(o.First, o.Left, m.looks-1, f.Random)
}

// hurried reports whether the line must poll, since nobody can wait for the queue.
func (m *Machine[T]) hurried(f Facts) bool {
	return hurried(f.Now-m.callers.filled, m.callers.patient-f.Now, f.Took, f.AtRest)
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
