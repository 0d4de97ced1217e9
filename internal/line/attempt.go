package line

import (
	"cmp"
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/wire"
)

// An Attempt is what a line knows of one that it has made, with one token. The mutex of its Lines guards it, until it
// is served or given up. Nothing changes it afterwards.
type Attempt struct {
	By          Asker
	NobodyWaits atomic.Bool // for the grant any more

	stays  bool            // served or given up, so the token is used until its release has an answer
	line   *keyLine        // nil: no line has made it
	number uint64          // of the token, for the Machine
	asked  clock.Instant   // when the newest acquire was sent
	ctx    context.Context //nolint:containedctx // of the caller for whom it was sent, for its values
	place  *place          // in the queue of Redis; nil: it has none
}

// An Asker is the owner of an Attempt. It sends what a line has decided on, and never blocks.
type Asker interface {
	Token() string

	// Acquire sends an acquire with its own timeout. Its outcome goes to Heard. Of ctx only the values are used.
	Acquire(ctx context.Context)

	// Release releases the token, which was served. It keeps others out for a time, and carries the acquire of next,
	// whose outcome goes to Carried; nil: none.
	Release(ctx context.Context, now clock.Mono, keep time.Duration, next *Attempt)

	// Withdraw releases the token, which was not served, and takes its entry out of the queue.
	Withdraw(ctx context.Context)

	// Serve gives the lock to a call, which has waited through a number of attempts. pass counts those that are served
	// with the token; of the first, claim is the lease, unless it is zero: then it is that of the reply.
	Serve(ctx context.Context, to Waiter, now clock.Instant, pass int, claim Claim, attempts int)

	// Expect says that a call will be served with the token, and Serve is to follow. It is called under the mutex.
	Expect()

	// Unused says that nothing is left in Redis of the token.
	Unused()
}

// A place is the place of an attempt in the queue of Redis.
type place struct {
	entry   string
	again   bool          // the entry should be in the queue already
	waited  time.Duration // how long the line has waited
	claim   time.Duration // of the entry
	watch   lease.Watch   // of the entry
	message wire.HandOver // the newest one for the token
	arrived clock.Instant // when that message arrived
}

// A Claim is a lease that began when Redis handed the key to an entry.
type Claim struct {
	Start  clock.Instant
	Length time.Duration // for which it is trusted
	Tick   uint64        // of the fences
	Handed clock.Redis
}

// Joined reports whether a line has made the attempt.
func (a *Attempt) Joined() bool { return a.line != nil }

// Asked returns when the newest acquire was sent, until it has an outcome.
func (a *Attempt) Asked() clock.Instant { return a.asked }

// Queued returns what the newest acquire says of the queue: its entry, "" if it has none, whether that should be there
// already, and how long the line has waited.
func (a *Attempt) Queued() (entry string, again bool, waited time.Duration) {
	if a.place == nil {
		return "", false, 0
	}
	return a.place.entry, a.place.again, a.place.waited
}

// prepareLocked makes the acquire ready that a line asks for.
func (a *Attempt) prepareLocked(m *moment, x *effect) {
	a.ctx, a.asked = x.Caller.Of.ctx, m.now
	m.asks = a.ctx
	if x.Entry == NoEntry {
		return
	}
	if a.place == nil {
		a.place = a.line.newPlace(x.Entry == Dashed, a.By.Token())
		a.place.watch.Sent(m.now)
	}
	a.place.again, a.place.waited = x.Again, x.Age // an earlier send does not refer to them
}

// newPlace returns a place for a token.
func (w *keyLine) newPlace(dash bool, token string) *place {
	p := &place{claim: w.machine.TTL}
	if o := w.options; o.Renews { // else the new owner does not extend the claim. A minimum hold outlasts a crash
		claim := clock.TTLFor(clock.Validity(wire.Claim(dash), 0), o.Grace)
		p.claim = min(p.claim, max(claim, o.MinHold))
	}
	p.entry = wire.Entry(p.claim, w.options.Limit, dash, w.lines.inbox.Channel, token)
	return p
}

// claim returns the lease that the newest message has granted.
func (a *Attempt) claim() Claim {
	p := a.place
	m, length := &p.message, clock.Validity(p.claim, a.line.options.Grace)
	return Claim{Start: p.watch.Started(m.At, p.arrived), Length: length, Tick: m.Tick, Handed: m.At}
}

// claimEnded reports whether nothing is left at now of the claim that the newest message has
// granted.
func (a *Attempt) claimEnded(now clock.Instant) bool {
	if a.place == nil || a.place.message.Token == "" {
		return true
	}
	c, most := a.claim(), a.line.options.MaxHold
	held := now.Since(c.Start)
	return held >= c.Length || most > 0 && held >= most
}

// A Reply is the outcome of an acquire.
type Reply struct {
	Answer   Answer      // Held: it was granted
	Err      error       // for the callers
	Clean    bool        // apart from its entry, it has left nothing in Redis, and cannot run later
	NotDone  bool        // it has left no entry either
	Opens    bool        // it has failed while the first connection opens
	At       clock.Redis // when it was carried out, with an entry; 0: unknown
	Tick     uint64      // of a carried one that was handed the key; 0: it was not
	NewEntry bool        // the entry was not in the queue

	// Of a refusal.
	Left   time.Duration // what is left of the holder's lease; 0: unknown
	Holder string        // the token that has the key; "": unknown
	First  bool          // the entry is the first in the queue
}

// Heard handles the outcome of an acquire.
func (a *Attempt) Heard(r Reply, now clock.Instant) {
	w, m := a.line, a.line.lines.moment(now)
	var room effects
	out := room[:0]
	var t trouble
	w.lines.locked(func() {
		answered := r.Answer == Held || r.Answer == Refused || r.Answer == Late
		w.lines.pulse.Observe(m.Now, m.now.Since(a.asked), answered)
		w.factsLocked(&m)
		if r.Answer == Held {
			if p := a.place; p != nil && p.again && p.message.Token == "" && !w.machine.Confirms && !a.hasEndedLocked() {
				w.untoldLocked(&m) // the look has found the key, and no message has come
			}
			out = w.machine.Granted(m.Facts, r.NewEntry, out)
		} else {
			out = w.machine.NotGranted(m.Facts, a.outcomeLocked(&m, r), out)
			t = w.troubleLocked(r)
		}
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	if t.by != nil {
		t.by.Trouble(t.ctx, r.Err, t.attempts)
	}
}

// hasEndedLocked reports whether the newest look has found a permit that can have ended by itself. Nobody is told of these.
func (a *Attempt) hasEndedLocked() bool { return a.line.machine.Several && a.asked.Mono >= a.line.ends }

// A trouble is whom to tell that an attempt has failed.
type trouble struct {
	by       Waiter          // nil: nobody
	ctx      context.Context //nolint:containedctx // of the call
	attempts int
}

// troubleLocked returns the first call, if an attempt has failed. Those whose wait ends with the error report it
// themselves.
func (w *keyLine) troubleLocked(r Reply) trouble {
	head := w.machine.Head()
	if head == nil || r.Answer == Refused {
		return trouble{}
	}
	c := head.Of
	return trouble{c.By, c.ctx, c.Attempts + w.machine.News(head).Attempts}
}

// outcomeLocked returns what the Machine must know of an acquire that was not granted.
func (a *Attempt) outcomeLocked(m *moment, r Reply) Outcome {
	w := a.line
	o := Outcome{Answer: r.Answer, Err: r.Err, Opens: r.Opens, Left: r.Left, First: r.First, NewEntry: r.NewEntry}
	if r.Answer == Refused {
		h := wire.Parse(r.Holder)
		o.Foreign = r.Holder != "" && !h.HandsOn
		o.Moved = r.Holder != "" && w.holder != "" && r.Holder != w.holder
		w.holder = cmp.Or(r.Holder, w.holder)
		w.ends = math.MaxInt64
		if r.Left > 0 {
			w.ends = a.asked.Mono.Add(r.Left)
		}
		if w.options.Polls && h.Queues {
			w.lines.queued.note(w.id.Lock, queuesFor)
			w.factsLocked(m)
		}
		if w.lines.inbox != nil && !h.Tells {
			w.untoldLocked(m)
		}
		if r.At != 0 && a.place != nil {
			a.place.watch.Told(a.asked, r.At)
		}
	}
	o.Clean = r.Clean && (a.place == nil || r.Answer == Refused || r.NotDone)
	o.Ended = a.claimEnded(m.now)
	return o
}

// Carried handles the outcome of an acquire that a release has carried. If the release did not queue
// the entry, the line asks again.
func (a *Attempt) Carried(r Reply, now clock.Instant) {
	w, m := a.line, a.line.lines.moment(now)
	o := Outcome{Answer: r.Answer, Err: r.Err}
	var room effects
	out := room[:0]
	w.lines.locked(func() {
		w.factsLocked(&m)
		if r.At == 0 {
			out = w.machine.Changed(m.Facts, out)
		} else {
			a.place.watch.Told(a.asked, r.At)
			if r.Tick > 0 {
				a.place.message, a.place.arrived = wire.HandOver{Token: a.By.Token(), Tick: r.Tick, At: r.At}, m.now
				out = w.machine.Message(m.Facts, a.number, false, out)
			}
		}
		o.Ended = a.claimEnded(m.now)
		out = w.machine.NotGranted(m.Facts, o, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}

// Message says that Redis has handed the key to the token. It reports false if the token is not in the queue.
func (a *Attempt) Message(h wire.HandOver, now clock.Instant) (queued bool) {
	w := a.line
	if w == nil {
		return false
	}
	m := w.lines.moment(now)
	var room effects
	out := room[:0]
	w.lines.locked(func() {
		if queued = a.place != nil; !queued {
			return
		}
		w.factsLocked(&m)
		a.place.message, a.place.arrived = h, m.now
		out = w.machine.Message(m.Facts, a.number, a.claimEnded(m.now), out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	return queued
}

// Unlock ends a turn, or a permit, that its holder gives back now. It reports whether the turn was passed on. Otherwise
// Release was called, with keep.
func (a *Attempt) Unlock(ctx context.Context, now clock.Instant, passable bool, keep time.Duration) (passed bool) {
	w, m := a.line, a.line.lines.moment(now)
	m.release, m.keep = ctx, keep
	var room effects
	out := room[:0]
	w.lines.locked(func() {
		w.factsLocked(&m)
		out, passed = w.machine.Unlock(m.Facts, a.number, a, passable, keep == 0, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	return passed
}

// Lost ends the turn of a lease that was lost.
func (a *Attempt) Lost(now clock.Instant) {
	w, m := a.line, a.line.lines.moment(now)
	var room effects
	out := room[:0]
	w.lines.locked(func() {
		w.factsLocked(&m)
		out = w.machine.Lost(m.Facts, a.number, out)
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
}
