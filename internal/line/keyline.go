package line

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A keyLine has calls of one Locker that wait for one key. Its Machine decides: it takes events under the mutex, and
// its effects are carried out after unlocking.
type keyLine struct {
	machine Machine[*Call, *Attempt]
	options *Options
	lines   *Lines
	id      ID
	first   Waiter // with which the line has begun. All have its options

	newest *Attempt    // that it has made; nil: none
	holder string      // the token that the newest refusal has named
	ends   clock.Mono  // when a permit can end by itself, by the newest refusal
	timer  *time.Timer // for the next look; nil: not used yet
}

// queuesFor is for how long a line that polls queues after a Locker that queues has held the
// key. So Lockers that poll do not go on with a queue that all others have left.
const queuesFor = time.Second

// untoldFor is for how long a line polls after a Locker that cannot tell others has held the key, or
// after a look that has found the key without a message.
const untoldFor = time.Second

// An effect is what a Machine wants done. Most events have few.
type (
	effect  = Effect[*Call, *Attempt]
	effects [4]effect
)

// A moment is what is known when something happens to a line.
type moment struct {
	Facts
	now     clock.Instant
	asks    context.Context //nolint:containedctx // of the caller for whom an acquire is sent, for its values
	release context.Context //nolint:containedctx // of an Unlock; nil: there is none
	keep    time.Duration   // of an Unlock
	claim   Claim           // of a Serve that begins a turn by a message

	unused [2]*Attempt // of which nothing is left in Redis
}

// newLine returns a line that begins with a call.
func newLine(l *Lines, id ID, by Waiter) *keyLine {
	w := &keyLine{lines: l, id: id, first: by, options: by.Options()}
	w.machine.Config = w.options.Config
	w.machine.Dash = l.inbox != nil && l.inbox.Spread
	return w
}

// moment returns what is known of an event at now without the mutex.
func (l *Lines) moment(now clock.Instant) moment {
	m := moment{now: now, Facts: Facts{Now: now.Mono, Random: rand.Float64()}}
	if l.inbox != nil {
		m.Listens = l.inbox.Listens()
	}
	return m
}

// factsLocked reads the facts about the line. One that polls queues, too, while others do: a key
// with a queue is handed on and hardly ever free.
func (w *keyLine) factsLocked(m *moment) {
	l, key := w.lines, w.id.Lock
	m.Took, m.Idle = l.pulse.Times()
	m.Queues = l.inbox != nil && (!w.options.Polls || l.queued.until(key) > m.Now)
	m.Untold = l.untold.until(key) > m.Now
	m.Yield = l.yielding.until(key)
}

// untoldLocked has the line poll for a while: others hold the key and cannot tell whom they hand it to.
func (w *keyLine) untoldLocked(m *moment) {
	w.lines.untold.note(w.id.Lock, untoldFor)
	w.factsLocked(m)
}

// settleLocked notes what must be known of the effects, before carry does what the Machine wants done.
func (w *keyLine) settleLocked(m *moment, out []effect) {
	for i := range out { // a Give can follow the Ask for the next token
		if x := &out[i]; x.Kind == Give || x.Kind == Serve {
			x.Of.stays = true
		}
	}
	for i := range out {
		w.noteLocked(m, &out[i])
	}
	if w.newest != nil {
		w.newest.NobodyWaits.Store(w.machine.Head() == nil)
	}
	if w.machine.State() == Idle {
		w.forgetLocked(m)
	}
}

// noteLocked notes what must be known of an effect.
func (w *keyLine) noteLocked(m *moment, x *effect) {
	switch x.Kind {
	case Ask:
		w.asksLocked(m, x, x.Token)
	case Give:
		if x.Next != 0 {
			w.asksLocked(m, x, x.Next)
		}
	case Serve:
		x.Of.ctx = nil // a lock does not keep it
		switch {
		case w.machine.Together && x.Pass > 0: // before the first can unlock. Nobody else knows the lease yet
			x.Of.By.Expect()
		case x.Handed && x.Pass == 0:
			m.claim = x.Of.claim()
		}
	case Tell:
		x.Attempts += x.Caller.Of.Attempts
	case Look:
		if d := x.At.Sub(m.Now); w.timer == nil {
			w.timer = time.AfterFunc(d, w.look) // asks, and ends
		} else {
			w.timer.Reset(d)
		}
	case Subscribe:
		w.lines.waiting[w] = struct{}{}
	case Unsubscribe:
		delete(w.lines.waiting, w)
	}
}

// asksLocked notes which attempt asks, by a number of its token.
func (w *keyLine) asksLocked(m *moment, x *effect, number uint64) {
	if x.Asks = x.Of; x.NewToken {
		w.newLocked(m, w.first.Attempt())
		x.Asks, w.newest.line, w.newest.number = w.newest, w, number
		w.machine.Made(w.newest)
	}
	x.Asks.prepareLocked(m, x)
}

// newLocked notes the newest attempt of the line, or that there is none. If the one before was neither
// served nor given up, nothing is left of it.
func (w *keyLine) newLocked(m *moment, a *Attempt) {
	if old := w.newest; old != nil && !old.stays {
		m.unused[0], m.unused[1] = old, m.unused[0]
	}
	w.newest = a
}

// forgetLocked forgets a line that is idle.
func (w *keyLine) forgetLocked(m *moment) {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.newLocked(m, nil)
	if w.lines.shared[w.id] == w { // not a later line
		delete(w.lines.shared, w.id)
	}
}

// carry does what the Machine wants done, without the mutex.
func (w *keyLine) carry(m *moment, out []effect) {
	for _, a := range m.unused {
		if a != nil {
			a.By.Unused()
		}
	}
	for i := range out {
		w.carryOut(m, &out[i])
	}
}

func (w *keyLine) carryOut(m *moment, x *effect) {
	in := w.lines.inbox
	switch x.Kind {
	case Ask:
		x.Asks.By.Acquire(m.asks)
	case Give:
		if m.release == nil {
			x.Of.By.Withdraw(x.Of.ctx)
		} else {
			x.Of.By.Release(m.release, m.now.Mono, m.keep, x.Asks)
		}
	case Serve:
		c := x.Caller.Of
		x.Of.By.Serve(c.leaves(), c.By, m.now, x.Pass, m.claim, x.Attempts)
	case Fail:
		c := x.Caller.Of
		c.leaves()
		c.By.Fail(x.Err, x.Attempts)
	case Tell:
		x.Caller.Of.By.Tell(x.Of, x.Err, x.Attempts)
	case Subscribe:
		in.Join()
	case Unsubscribe:
		in.Leave()
	case Missed:
		in.Missed(x.At)
	}
}

// leaves returns the ctx of a call that has left its line, and forgets it.
func (c *Call) leaves() context.Context {
	ctx := c.ctx
	c.ctx = nil
	return ctx
}

// look tells the line that the time of a look has come.
func (w *keyLine) look() { w.happens(w.machine.Due) }

// changed tells the line that messages may have been lost, or come again.
func (w *keyLine) changed() { w.happens(w.machine.Changed) }

// happens hands an event to the Machine that is about no attempt and no call.
func (w *keyLine) happens(event func(Facts, []effect) []effect) {
	m := w.lines.moment(clock.Now())
	var room effects
	out := room[:0]
	w.lines.locked(func() {
		w.factsLocked(&m)
		out = event(m.Facts, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}
