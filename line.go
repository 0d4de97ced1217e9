package redlatch

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/wire"
)

// A keyLine has callers of one Locker that wait for one key. Its Machine decides, see internal/line:
// it takes events under the mutex, and its effects are carried out after unlocking.
type keyLine struct {
	machine line.Machine[*waiter, *attempt]
	engine  *engine
	request *request // of the first caller. All have its key, its place in Redis and its options

	lane   int         // its place in lines.shared; ownLane: it has none
	newest *attempt    // that it has made; nil: none
	holder string      // the token that the newest refusal has named
	timer  *time.Timer // for the next look; nil: not used yet
}

// queuesFor is for how long a line with WithoutQueue queues after a Locker that queues has held the
// key. So Lockers that poll do not go on with a queue that all others have left.
const queuesFor = time.Second

// untoldFor is for how long a line polls after a Locker that cannot tell others has held the key, or
// after a look that has found the key without a message.
const untoldFor = time.Second

// An effect is what a Machine wants done. Most events have few.
type (
	effect  = line.Effect[*waiter, *attempt]
	effects [4]effect
)

// A moment is what is known when something happens to a line.
type moment struct {
	line.Facts
	now  clock.Instant
	back *release        // of an Unlock: what Give sends
	asks context.Context //nolint:containedctx // of the caller for whom an acquire is sent, for its values
}

// newLine returns a line of the callers of e with the options of r.
func newLine(e *engine, r *request, lane int) *keyLine {
	w := &keyLine{engine: e, request: r, lane: lane}
	cfg := r.cfg
	w.machine.Config = line.Config{
		Dash: e.inbox != nil && e.inbox.Spread, Several: e.several(cfg) && !e.writes,
		Together: e.reads, Quorum: e.quorum,
		Confirms: cfg.replicas > 0, TTL: cfg.asked, Shortest: cfg.shortest, Longest: cfg.longest,
	}
	if !w.machine.Several && cfg.maxHold == 0 && cfg.minHold == 0 && cfg.replicas == 0 {
		w.machine.Passes = wire.FencesOfTick - 1
	}
	return w
}

// moment returns what is known of an event at now without the mutex.
func (e *engine) moment(now clock.Instant) moment {
	m := moment{now: now, Facts: line.Facts{Now: now.Mono, Random: rand.Float64()}}
	if e.inbox != nil {
		m.Listens = e.inbox.Listens()
	}
	return m
}

// observeLocked notes how long an attempt has taken.
func (l *lines) observeLocked(m *moment, took time.Duration, err error) {
	l.pulse.Observe(m.Now, took, err == nil || errors.Is(err, ErrNotAcquired))
}

// factsLocked reads the facts about the line. With WithoutQueue it queues, too, while others do: a key
// with a queue is handed on and hardly ever free.
func (w *keyLine) factsLocked(m *moment) {
	e, key := w.engine, w.request.names.lock
	m.Took, m.Idle = e.lines.pulse.Times()
	m.Queues = e.inbox != nil && (!w.request.cfg.noQueue || e.queued.until(key) > m.Now)
	m.Untold = e.untold.until(key) > m.Now
	m.Yield = e.yielding.until(key)
}

// untoldLocked has the line poll for a while: others hold the key and cannot tell whom they hand it to.
func (w *keyLine) untoldLocked(m *moment) {
	w.engine.untold.note(w.request.names.lock, untoldFor)
	w.factsLocked(m)
}

// settleLocked notes what must be known of the effects, before carry does what the Machine wants done.
func (w *keyLine) settleLocked(m *moment, out []effect) {
	for i := range out { // a Give can follow the Ask for the next token
		if x := &out[i]; x.Kind == line.Give || x.Kind == line.Serve {
			x.Of.stays = true
		}
	}
	for i := range out {
		w.noteLocked(m, &out[i])
	}
	if w.newest != nil {
		w.newest.nobodyWaits.Store(w.machine.Head() == nil)
	}
	if w.machine.State() == line.Idle {
		w.forgetLocked(m)
	}
}

// noteLocked notes what must be known of an effect.
func (w *keyLine) noteLocked(m *moment, x *effect) {
	l := &w.engine.lines
	switch x.Kind {
	case line.Ask:
		w.asksLocked(m, x, x.Token)
	case line.Give:
		if x.Next != 0 {
			w.asksLocked(m, x, x.Next)
		}
	case line.Serve:
		x.Of.ctx = nil // a lock does not keep it
		switch {
		case w.machine.Together && x.Pass > 0: // before the first can unlock. Nobody else knows the lease yet
			x.Of.lease.Expect()
		case x.Handed && x.Pass == 0:
			x.Of.grant = x.Of.grantOfClaim()
		}
	case line.Tell:
		x.Attempts += x.Caller.Of.attempts
	case line.Look:
		if d := x.At.Sub(m.Now); w.timer == nil {
			w.timer = time.AfterFunc(d, w.look) // asks, and ends
		} else {
			w.timer.Reset(d)
		}
	case line.Subscribe:
		l.waiting[w] = struct{}{}
	case line.Unsubscribe:
		delete(l.waiting, w)
	}
}

// asksLocked notes which attempt asks, by a number of its token.
func (w *keyLine) asksLocked(m *moment, x *effect, number uint64) {
	if x.Asks = x.Of; x.NewToken {
		w.newLocked(m, w.engine.newAttempt(w.request, w))
		x.Asks, w.newest.number = w.newest, number
		if e := w.engine; e.inbox != nil {
			e.lines.tokens.used[w.newest.minted] = w.newest
		}
		w.machine.Made(w.newest)
	}
	x.Asks.prepareLocked(m, x)
}

// newLocked notes the newest attempt of the line, or that there is none. If the one before was neither
// served nor given up, nothing is left of it.
func (w *keyLine) newLocked(m *moment, a *attempt) {
	if old := w.newest; old != nil && !old.stays {
		w.engine.lines.tokens.forget(old, m.Now)
	}
	w.newest = a
}

// forgetLocked forgets a line that is idle.
func (w *keyLine) forgetLocked(m *moment) {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.newLocked(m, nil)
	if shared, id := w.engine.lines.shared, w.request.line(w.lane); shared[id] == w { // not of a later line
		delete(shared, id)
	}
}

// carry does what the Machine wants done, without the mutex.
func (w *keyLine) carry(m *moment, out []effect) {
	for i := range out {
		w.carryOut(m, &out[i])
	}
}

func (w *keyLine) carryOut(m *moment, x *effect) {
	e, a := w.engine, x.Of
	switch x.Kind {
	case line.Ask:
		e.strategy.do(m.asks, toAcquire, &x.Asks.acquire, x.Asks)
	case line.Give:
		if m.back == nil {
			a.withdraw()
		} else {
			m.back.asks = x.Asks
			a.giveBack(m.back)
		}
	case line.Serve:
		r := x.Caller.Of
		if w.machine.Together && x.Pass > 0 {
			k := new(Lock)
			a.lease.Seat(r.ctx, &k.handle, &r.cfg.lease, m.now)
			r.serve(k, nil, x.Attempts)
		} else {
			r.serve(a.grantLock(r.ctx, &r.request, m.now, x.Pass), nil, x.Attempts)
		}
	case line.Fail:
		x.Caller.Of.serve(nil, x.Err, x.Attempts)
	case line.Tell:
		r, err := x.Caller.Of, x.Err
		if err == nil {
			err = a.refusal(r.names.key)
		}
		r.news.replace(news{err, x.Attempts})
	case line.Subscribe:
		e.inbox.Join()
	case line.Unsubscribe:
		e.inbox.Leave()
	case line.Missed:
		e.inbox.Missed(x.At)
	}
}

// look tells the line that the time of a look has come.
func (w *keyLine) look() {
	m := w.engine.moment(clock.Now())
	var room effects
	out := room[:0]
	w.engine.lines.locked(func() {
		w.factsLocked(&m)
		out = w.machine.Due(m.Facts, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}

// changed tells all lines that messages may have been lost, or come again. When the subscription is confirmed after
// it broke, the server may have returned to older data, or be another one.
func (e *engine) changed(confirmed bool) {
	var all []*keyLine
	returned := false
	e.lines.locked(func() {
		all = slices.Collect(maps.Keys(e.lines.waiting))
		returned = confirmed && e.lines.broken
		e.lines.broken = !confirmed
	})
	for _, w := range all {
		w.changed()
	}
	if returned {
		e.searchAll(all)
	}
}

func (w *keyLine) changed() {
	m := w.engine.moment(clock.Now())
	var room effects
	out := room[:0]
	w.engine.lines.locked(func() {
		w.factsLocked(&m)
		out = w.machine.Changed(m.Facts, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}

// deliver tells a line that its token was handed the key.
func (e *engine) deliver(h wire.HandOver) {
	m := e.moment(clock.Now())
	var a *attempt
	var room effects
	out := room[:0]
	e.lines.locked(func() {
		if a = e.lines.tokens.of(h.Token); a == nil || a.place == nil { // it is not in the queue
			return
		}
		w := a.line
		w.factsLocked(&m)
		a.place.message, a.place.arrived = h, m.now
		out = w.machine.Message(m.Facts, a.number, a.claimEnded(m.now), out)
		w.settleLocked(&m, out)
	})
	if a == nil {
		e.handed(h)
		return
	}
	a.line.carry(&m, out)
}

// unlock ends a turn, or a permit, that its holder gives back with a release that begins now. It
// returns nil if the turn was passed on, and no release was sent.
func (w *keyLine) unlock(
	ctx context.Context, a *attempt, now clock.Instant, passable bool, keep time.Duration,
) (sent *release) {
	m := w.engine.moment(now)
	var room effects
	out, passed := room[:0], false
	w.engine.lines.locked(func() {
		w.factsLocked(&m)
		out, passed = w.machine.Unlock(m.Facts, a.number, a, passable, keep == 0, out)
		w.settleLocked(&m, out)
	})
	if !passed {
		m.back = a.releasing(ctx, now.Mono, keep)
	}
	w.carry(&m, out)
	return m.back
}

// lost ends the turn of a lease that was lost.
func (w *keyLine) lost(a *attempt) {
	m := w.engine.moment(clock.Now())
	var room effects
	out := room[:0]
	w.engine.lines.locked(func() {
		w.factsLocked(&m)
		out = w.machine.Lost(m.Facts, a.number, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}
