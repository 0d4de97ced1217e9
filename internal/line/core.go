package line

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Machine decides for one line. Its zero value, with Config set, is an idle line. T is what the
// shell has of a caller, and A what it has of an attempt.
type Machine[T, A any] struct {
	Config

	callers    list[T]
	state      State
	token      token[A]
	early      bool       // a message has handed the key to the token while an acquire was under way
	hasten     bool       // look again when the acquire under way has ended
	subscribed bool       // the line uses the channel
	looks      int        // that found nothing, in a row
	attempts   uint64     // acquires that were sent
	asked      clock.Mono // when the newest acquire was sent
	askedFor   uint64     // the newest arrival then
	shown      uint64     // the newest arrival that has seen another owner
	due        clock.Mono // of the next look; 0: none is planned
	polling    polling
	news       News
	turn       turn
}

// A token asks, waits or holds. The zero value is none: the next attempt makes one.
type token[A any] struct {
	number       uint64     // counts the acquires of the line; 0: none
	of           A          // the attempt of the shell
	entry        Entry      // with which it asked
	seen         clock.Mono // when the acquire was sent that last found the entry in the queue; 0: none yet
	mayBeInRedis bool       // the token, or its entry
}

// A turn serves callers one after the other, without a command between them.
type turn struct {
	began clock.Mono
	last  uint64 // the newest arrival that it may serve
	pass  int
}

// A polling is how a line polls.
type polling struct {
	pause time.Duration // after a turn
	moves int           // how often the line has seen the key change hands
	stays int           // how often it has found the key with the same holder since then
}

// Made notes what the shell has made for an Ask with NewToken, before the next event.
func (m *Machine[T, A]) Made(of A) { m.token.of = of }

// State returns the state of the line. The shell may forget a line that is Idle.
func (m *Machine[T, A]) State() State { return m.state }

// String describes the line.
func (m *Machine[T, A]) String() string {
	return fmt.Sprintf("%v, token %d with %v entry, %d in line, %d attempts, the newest: %v",
		m.state, m.token.number, m.token.entry, m.callers.length, m.attempts, m.news.Answer)
}

// Length returns how many callers wait.
func (m *Machine[T, A]) Length() int { return m.callers.length }

// Head returns the first caller, or nil.
func (m *Machine[T, A]) Head() *Caller[T] { return m.callers.head }

// News returns what the line can report to a caller.
func (m *Machine[T, A]) News(c *Caller[T]) News {
	n := m.news
	n.Attempts = m.since(c)
	if m.state == Asking {
		n.Asking = m.asked
	}
	return n
}

// since returns how often the line has asked since a caller joined.
func (m *Machine[T, A]) since(c *Caller[T]) int { return int(m.attempts - c.joined) }

// Join adds a caller at the end of the line.
func (m *Machine[T, A]) Join(f Facts, c *Caller[T], out []Effect[T, A]) []Effect[T, A] {
	m.callers.join(c, f.Now)
	c.joined = m.attempts
	if m.state == Idle && m.yielded(f) <= f.Now {
		return m.ask(f, out)
	}
	out = m.subscribe(f, out)
	switch {
	case m.state == Idle:
		out = m.wait(f, m.yielded(f), out)
	case m.state == Holding:
		m.shown = c.number
	case m.state == Waiting && m.due == 0:
		out = m.wait(f, f.Now.Add(halfRandom(m.Shortest, f.Random)), out)
	}
	if m.state == Holding || m.news.Answer == Refused {
		out = m.tell(out)
	}
	return out
}

// Leave removes a caller whose ctx has ended. It reports false if the caller was served or failed
// before.
func (m *Machine[T, A]) Leave(c *Caller[T], out []Effect[T, A]) ([]Effect[T, A], bool) {
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

// Granted is an outcome of the acquire under way: the token holds the key, and enough of the lease
// is left. newEntry says that the key was free, and the entry was not in the queue.
func (m *Machine[T, A]) Granted(f Facts, newEntry bool, out []Effect[T, A]) []Effect[T, A] {
	return m.granted(f, false, m.missed(f, newEntry, out))
}

// NotGranted is the other outcome. If a message has handed the key to the token meanwhile, the line
// has it all the same.
func (m *Machine[T, A]) NotGranted(f Facts, o Outcome, out []Effect[T, A]) []Effect[T, A] {
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
	m.token.mayBeInRedis = m.token.mayBeInRedis || !o.Clean || o.Answer >= Late ||
		o.Answer == Refused && m.token.entry != NoEntry
	switch {
	case m.callers.length == 0:
		return m.idle(out)
	case early, o.Answer >= Late:
		return m.useless(f, o.Left, out)
	case m.Quorum:
		out = give(m.token, out)
		m.token = token[A]{}
	}
	at := m.next(f, o)
	if hasten || at <= f.Now {
		return m.ask(f, out)
	}
	return m.wait(f, at, out)
}

// Message says that Redis has handed the key to a token. late says that nothing is left of the
// claim.
func (m *Machine[T, A]) Message(f Facts, number uint64, late bool, out []Effect[T, A]) []Effect[T, A] {
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
func (m *Machine[T, A]) Due(f Facts, out []Effect[T, A]) []Effect[T, A] {
	switch {
	case m.state != Waiting || m.due == 0:
		return out
	case f.Now < m.due:
		return append(out, Effect[T, A]{Kind: Look, At: m.due})
	case f.Now < f.Yield && f.Yield.Add(max(f.Took, f.Idle)) < m.callers.patient:
		return m.wait(f, f.Yield, out)
	}
	return m.ask(f, out)
}

// Changed says that messages may have been lost, or come again.
func (m *Machine[T, A]) Changed(f Facts, out []Effect[T, A]) []Effect[T, A] {
	switch m.state {
	case Asking:
		m.hasten = true
	case Waiting:
		return m.ask(f, out)
	}
	return out
}

// Unlock ends the lock of a caller that was served with a token. passable says that no one else
// relies on that token, so that the turn may pass the lock on. Unlock reports whether it does.
// Otherwise there is one Give. carries says that the release can carry an acquire.
func (m *Machine[T, A]) Unlock(
	f Facts, number uint64, of A, passable, carries bool, out []Effect[T, A],
) (effects []Effect[T, A], passed bool) {
	switch {
	case m.Several, m.state != Holding, number != m.token.number:
		return append(out, Effect[T, A]{Kind: Give, Token: number, Of: of}), false
	case passable && m.passes(f.Now):
		m.turn.pass++
		return m.serve(false, out), true
	}
	return m.replace(f, carries, out), false
}

// Lost says that the lease with a token has ended. There is no Give: the key ends by itself now,
// and who held it releases it.
func (m *Machine[T, A]) Lost(f Facts, number uint64, out []Effect[T, A]) []Effect[T, A] {
	if m.Several || m.state != Holding || number != m.token.number {
		return out
	}
	m.token.mayBeInRedis = false
	return m.replace(f, false, out)
}
