package redlatch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
)

// mostPasses is how often a turn may pass the lock on: a tick has that many fences more than one.
const mostPasses = fencesOfTick - 1

// lines has the lines of one Locker.
type lines struct {
	mu      sync.Mutex            // guards the fields below, all lines, and the requests in them
	byKey   map[string]*waiters   // those of calls without options of their own
	waiting map[*waiters]struct{} // those that use the subscription
	tokens  map[string]*lease     // that a release may hand the key to
	pulse   line.Pulse
}

// waiters is a line: the callers of one Locker that wait for one key. Its Machine decides, see internal/line. An event is handed
// to it under the mutex, and what it wants done is done after the mutex was unlocked.
type waiters struct {
	line.Machine[*request]
	engine *engine
	r      *request // of the first caller. All have its key, its place in Redis and its options

	current *lease      // of the token that asks, waits or holds; nil: there is none
	ask     ask         // the newest acquire
	handed  inbox.Grant // the newest message for current
	holder  string      // the token that the newest refusal has named
	timer   *time.Timer // for the next look; nil: not used yet
	outcome func(reply)
}

// An ask is an acquire of a line, or that part of a pair.
type ask struct {
	params *params
	ctx    context.Context //nolint:containedctx // for its values
	at     clock.Instant
}

// A grant says when a lease began, and for how long it is trusted at first.
type grant struct {
	start   clock.Instant
	length  time.Duration
	fence   uint64
	recheck time.Duration // when to check that the key is still there; 0: never
}

// An event is something that happens to a line, and what the Machine wants done for it.
type event struct {
	line.Facts
	engine  *engine
	now     clock.Instant
	ctx     context.Context //nolint:containedctx // for the values of a release
	effects []line.Effect[*request]

	asked  ask    // of Ask
	err    error  // of Ask: there is no token
	given  *lease // of Give
	served *lease // of Serve
	grant  grant  // of Serve, if it begins a turn
	holder *lease // of Tell
}

// newLine returns a line of the callers of e with the options of r.
func newLine(e *engine, r *request) *waiters {
	w := &waiters{engine: e, r: r}
	w.outcome = w.heardOf
	cfg, habits := r.cfg, e.strategy.habits()
	w.Config = line.Config{
		Queues: e.inbox != nil && !cfg.noQueue, Shares: habits.shares, FreshTokens: habits.freshTokens, Tells: habits.tells,
		Confirms: cfg.replicas > 0, TTL: r.ttl(), Shortest: cfg.shortest, Longest: cfg.longest,
	}
	w.Dash = w.Queues && e.inbox.Spread
	if !w.Shares && cfg.maxHold == 0 && cfg.minHold == 0 && cfg.replicas == 0 {
		w.Passes = mostPasses
	}
	return w
}

// events has events that can be used again, with room for their effects.
var events = sync.Pool{New: func() any { return new(event) }}

// begin reads the facts, and locks the mutex until finish.
func (e *engine) begin() *event {
	v := events.Get().(*event)
	v.engine, v.now = e, clock.Now()
	v.Now, v.Random = e.offset(v.now.Mono), rand.Float64()
	if e.inbox != nil {
		v.Listens = e.inbox.Listens()
	}
	e.lines.mu.Lock()
	v.Took, v.AtRest = e.lines.pulse.Times()
	return v
}

// observeLocked adds the duration of an attempt to the facts.
func (v *event) observeLocked(took time.Duration, err error) {
	p := &v.engine.lines.pulse
	p.Observe(v.Now, took, err == nil || errors.Is(err, ErrNotAcquired))
	v.Took, v.AtRest = p.Times()
}

// offset returns t as an instant of Facts.
func (e *engine) offset(t time.Time) time.Duration { return max(t.Sub(e.epoch), 1) }

// rests adds the fact until when the process leaves a key to others.
func (v *event) rests(key string) {
	if until, rests := v.engine.resting.Load(key); rests {
		v.Rest = v.engine.offset(until.(time.Time))
	}
}

// finish notes what must be known of the effects, and unlocks the mutex.
func (v *event) finish(w *waiters) {
	l := &v.engine.lines
	for i := range v.effects {
		switch x := &v.effects[i]; x.Kind {
		case line.Ask:
			v.askLocked(w, x)
		case line.Give:
			if v.given == nil {
				v.given, w.current = w.current, nil
			}
			delete(l.tokens, v.given.params.token)
		case line.Serve:
			v.served = w.current
			delete(l.tokens, v.served.params.token)
			if x.Handed {
				v.grant = w.current.handed(w.handed)
			}
			if w.Shares {
				w.current = nil
			}
		case line.Tell:
			v.holder = w.current
		case line.Look:
			w.lookLocked(x.At - v.Now)
		case line.Subscribe:
			l.waiting[w] = struct{}{}
		case line.Unsubscribe:
			delete(l.waiting, w)
		}
	}
	if v.ctx == nil {
		v.ctx = w.ask.ctx
	}
	if w.State() == line.Idle {
		v.forgetLocked(w)
	}
	l.mu.Unlock()
}

// askLocked prepares an acquire.
func (v *event) askLocked(w *waiters, x *line.Effect[*request]) {
	a := w.current
	if a == nil || a.number != x.Token {
		w.ask = ask{}
		if a != nil {
			delete(v.engine.lines.tokens, a.params.token)
		}
		if v.given == nil {
			v.given = a // its Give follows, if it needs one
		}
		if w.current, v.err = v.engine.newAttempt(w.r, w, ""); v.err != nil {
			return
		}
		a = w.current
		a.number = x.Token
	}
	p := &a.params
	if a.asked { // a send before may still refer to them
		again := a.params
		p = &again
	}
	a.asked = true
	if x.Entry != line.NoEntry {
		if a.entry == "" {
			dash := x.Entry == line.Dashed
			a.claim = a.r.claim(inbox.Claim(dash))
			a.entry = inbox.Entry(a.claim, dash, v.engine.inbox.Channel, a.params.token)
			a.watch.Sent(v.now)
			v.engine.lines.tokens[a.params.token] = a
		}
		p.entry, p.queued, p.waited = a.entry, x.Again, x.Age
	}
	v.asked = ask{p, x.Caller.Of.ctx, v.now}
	w.ask = v.asked
}

// lookLocked sets the timer.
func (w *waiters) lookLocked(d time.Duration) {
	if w.timer != nil {
		w.timer.Reset(d)
		return
	}
	w.timer = time.AfterFunc(d, w.look)
}

// forgetLocked forgets a line that is idle.
func (v *event) forgetLocked(w *waiters) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.current != nil { // Redis has nothing of it
		delete(v.engine.lines.tokens, w.current.params.token)
		w.current = nil
	}
	if byKey := v.engine.lines.byKey; byKey[w.r.place.key] == w {
		delete(byKey, w.r.place.key)
	}
}

// carry does what the Machine wants done. The release of a Give is p, whose outcome done gets; if p is nil, nobody waits for it.
// carry reports whether there was one. v is not used afterwards.
func (v *event) carry(w *waiters, p *params, done func(reply)) (released bool) {
	box := v.engine.inbox
	for i := range v.effects {
		x := &v.effects[i]
		switch x.Kind {
		case line.Ask:
			switch {
			case v.err != nil:
				w.heardOf(reply{err: v.err})
			case i+1 < len(v.effects) && v.isPair(&v.effects[i+1], p): // the release carries it
			default:
				v.engine.strategy.do(v.asked.ctx, toAcquire, v.asked.params, w.outcome)
			}
		case line.Give:
			released = true
			v.give(w, x, p, done)
		case line.Serve:
			r := x.Caller.Of
			r.serve(v.served.serve(r, v.now, x.Pass, &v.grant), nil, x.Attempts)
		case line.Fail:
			x.Caller.Of.serve(nil, x.Err, x.Attempts)
		case line.Tell:
			r, err := x.Caller.Of, x.Err
			if err == nil {
				err = v.holder.refusal()
			}
			r.news <- news{err, r.own + x.Attempts}
		case line.Subscribe:
			box.Join()
		case line.Unsubscribe:
			box.Leave()
		case line.Missed:
			box.Missed(v.engine.epoch.Add(x.At))
		}
	}
	clear(v.effects)
	*v = event{effects: v.effects[:0]}
	events.Put(v)
	return released
}

// isPair reports whether x is a Give whose release p carries the Ask before it. It does that for a lock that is held.
func (v *event) isPair(x *line.Effect[*request], p *params) bool {
	return x.Kind == line.Give && x.Next != 0 && v.err == nil && p != nil && p.keep == 0
}

// give sends the release of a Give.
func (v *event) give(w *waiters, x *line.Effect[*request], p *params, done func(reply)) {
	told := done
	switch {
	case p == nil:
		given := v.given.params.releasing(v.given.entry, 0)
		p, told = &given, ignored
	case v.isPair(x, p):
		p.next, p.waited = v.asked.params.entry, v.asked.params.waited
		told = func(got reply) {
			w.paired(got)
			done(got)
		}
	}
	v.given.send(v.ctx, p, told)
}

// heardOf handles the outcome of the acquire.
func (w *waiters) heardOf(got reply) {
	e, err := w.engine, got.err
	v := e.begin()
	if w.ask.params != nil {
		v.observeLocked(v.now.Since(w.ask.at), err)
	}
	a := w.current
	v.grant = grant{w.ask.at, clock.Validity(w.r.ttl(), w.r.cfg.drift), got.fence, got.recheckAfter}
	if err == nil && v.now.Since(w.ask.at) >= v.grant.length {
		err, got.err = errSlow, errSlow
	}
	if a != nil {
		a.answered(got)
	}
	var failed *request
	if err == nil {
		v.effects = w.Granted(v.Facts, v.effects)
	} else {
		v.effects = w.NotGranted(v.Facts, w.outcomeLocked(v.now, got), v.effects)
		failed = w.failedLocked(err)
	}
	v.finish(w)
	v.carry(w, nil, nil)
	if hook, event := e.troubleOf(failed, err); hook != nil {
		go hook(event) // ends with the hook
	}
}

// outcomeLocked says of an acquire that was not granted what the Machine must know.
func (w *waiters) outcomeLocked(now clock.Instant, got reply) line.Outcome {
	a, err := w.current, got.err
	o := line.Outcome{Answer: line.Failed, Err: heldBy(got), Left: got.left, First: got.first, Fresh: got.fresh}
	switch {
	case a == nil:
		o.Clean = true
		return o
	case errors.Is(err, ErrNotAcquired):
		o.Answer = line.Refused
		o.Foreign = got.holder != "" && !handsOn(got.holder)
		o.Moved = got.holder != "" && w.holder != "" && got.holder != w.holder
		w.holder = cmp.Or(got.holder, w.holder)
		if got.at != 0 {
			a.watch.Told(w.ask.at, got.at)
		}
	case errors.Is(err, errSlow):
		o.Answer = line.Late
	case errors.Is(err, ErrNotReplicated):
		o.Answer = line.Unconfirmed
	case permanent(err):
		o.Answer = line.Permanent
	}
	o.Clean = !mayBeThere(got, err) && (a.entry == "" || o.Answer == line.Refused || errors.As(err, new(*node.NotDone)))
	o.Ended = w.endedLocked(now)
	return o
}

// endedLocked reports whether nothing is left at now of the claim that the newest message has granted.
func (w *waiters) endedLocked(now clock.Instant) bool {
	if w.handed.Token != w.current.params.token {
		return true
	}
	g := w.current.handed(w.handed)
	return now.Since(g.start) >= g.length
}

// failedLocked returns whose Hooks.Trouble must be told of a failed attempt: that of the first who still waits, since the others
// report it themselves.
func (w *waiters) failedLocked(err error) *request {
	head := w.Head()
	if head == nil || errors.Is(err, ErrNotAcquired) {
		return nil
	}
	return head.Of.after(head.Of.own + w.News(head).Attempts)
}

// paired handles the outcome of a release that carried an acquire. If it has not queued the entry, the line asks.
func (w *waiters) paired(got reply) {
	v := w.engine.begin()
	a, err := w.current, got.err
	o := line.Outcome{Answer: line.Refused, Err: ErrNotAcquired}
	switch {
	case err != nil || got.at == 0:
		if err != nil && !errors.Is(err, ErrLost) {
			o.Answer, o.Err = line.Failed, err
		}
		v.effects = w.Changed(v.Facts, v.effects)
	default:
		a.watch.Told(w.ask.at, got.at)
		if got.tick > 0 {
			w.handed = inbox.Grant{Token: a.params.token, Tick: got.tick, At: got.at, Arrived: v.now}
			v.effects = w.Message(v.Facts, a.number, false, v.effects)
		}
	}
	o.Ended = w.endedLocked(v.now)
	v.effects = w.NotGranted(v.Facts, o, v.effects)
	v.finish(w)
	v.carry(w, nil, nil)
}

// look tells the line that the time of a look has come.
func (w *waiters) look() {
	v := w.engine.begin()
	v.rests(w.r.place.key)
	v.effects = w.Due(v.Facts, v.effects)
	v.finish(w)
	v.carry(w, nil, nil)
}

// changed tells all lines that messages may have been lost, or come again.
func (e *engine) changed() {
	e.lines.mu.Lock()
	all := slices.Collect(maps.Keys(e.lines.waiting))
	e.lines.mu.Unlock()
	for _, w := range all {
		v := w.engine.begin()
		v.effects = w.Changed(v.Facts, v.effects)
		v.finish(w)
		v.carry(w, nil, nil)
	}
}

// deliver tells a line that its token was handed the key.
func (e *engine) deliver(g inbox.Grant) {
	v := e.begin()
	g.Arrived = v.now
	a := e.lines.tokens[g.Token]
	if a == nil || a.line.current != a { // it was given up, and its release follows
		e.lines.mu.Unlock()
		return
	}
	w := a.line
	w.handed = g
	v.effects = w.Message(v.Facts, a.number, w.endedLocked(v.now), v.effects)
	v.finish(w)
	v.carry(w, nil, nil)
}

// handBack ends a turn, or a permit, that its holder gives back. It reports false if the turn was passed on. Else the release p
// is sent, and done gets its outcome.
func (w *waiters) handBack(ctx context.Context, l *lease, passable bool, p *params, done func(reply)) bool {
	v := l.engine.begin()
	v.ctx = ctx
	if w.Shares {
		v.given = l
	}
	v.effects = w.Unlock(v.Facts, l.number, passable, v.effects)
	v.finish(w)
	if passable && v.given != nil {
		l.notPassed()
	}
	return v.carry(w, p, done)
}

// lost ends the turn of a lease that was lost.
func (w *waiters) lost(l *lease) {
	v := l.engine.begin()
	v.effects = w.Lost(v.Facts, l.number, v.effects)
	v.finish(w)
	v.carry(w, nil, nil)
}
