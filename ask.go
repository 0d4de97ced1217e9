package redlatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

// send sends an acquire with the token of the line. w.asking is set. at was read just before.
func (w *waiters) send(at clock.Instant) {
	switch p, err := w.prepare(at); {
	case err != nil:
		w.notGranted(acquireReply{}, err)
	case p != nil:
		w.engine.strategy.acquire(w.ask.by.ctx, p, w.outcome)
	}
}

// heardOf handles the outcome of the acquire.
func (w *waiters) heardOf(got acquireReply, err error) {
	replied := w.engine.now()
	w.engine.observe(replied.Since(w.ask.at), err)
	if err == nil {
		if w.granted(w.ask.by.ctx, w.ask.at, replied, got.fence, &got) {
			return
		}
		err = errSlow
	}
	w.notGranted(got, heldBy(got, err))
}

// prepare returns the acquire to send at a time, or nil if everybody has left: then the line may serve others already.
func (w *waiters) prepare(at clock.Instant) (*leaseParams, error) {
	e := w.engine
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	w.ask = ask{at: at}
	if w.Len() == 0 {
		w.asking = false
		w.dropLocked()
		return nil, nil
	}
	w.ask.by = w.Head().Of
	if w.outdatedLocked() {
		if undo := w.giveUpLocked(); undo != nil {
			go undo.undo(w.ask.by.ctx, nil, func() {}) // posts, and ends
		}
	}
	w.asked++
	w.tries++
	a, err := w.attemptLocked()
	if err != nil {
		return nil, err
	}
	p := &a.params
	if a.asked {
		again := a.params
		p = &again
	}
	a.asked = true
	p.queued = a.entry != ""
	if p.entry = w.entryLocked(); p.entry != "" {
		p.waited = w.waitedLocked()
	}
	w.ask.params = p
	return p, nil
}

// attemptLocked returns the token that asks.
func (w *waiters) attemptLocked() (*lease, error) {
	if w.attempt != nil {
		return w.attempt, nil
	}
	var err error
	w.attempt, err = w.engine.newAttempt(w.r, w, "")
	return w.attempt, err
}

// passable reports whether the options of the line let a turn pass the lock on.
func (w *waiters) passable() bool {
	cfg := w.r.cfg
	return cfg.maxHold == 0 && cfg.minHold == 0 && cfg.replicas == 0 && w.engine.strategy.habits().passes
}

// queues reports whether the line may use the queue of Redis.
func (w *waiters) queues() bool { return w.engine.channel != nil && !w.r.cfg.noQueue }

// notGranted handles an acquire that failed with err.
func (w *waiters) notGranted(got acquireReply, err error) {
	l, ctx, p := &w.engine.lines, w.ask.by.ctx, w.ask.params
	l.mu.Lock()
	if a := w.attempt; p != nil {
		a.answered(got)
		a.sent = a.sent || a.mayBeThere(got, err) || p.entry != "" && !errors.As(err, new(*node.NotDone))
	}
	next := w.nextAskLocked(got, err)
	if g := w.handed; g != nil { // it came meanwhile
		w.handed = nil
		start := w.watch.Started(*g, w.r.cfg.drift)
		l.mu.Unlock()
		if w.granted(ctx, start, w.engine.now(), g.Tick*fencesOfTick, nil) {
			return
		}
		l.mu.Lock()
		next = time.Time{}
	}
	w.next = next
	if errors.Is(err, ErrNotAcquired) {
		w.refusedLocked(err, w.asked, nil)
		w.pace.refused(w.r.cfg)
	} else {
		w.failedLocked(err)
	}
	var undo *lease
	if regranted(err) || w.engine.strategy.habits().freshTokens {
		undo = w.giveUpLocked()
	}
	l.mu.Unlock()
	undo.undo(ctx, err, func() { w.settle(ctx, err) }) // before the line asks with another token
}

// settle ends an attempt that failed with err.
func (w *waiters) settle(ctx context.Context, err error) {
	l := &w.engine.lines
	l.mu.Lock()
	w.asking = false
	if w.hasten {
		w.hasten, w.next = false, time.Time{}
	}
	undo := w.settleLocked()
	l.mu.Unlock()
	undo.undo(ctx, err, func() {})
}

// refusedLocked notes that err, or the holder in this process, has shown another owner to all who joined before an attempt.
func (w *waiters) refusedLocked(err error, attempt int, holder *lease) {
	w.heardLocked(err)
	for p := range w.All() {
		r := p.Of
		r.refused = r.refused || r.joined < attempt
		r.tellLocked(w, err, holder)
	}
}

// failedLocked notes that an attempt has failed with err. Callers that have seen no refusal get the error of the first
// attempt that began after they joined. The others stay, unless retrying cannot fix err.
func (w *waiters) failedLocked(err error) {
	w.heardLocked(err)
	for p := range w.All() {
		if r := p.Of; permanent(err) || !r.refused && r.joined < w.asked {
			w.Leave(p)
			r.serveLocked(w, nil, err)
		}
	}
	if w.Len() == 0 {
		return // they report it
	}
	head := w.Head().Of
	if hook, event := w.engine.troubleOf(head.after(w.asked-head.joined), err); hook != nil {
		go hook(event) // ends with the hook
	}
}

// regranted reports whether err is that of a grant that is released again, so that a new token is needed.
func regranted(err error) bool {
	return errors.Is(err, errSlow) || errors.Is(err, ErrNotReplicated)
}

// nextAskLocked returns when to ask after an attempt that failed with err; zero: at once.
func (w *waiters) nextAskLocked(got acquireReply, err error) time.Time {
	cfg := w.r.cfg
	switch {
	case !errors.Is(err, ErrNotAcquired):
		return time.Now().Add(cfg.pause(w.tries, 0))
	case !w.queues():
		return time.Now().Add(w.pollPause(got))
	}
	w.lookedLocked(w.ask.at, w.ask.params.queued, got.Refusal)
	switch {
	case w.polls > 0:
		return time.Now().Add(cfg.pause(w.polls, got.Left))
	case w.attempt.entry == "":
		return w.queueAtLocked()
	}
	w.looks++
	return time.Now().Add(handoff.Pause(got.First, got.Left, w.looks-1))
}

// lookedLocked notes the answer to a look that was sent at asked, which is the refusal got. again says that the line was in the
// queue before. A holder whose token is not of this library does not hand the lock on, so the first of the queue polls.
func (w *waiters) lookedLocked(asked clock.Instant, again bool, got handoff.Refusal) {
	w.subscribeLocked()
	channel := w.engine.channel
	if again && got.Fresh { // the entry was skipped, or was handed the lock for a claim that has passed
		channel.Missed(w.watch.Asked())
	}
	if got.At != 0 {
		w.watch.Told(asked, got.At)
	}
	foreign := got.First && got.Holder != "" && !handsOn(got.Holder)
	switch {
	case foreign, !channel.Comes(), w.attempt.entry == "" && w.hurriedLocked():
		w.polls++
	default:
		w.polls = 0
	}
}

// pause returns how long to wait after the attempt-th attempt, at most until held, the rest of the holder's lease, has passed.
func (cfg *config) pause(attempt int, held time.Duration) time.Duration {
	d := cfg.shortest
	for ; attempt > 1 && d < cfg.longest; attempt-- {
		d *= 2
	}
	d = min(d, cfg.longest)
	d -= rand.N(d/2 + 1)
	if held > 0 {
		d = min(d, held+time.Millisecond)
	}
	return d
}

// A pace is how often a line polls whose strategy has no queue. A line that has seen the key change hands more often polls
// sooner, so that every process is served in the end. While a key stays with one holder, the pauses grow:
//
//	longest pause = longest / (1 + changes/4) · 2^(looks at this holder / 16), at most longest
//
// longest is that of WithPollInterval. rest is how long the line pauses after a turn of its own if its strategy cannot tell
// whether others want the key. It is halved when the key was free then, and doubled when another process had it.
type pace struct {
	holder         string
	changes, looks int
	rest           time.Duration
}

// pollPause returns how long to wait after refusal. A line that could queue polls because clients of other libraries do, so it
// has no pace.
func (w *waiters) pollPause(refusal acquireReply) time.Duration {
	p, cfg := &w.pace, w.r.cfg
	p.looks++
	if refusal.Holder != "" && refusal.Holder != p.holder {
		if p.holder != "" {
			p.changes++
		}
		p.holder, p.looks = refusal.Holder, 0
	}
	d := cfg.pause(w.tries, refusal.Left)
	if w.engine.channel != nil {
		return d
	}
	most := max(4*(cfg.longest/(4+time.Duration(p.changes))), cfg.shortest) << min(p.looks/16, 4)
	return min(d, most-rand.N(most/2+1))
}

// refused notes that another process had the key after a rest.
func (p *pace) refused(cfg *config) { p.rest = min(max(2*p.rest, cfg.shortest), cfg.longest) }

// granted notes that the key was free after a rest.
func (p *pace) granted(cfg *config) { p.rest = max(p.rest/2, cfg.shortest/2) }
