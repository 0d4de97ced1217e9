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

// ask sends an acquire with the token of the line, and handles the outcome. w.asking is set. asked was read just before.
// The error is that of the end of ctx.
func (w *waiters) ask(ctx context.Context, asked clock.Instant) error {
	p, err := w.prepare(ctx, asked)
	if p == nil && err == nil {
		return nil
	}
	var got acquireReply
	replied := asked
	if err == nil {
		got, err = w.engine.strategy.acquire(ctx, p)
		replied = w.engine.now()
		w.engine.observe(replied.Since(asked), err)
	}
	if err == nil {
		if w.granted(ctx, asked, replied, got.fence, &got) {
			return nil
		}
		err = errSlow
	}
	return w.notGranted(ctx, p, asked, got, heldBy(got, err))
}

// prepare returns the acquire to send at asked, or nil if everybody has left.
func (w *waiters) prepare(ctx context.Context, asked clock.Instant) (*leaseParams, error) {
	e := w.engine
	e.lines.mu.Lock()
	defer e.lines.mu.Unlock()
	if w.Len() == 0 {
		w.quietLocked()
		w.dropLocked()
		return nil, nil
	}
	if w.outdatedLocked() {
		if undo := w.giveUpLocked(); undo != nil {
			go undo.undo(detached(ctx)) // ends with the op timeout
		}
	}
	w.asked++
	w.tries++
	w.since = asked.Mono
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

// notGranted handles an acquire that was sent at asked and failed with err. It returns the error if ctx has ended.
func (w *waiters) notGranted(ctx context.Context, p *leaseParams, asked clock.Instant, got acquireReply, err error) error {
	l := &w.engine.lines
	l.mu.Lock()
	if a := w.attempt; p != nil {
		a.sent = a.sent || got.resent || !knownNotDone(err) || p.entry != "" && !errors.As(err, new(*node.NotDone))
	}
	next := w.nextAskLocked(p, asked, got, err) //nolint:contextcheck // the subscription outlives its callers
	if g := w.handed; g != nil {                // it came meanwhile
		w.handed = nil
		start := w.watch.Started(*g, w.r.cfg.drift)
		l.mu.Unlock()
		if w.granted(ctx, start, w.engine.now(), g.Tick*fencesOfTick, nil) {
			return nil
		}
		l.mu.Lock()
		next = time.Time{}
	}
	var report func()
	ended := ctx.Err() != nil && !errors.Is(err, ErrNotAcquired)
	switch {
	case ended:
		w.next, w.last = time.Time{}, w.reasonLocked(asked, err)
	case errors.Is(err, ErrNotAcquired):
		told := w.refusedLocked(err, w.asked)
		report = func() { w.engine.tell(told, err) }
		w.pace.refused(w.r.cfg)
		w.next = next
	default:
		report = w.failedLocked(err)
		w.next = next
	}
	var undo *lease
	if regranted(err) || w.engine.strategy.habits().freshTokens {
		undo = w.giveUpLocked()
	}
	if undo != nil {
		l.mu.Unlock()
		undo.undoAfter(ctx, err) // before the line asks with another token
		l.mu.Lock()
	}
	if w.hasten {
		w.hasten, w.next = false, time.Time{}
	}
	leaves := ended && w.cancel == nil && w.Len() == 1 // the caller whose ctx it was, which settles then
	w.quietLocked()
	if undo = nil; !leaves {
		undo = w.settleLocked()
	}
	l.mu.Unlock()
	undo.undoAfter(ctx, err)
	if report != nil {
		report()
	}
	if ended {
		return err
	}
	return nil
}

// quietLocked notes that no acquire is under way.
func (w *waiters) quietLocked() {
	w.asking, w.cancel = false, nil
	if w.heard != nil {
		close(w.heard)
		w.heard = nil
	}
}

// refusedLocked notes that err has shown another owner to all who joined before an attempt. It returns those who start to wait,
// for Hooks.Waiting.
func (w *waiters) refusedLocked(err error, attempt int) (told []*request) {
	w.last = err
	for p := range w.All() {
		r := p.Of
		r.refused = r.refused || r.joined < attempt
		if !r.told && r.cfg.hooks.Waiting != nil {
			told = append(told, r.after(w.asked-r.joined))
		}
		r.told = true
	}
	return told
}

// failedLocked notes that an attempt has failed with err. Callers that have seen no refusal get the error of the first
// attempt that began after they joined. The others stay, unless retrying cannot fix err.
func (w *waiters) failedLocked(err error) (report func()) {
	w.last = err
	for p := range w.All() {
		if r := p.Of; permanent(err) || !r.refused && r.joined < w.asked {
			w.Leave(p)
			r.serveLocked(w, nil, err)
		}
	}
	if w.Len() == 0 {
		return nil // they report it
	}
	head := w.Head().Of
	r := head.after(w.asked - head.joined)
	e := w.engine
	return func() { e.reportTrouble(r, err) }
}

// reasonLocked returns the outcome that callers report if ctx ended an attempt with err. If it had little time to get an
// answer, that is the outcome of the one before.
func (w *waiters) reasonLocked(asked clock.Instant, err error) error {
	var cut *node.CutShort
	switch {
	case !errors.As(err, &cut):
		if !errors.As(err, new(*node.NotDone)) { // else ctx had ended before
			return err
		}
	case !cut.Silent, w.last == nil, w.engine.now().Since(asked) > w.r.cfg.timeout()/4:
		return cut.Trouble
	}
	return w.last
}

// regranted reports whether err is that of a grant that is released again, so that a new token is needed.
func regranted(err error) bool {
	return errors.Is(err, errSlow) || errors.Is(err, ErrNotReplicated)
}

// nextAskLocked returns when to ask after an attempt that failed with err; zero: at once.
func (w *waiters) nextAskLocked(p *leaseParams, asked clock.Instant, got acquireReply, err error) time.Time {
	cfg := w.r.cfg
	switch {
	case !errors.Is(err, ErrNotAcquired):
		return time.Now().Add(cfg.pause(w.tries, 0))
	case !w.queues():
		return time.Now().Add(w.pollPause(got))
	}
	w.lookedLocked(asked, p.queued, got.Refusal)
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
