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
	return w.shared && cfg.maxHold == 0 && cfg.minHold == 0 && cfg.replicas == 0 && w.engine.strategy.habits().passes
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
	l.mu.Unlock()
	next := w.nextAsk(p, asked, got, err)
	l.mu.Lock()
	if g := w.handed; g != nil { // it came meanwhile
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
		w.pace.refused()
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

// nextAsk returns when to ask after an attempt that failed with err. It returns zero for a line that can queue and has not.
// Functions of WithBackoff run here, under no mutex.
func (w *waiters) nextAsk(p *leaseParams, asked clock.Instant, got acquireReply, err error) time.Time {
	var d time.Duration
	switch {
	case !errors.Is(err, ErrNotAcquired):
		d = w.backoff(w.tries, 0, w.quietLocked)
	case !w.queues():
		d = w.pollPause(got)
	default:
		polls, queued := w.looked(asked, p.queued, got.Refusal)
		switch {
		case polls > 0:
			d = w.backoff(polls, got.Left, w.quietLocked)
		case !queued:
			return time.Time{}
		default:
			d = handoff.Pause(got.First, got.Left, w.looks)
			w.looks++
		}
	}
	return time.Now().Add(d)
}

// looked notes the answer to a look that was sent at asked, which is the refusal got. again says that the line was in the
// queue before. It returns how often the line has
// polled in a row, 0 if it does not poll, and whether it is in the queue. A holder whose token is not of this library does not
// hand the lock on, so the first of the queue polls.
func (w *waiters) looked(asked clock.Instant, again bool, got handoff.Refusal) (polls int, queued bool) {
	l := &w.engine.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	w.subscribeLocked() //nolint:contextcheck // the subscription outlives its callers
	channel := w.engine.channel
	queued = w.attempt.entry != ""
	if again && got.Fresh { // the entry was skipped, or was handed the lock for a claim that has passed
		channel.Missed(w.watch.Asked())
	}
	if got.At != 0 {
		w.watch.Told(asked, got.At)
	}
	foreign := got.First && got.Holder != "" && !handsOn(got.Holder)
	switch {
	case foreign, !channel.Comes(), !queued && (w.tries > 1 || w.hurriedLocked()):
		w.polls++
	default:
		w.polls = 0
	}
	return w.polls, queued
}

// The default pause doubles from shortestPause to longestPause, and half of it is random.
const (
	shortestPause = 8 * time.Millisecond
	longestPause  = 128 * time.Millisecond
)

// pause returns how long to wait after the attempt-th attempt, at most until held, the rest of the holder's lease, has passed.
func (cfg *config) pause(attempt int, held time.Duration) time.Duration {
	var d time.Duration
	if cfg.backoff != nil {
		d = max(cfg.backoff(attempt), time.Millisecond)
	} else {
		d = min(shortestPause<<min(attempt-1, 10), longestPause)
		d = d/2 + rand.N(d/2)
	}
	if held > 0 {
		d = min(d, held+time.Millisecond)
	}
	return d
}

// A pace is how often a line polls. A line that has seen the key change hands more often polls sooner, so that every
// process is served in the end. While a key stays with one holder, the pauses grow:
//
//	longest pause = longestPause / (1 + changes/4) · 2^(looks at this holder / 16), at most longestPause
//
// rest is how long the line pauses after a turn of its own if its strategy cannot tell whether others want the key. It is
// halved when the key was free then, and doubled when another process had it.
type pace struct {
	holder         string
	changes, looks int
	rest           time.Duration
}

// backoff is config.pause. If the function of WithBackoff panics, tidy runs, under lines.mu, and the line goes on.
func (w *waiters) backoff(attempt int, held time.Duration, tidy func()) time.Duration {
	returned := false
	defer func() {
		if !returned {
			w.engine.lines.mu.Lock()
			defer w.engine.lines.mu.Unlock()
			tidy()
			w.next = time.Now().Add(longestPause)
			w.dropLocked()
		}
	}()
	d := w.r.cfg.pause(attempt, held)
	returned = true
	return d
}

// pollPause returns how long to wait after refusal. If the caller set WithBackoff, that alone decides. So does the
// default for lines that could queue: they poll because clients of other libraries do.
func (w *waiters) pollPause(refusal acquireReply) time.Duration {
	p, left := &w.pace, refusal.Left
	p.looks++
	if refusal.Holder != "" && refusal.Holder != p.holder {
		if p.holder != "" {
			p.changes++
		}
		p.holder, p.looks = refusal.Holder, 0
	}
	if refusal.lookWithin > 0 {
		left = min(left, refusal.lookWithin)
	}
	d := w.backoff(w.tries, left, w.quietLocked)
	if w.r.cfg.backoff != nil || w.engine.channel != nil {
		return d
	}
	most := max(4*longestPause/(4+time.Duration(p.changes)), shortestPause) << min(p.looks/16, 10)
	return min(d, most/2+rand.N(most/2))
}

// refused notes that another process had the key after a rest.
func (p *pace) refused() { p.rest = min(max(2*p.rest, shortestPause), longestPause) }

// granted notes that the key was free after a rest.
func (p *pace) granted() { p.rest = max(p.rest/2, shortestPause/2) }
