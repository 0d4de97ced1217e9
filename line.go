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

// fencesOfTick is how many fences a grant of Redis has, one for each grant of a turn: those from tick × 64 to tick × 64 + 63.
const fencesOfTick = 64

// lines has the lines of one Locker.
type lines struct {
	mu      sync.Mutex            // guards the fields below, all lines, and the requests in them
	byKey   map[string][]*waiters // those of calls without options of their own, the next to join first
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
	handed  inbox.Grant // the newest message for current
	holder  string      // the token that the newest refusal has named
	timer   *time.Timer // for the next look; nil: not used yet
}

// A grant says when a lease began, and for how long it is trusted at first.
type grant struct {
	start   clock.Instant
	length  time.Duration
	tick    uint64        // of the fences; 0: there are none
	recheck time.Duration // when to check that the key is still there; 0: never
}

// over reports whether nothing is left of the lease.
func (g *grant) over(now clock.Instant) bool { return now.Since(g.start) >= g.length }

// An event is something that happens to a line, and what the Machine wants done for it.
type event struct {
	line.Facts
	now     clock.Instant
	effects []line.Effect[*request]

	asked  *lease          // of Ask
	given  *lease          // of Give
	back   *params         // of Give: the release to send; nil: one whose outcome nobody waits for
	ctx    context.Context //nolint:containedctx // of back, for its values
	done   func(reply)     // gets the outcome of back
	pair   bool            // back carries the Ask
	holder *lease          // of Serve and Tell
	grant  grant           // of Serve, if it begins a turn
}

// newLine returns a line of the callers of e with the options of r.
func newLine(e *engine, r *request) *waiters {
	w := &waiters{engine: e, r: r}
	cfg := r.cfg
	w.Config = line.Config{
		Queues: e.inbox != nil && !cfg.noQueue, Shares: e.shares, Quorum: e.quorum,
		Confirms: cfg.replicas > 0, TTL: r.ttl(), Shortest: cfg.shortest, Longest: cfg.longest,
	}
	w.Dash = w.Queues && e.inbox.Spread
	if !w.Shares && cfg.maxHold == 0 && cfg.minHold == 0 && cfg.replicas == 0 {
		w.Passes = fencesOfTick - 1
	}
	return w
}

// events has events that can be used again, with room for their effects.
var events = sync.Pool{New: func() any { return new(event) }}

// begin reads the facts, and locks the mutex until finish.
func (e *engine) begin() *event {
	v := events.Get().(*event)
	v.now = clock.Now()
	v.Now, v.Random = e.offset(v.now.Mono), rand.Float64()
	if e.inbox != nil {
		v.Listens = e.inbox.Listens()
	}
	e.lines.mu.Lock()
	v.Took, v.AtRest = e.lines.pulse.Times()
	return v
}

// observeLocked adds the duration of an attempt to the facts.
func (e *engine) observeLocked(v *event, took time.Duration, err error) {
	p := &e.lines.pulse
	p.Observe(v.Now, took, err == nil || errors.Is(err, ErrNotAcquired))
	v.Took, v.AtRest = p.Times()
}

// offset returns t as an instant of Facts.
func (e *engine) offset(t time.Time) time.Duration { return max(t.Sub(e.epoch), 1) }

// restOf returns until when the process leaves a key to others, as an instant of Facts; 0: it does not.
func (e *engine) restOf(key string) time.Duration {
	until, rests := e.resting.Load(key)
	if !rests {
		return 0
	}
	return e.offset(until.(time.Time))
}

// finish unlocks the mutex, and does what the Machine wants done. v is not used afterwards.
func (v *event) finish(w *waiters) {
	for i := range v.effects {
		v.noteLocked(w, &v.effects[i])
	}
	if w.current != nil {
		w.current.unwanted.Store(w.Head() == nil)
	}
	if w.State() == line.Idle {
		w.forgetLocked()
	}
	w.engine.lines.mu.Unlock()
	for i := range v.effects {
		v.carry(w, &v.effects[i])
	}
	clear(v.effects)
	*v = event{effects: v.effects[:0]}
	events.Put(v)
}

// noteLocked notes what must be known of an effect.
func (v *event) noteLocked(w *waiters, x *line.Effect[*request]) {
	l := &w.engine.lines
	switch x.Kind {
	case line.Ask:
		v.askLocked(w, x)
	case line.Give:
		if v.given == nil {
			v.given, w.current = w.current, nil
		}
		delete(l.tokens, v.given.params.token)
		v.pair = x.Next != 0 && v.back != nil && v.back.keep == 0
	case line.Serve:
		v.holder = w.current
		delete(l.tokens, v.holder.params.token)
		if x.Handed {
			v.grant = v.holder.handed(w.handed)
		}
		if w.Shares {
			w.current = nil
		}
	case line.Tell:
		v.holder = w.current
		x.Attempts += x.Caller.Of.attempts
	case line.Look:
		if d := x.At - v.Now; w.timer == nil {
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

// askLocked prepares an acquire.
func (v *event) askLocked(w *waiters, x *line.Effect[*request]) {
	e, a := w.engine, w.current
	if a == nil || a.number != x.Token {
		if a != nil {
			delete(e.lines.tokens, a.params.token)
		}
		if v.given == nil {
			v.given = a // its Give follows, if it needs one
		}
		a = e.newAttempt(w.r, w, tokenOf(w.r.cfg.owner))
		a.number, w.current = x.Token, a
	}
	p := &a.params
	if x.Entry != line.NoEntry && p.entry == "" {
		dash := x.Entry == line.Dashed
		a.claim = p.ttl
		if a.r.cfg.renew { // else the new owner does not extend the claim. A minimum hold outlasts a crash
			a.claim = min(p.ttl, max(inbox.Claim(dash), a.r.cfg.minHold))
		}
		p.entry = inbox.Entry(a.claim, dash, e.inbox.Channel, p.token)
		a.watch.Sent(v.now)
		e.lines.tokens[p.token] = a
	}
	p.queued, p.waited = x.Again, x.Age // an earlier send does not refer to them
	a.ctx, a.asked = x.Caller.Of.ctx, v.now
	v.asked = a
}

// forgetLocked forgets a line that is idle.
func (w *waiters) forgetLocked() {
	l := &w.engine.lines
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.current != nil { // Redis has nothing of it
		delete(l.tokens, w.current.params.token)
		w.current = nil
	}
	key := w.r.place.key
	all := l.byKey[key]
	if i := slices.Index(all, w); i >= 0 {
		l.byKey[key] = slices.Delete(all, i, i+1)
	}
	if len(l.byKey[key]) == 0 {
		delete(l.byKey, key)
	}
}

// carry does what the Machine wants done.
func (v *event) carry(w *waiters, x *line.Effect[*request]) {
	e := w.engine
	switch x.Kind {
	case line.Ask:
		if !v.pair {
			e.strategy.do(v.asked.ctx, toAcquire, &v.asked.params, w.heardOf)
		}
	case line.Give:
		v.give(w)
	case line.Serve:
		r := x.Caller.Of
		r.serve(v.holder.serve(r, v.now, x.Pass, &v.grant), nil, x.Attempts)
	case line.Fail:
		x.Caller.Of.serve(nil, x.Err, x.Attempts)
	case line.Tell:
		r, err := x.Caller.Of, x.Err
		if err == nil {
			err = v.holder.refusal()
		}
		if x.Moved {
			r.moved.replace(news{err, x.Attempts})
		} else {
			r.news <- news{err, x.Attempts}
		}
	case line.Subscribe:
		e.inbox.Join()
	case line.Unsubscribe:
		e.inbox.Leave()
	case line.Missed:
		e.inbox.Missed(e.epoch.Add(x.At))
	}
}

// give sends the release of a Give.
func (v *event) give(w *waiters) {
	p, done := v.back, v.done
	switch {
	case p == nil:
		given := v.given.params.releasing(v.given.params.entry, 0)
		p, done, v.ctx = &given, ignored, v.given.ctx
	case v.pair:
		p.next, p.waited = v.asked.params.entry, v.asked.params.waited
		released := done // v is used again before the reply
		done = func(got reply) {
			w.paired(got)
			released(got)
		}
	}
	v.given.send(v.ctx, p, done)
}

// heardOf handles the outcome of the acquire.
func (w *waiters) heardOf(got reply) {
	e := w.engine
	v := e.begin()
	a := w.current
	e.observeLocked(v, v.now.Since(a.asked), got.err)
	a.answered(got)
	if v.grant = a.granted(a.asked, got); got.err == nil && v.grant.over(v.now) {
		got.err = errSlow
	}
	var hook func(Event)
	var trouble Event
	if got.err == nil {
		v.effects = w.Granted(v.Facts, got.fresh, v.effects)
	} else {
		v.effects = w.NotGranted(v.Facts, w.outcomeLocked(v.now, got), v.effects)
		// Those whose wait ends with the error report it themselves. Of the others, the first does.
		if head := w.Head(); head != nil && !errors.Is(got.err, ErrNotAcquired) {
			hook, trouble = e.troubleOf(head.Of, head.Of.attempts+w.News(head).Attempts, got.err)
		}
	}
	v.finish(w)
	if hook != nil {
		go hook(trouble) // ends with the hook
	}
}

// outcomeLocked says of an acquire that was not granted what the Machine must know.
func (w *waiters) outcomeLocked(now clock.Instant, got reply) line.Outcome {
	a, err := w.current, got.err
	o := line.Outcome{Answer: line.Failed, Err: heldBy(got), Left: got.left, First: got.first, Fresh: got.fresh}
	switch {
	case errors.Is(err, ErrNotAcquired):
		o.Answer = line.Refused
		o.Foreign = got.holder != "" && !handsOn(got.holder)
		o.Moved = got.holder != "" && w.holder != "" && got.holder != w.holder
		w.holder = cmp.Or(got.holder, w.holder)
		if got.at != 0 {
			a.watch.Told(a.asked, got.at)
		}
	case errors.Is(err, errSlow):
		o.Answer = line.Late
	case errors.Is(err, ErrNotReplicated):
		o.Answer = line.Unconfirmed
	case permanent(err):
		o.Answer = line.Permanent
	}
	o.Clean = !mayBeThere(got, err) && (a.params.entry == "" || o.Answer == line.Refused || errors.As(err, new(*node.NotDone)))
	o.Ended = w.endedLocked(now)
	return o
}

// endedLocked reports whether nothing is left at now of the claim that the newest message has granted.
func (w *waiters) endedLocked(now clock.Instant) bool {
	if w.handed.Token != w.current.params.token {
		return true
	}
	g := w.current.handed(w.handed)
	return g.over(now)
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
		a.watch.Told(a.asked, got.at)
		if got.tick > 0 {
			w.handed = inbox.Grant{Token: a.params.token, Tick: got.tick, At: got.at, Arrived: v.now}
			v.effects = w.Message(v.Facts, a.number, false, v.effects)
		}
	}
	o.Ended = w.endedLocked(v.now)
	v.effects = w.NotGranted(v.Facts, o, v.effects)
	v.finish(w)
}

// look tells the line that the time of a look has come.
func (w *waiters) look() {
	v := w.engine.begin()
	v.Rest = w.engine.restOf(w.r.place.key)
	v.effects = w.Due(v.Facts, v.effects)
	v.finish(w)
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
}

// handBack ends a turn, or a permit, that its holder gives back. It reports whether the turn was passed on. Otherwise the release
// p is sent, and done gets its outcome.
func (w *waiters) handBack(ctx context.Context, l *lease, passable bool, p *params, done func(reply)) (passed bool) {
	v := l.engine.begin()
	v.ctx, v.back, v.done = ctx, p, done
	if w.Shares {
		v.given = l
	}
	v.effects = w.Unlock(v.Facts, l.number, passable, v.effects)
	passed = !slices.ContainsFunc(v.effects, func(x line.Effect[*request]) bool { return x.Kind == line.Give })
	v.finish(w)
	return passed
}

// lost ends the turn of a lease that was lost.
func (w *waiters) lost(l *lease) {
	v := l.engine.begin()
	v.effects = w.Lost(v.Facts, l.number, v.effects)
	v.finish(w)
}
