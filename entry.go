package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

const (
	// patience is how long a line polls before it queues if its process gets no messages: a lock that is handed to it
	// stays unused until the next poll.
	patience = time.Second

	// hurry is how many times longer than a command somebody in line must be able to wait, for the line to queue.
	hurry = 10
)

// outdatedLocked reports whether the line needs another entry: no messages come to its process, so a release takes the entry
// out of the queue.
func (w *waiters) outdatedLocked() bool {
	a := w.attempt
	return a != nil && a.entry != "" && !a.dash && !w.engine.channel.Comes()
}

// entryLocked returns the entry to queue with the next acquire, or "".
func (w *waiters) entryLocked() string {
	if w.attempt.entry != "" || !w.queues() || w.hurriedLocked() {
		return w.attempt.entry
	}
	switch channel := w.engine.channel; {
	case w.joined.IsZero() && !channel.Confirmed(), !w.queueAtLocked().IsZero():
		return ""
	case !channel.Comes() && w.waitedLocked() < patience:
		return ""
	}
	w.enterLocked()
	return w.attempt.entry
}

// queueAtLocked returns when a line may queue that uses the subscription: at once (zero), or when SUBSCRIBE could have been
// confirmed. Its confirmation has the line ask before that.
func (w *waiters) queueAtLocked() time.Time {
	channel := w.engine.channel
	if at := w.joined.Add(patience); channel.Comes() && !channel.Confirmed() && time.Now().Before(at) {
		return at
	}
	return time.Time{}
}

// enterLocked makes the entry of the token. It has a dash if PUBSUB NUMSUB does not say that the process listens.
func (w *waiters) enterLocked() {
	a, channel := w.attempt, w.engine.channel
	a.dash = channel.Spread || !channel.Comes()
	a.claim = a.r.claim(handoff.Claim(a.dash))
	a.entry = handoff.Entry(a.claim, a.dash, channel.Channel, a.params.token)
	w.engine.lines.rememberLocked(a)
	w.watch.Sent(w.engine.now())
	w.looks = 0
}

// hurriedLocked reports whether nobody is likely to wait long enough for the queue: by the time that the lock is handed
// over, they have left. When commands get slow under load, lines of callers with short timeouts then poll. A line that has
// not been empty for so long is likely to have new callers by then.
func (w *waiters) hurriedLocked() bool {
	enough := hurry * time.Duration(w.engine.commandTime.Load())
	return time.Since(w.filled) < enough && w.overBy(time.Now().Add(enough))
}

// overBy reports whether everybody in line will have left at a time.
func (w *waiters) overBy(t time.Time) bool {
	for p := range w.All() {
		if p.Of.deadline.IsZero() || p.Of.deadline.After(t) {
			return false
		}
	}
	return true
}

// waitedLocked returns how long the head of the line has waited.
func (w *waiters) waitedLocked() time.Duration {
	if head := w.Head(); head != nil {
		return w.engine.now().AtLeast(head.Of.started)
	}
	return 0
}

// giveUpLocked ends the token that asks, and returns it if it may be in Redis, so that it must be undone.
func (w *waiters) giveUpLocked() (undo *lease) {
	a := w.attempt
	w.attempt, w.handed, w.watch = nil, nil, handoff.Watch{}
	if a == nil {
		return nil
	}
	a.ended = time.Now()
	w.engine.lines.forgetLocked(a)
	if !a.sent {
		return nil
	}
	return a
}

// undo releases the token of an attempt that was given up after err, and takes its entry out of the queue. If Redis cannot be
// reached, the key ends with its TTL. Then done is called: when the release has ended, or at once if there is no attempt or most
// likely no release can be sent.
func (l *lease) undo(ctx context.Context, err error, done func()) {
	if l == nil {
		done()
		return
	}
	p := &releaseParams{target: &l.params.target, entry: l.entry}
	if node.Unreachable(err) {
		l.send(ctx, p, ignored)
		done()
		return
	}
	l.send(ctx, p, func(releaseReply, error) { done() })
}

// undoAlone undoes without a caller. The linters would ask the callers of Err for a ctx.
func (l *lease) undoAlone() { l.undo(context.Background(), nil, func() {}) }

// subscribeLocked begins to use the subscription, so that it is ready when the line queues.
func (w *waiters) subscribeLocked() {
	if w.joined.IsZero() && w.queues() {
		w.joined = time.Now()
		l := &w.engine.lines
		if l.waiting == nil {
			l.waiting = make(map[*waiters]struct{})
		}
		l.waiting[w] = struct{}{}
		w.engine.channel.Join()
	}
}

// look has all lines look now: messages may have been lost, or the data of Redis, or messages come again.
func (l *lines) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.waiting {
		w.askNowLocked()
	}
}

// askNowLocked has the line ask now, or when the acquire or the release under way has ended.
func (w *waiters) askNowLocked() {
	w.hasten = w.asking || w.releases > 0
	w.next = time.Time{}
	w.planLocked()
}

// rememberLocked adds the token of an entry to those that Redis may hand a lock to.
func (l *lines) rememberLocked(a *lease) {
	if l.tokens == nil {
		l.tokens = make(map[string]*lease)
	}
	l.tokens[a.params.token] = a
}

// forgetLocked notes that a was given up. Its token is forgotten when no message for it can be on its way any more: a release
// may hand it a lock until the release of its entry has run.
func (l *lines) forgetLocked(a *lease) {
	if l.tokens[a.params.token] == a {
		l.givenUp = append(l.givenUp, a)
	}
	for len(l.givenUp) > 0 {
		old := l.givenUp[0]
		if time.Since(old.ended) < min(old.claim, handoff.Claim(false))+2*old.params.timeout {
			return
		}
		l.givenUp[0] = nil
		l.givenUp = l.givenUp[1:]
		delete(l.tokens, old.params.token)
	}
}

// observe adds the duration of an attempt of a line to the moving average. An attempt that got no answer would have
// taken longer.
func (e *engine) observe(took time.Duration, err error) {
	before := e.commandTime.Load()
	if int64(took) > before || err == nil || errors.Is(err, ErrNotAcquired) {
		e.commandTime.Store(before + (int64(took)-before)/8)
	}
}
