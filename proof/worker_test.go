package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/proof/history"
)

// A wish says how to acquire a lock. A plain one has no options of its own, so that those who wait for a key stand in one
// line: its TTL and its op timeout are the defaults of the locker.
type wish struct {
	plain     bool
	ttl       time.Duration
	renew     bool
	minHold   time.Duration // 0: none
	opTimeout time.Duration // 0: the default
	owner     string        // begins the token; empty: nothing does
}

// handle is what a worker needs of a lock; *redlatch.Lock is one.
type handle interface {
	Token() string
	Fence() uint64
	Until() time.Time
	Err() error
	Extend(ctx context.Context, ttl time.Duration) error
	Unlock(ctx context.Context) error
}

// locker grants handles. It is redlatch, or a broken locker that a history must expose.
type locker interface {
	lock(ctx context.Context, key string, w wish) (handle, error)
	tryLock(ctx context.Context, key string, w wish) (handle, error)
	adopt(ctx context.Context, key, token string, w wish) (handle, error)
}

// sound is redlatch.
type sound struct {
	redlatch.Locker
	unrenewed redlatch.Locker // for plain wishes
}

// newSound returns Lockers with the TTL and the op timeout of a wish as their defaults.
func newSound(defaults wish, open func(...redlatch.Option) (redlatch.Locker, error)) (s sound, err error) {
	defaults.renew = true
	if s.Locker, err = open(defaults.options()...); err == nil {
		defaults.renew = false
		s.unrenewed, err = open(defaults.options()...)
	}
	return s, err
}

func (s sound) lock(ctx context.Context, key string, w wish) (handle, error) {
	switch {
	case !w.plain:
		return s.Lock(ctx, key, w.options()...)
	case w.renew:
		return s.Lock(ctx, key)
	}
	return s.unrenewed.Lock(ctx, key)
}

func (s sound) tryLock(ctx context.Context, key string, w wish) (handle, error) {
	return s.TryLock(ctx, key, w.options()...)
}

func (s sound) adopt(ctx context.Context, key, token string, w wish) (handle, error) {
	return s.Adopt(ctx, key, token, w.options()...)
}

func (w wish) options() []redlatch.Option {
	opts := []redlatch.Option{redlatch.WithTTL(w.ttl)}
	if !w.renew {
		opts = append(opts, redlatch.WithoutRenewal())
	}
	if w.minHold > 0 {
		opts = append(opts, redlatch.WithMinHold(w.minHold))
	}
	if w.opTimeout > 0 {
		opts = append(opts, redlatch.WithOpTimeout(w.opTimeout))
	}
	if w.owner != "" {
		opts = append(opts, redlatch.WithOwner(w.owner))
	}
	return opts
}

// A peer is a Locker that may adopt the locks of others.
type peer struct {
	locker  locker
	blurred bool // its clocks are parted
}

// A worker locks, works and unlocks, again and again, and records what it saw.
type worker struct {
	id        int
	locker    locker
	peers     []peer
	keys      []string
	ttl       time.Duration
	opTimeout time.Duration // 0: the default
	keeps     bool          // some locks have a min hold
	rng       *rand.Rand
	blurred   bool // the locker's clocks are parted
	quorum    bool // the lock is on several nodes
	// overstays is how many in a hundred locks are held for longer than their TTL.
	overstays int
	// crowded is how many in a hundred locks have the hot key.
	crowded int
	// steady: nothing but a full Redis happens, so no lock is lost and every Unlock succeeds.
	steady bool
	record func(history.Op)
	stuck  func(complaint string)
	born   uint64 // differs between the processes that have had this worker
	named  int    // how many tokens have a name
}

// A hold is a lock of a worker. In the history its token has the name that the token begins with: a handle whose
// Token was called may behave in another way.
type hold struct {
	handle
	key, name string
	hot       bool
	renewed   bool
	blurred   bool
	kept      int64 // when the min hold ends; 0: there is none
}

// name returns the name of a fresh token.
func (w *worker) name() string {
	w.named++
	return fmt.Sprintf("w%d.%d.%d", w.id, w.born, w.named)
}

// hot is the index of the key that workers of one process often wait for together.
const hot = 0

// run works until working ends. A wait that bound ends is reported as stuck, since the faults ended
// long before.
func (w *worker) run(working, bound context.Context) {
	for working.Err() == nil {
		key := w.keys[w.rng.IntN(len(w.keys))]
		if w.chance(w.crowded) {
			key = w.keys[hot]
		}
		if h := w.acquire(bound, key); h != nil {
			w.work(bound, h)
		}
		w.rest(3 * time.Millisecond)
	}
}

// chance is true in percent of the cases.
func (w *worker) chance(percent int) bool { return w.rng.IntN(100) < percent }

// rest sleeps for up to most.
func (w *worker) rest(most time.Duration) { time.Sleep(time.Duration(w.rng.Int64N(int64(most)))) }

// acquire asks for a lock: mostly with patience, sometimes without, or only once.
func (w *worker) acquire(bound context.Context, key string) *hold {
	ask := wish{ttl: w.ttl, renew: w.chance(60), opTimeout: w.opTimeout, owner: w.name()}
	h := &hold{key: key, name: ask.owner, hot: key == w.keys[hot], renewed: ask.renew, blurred: w.blurred}
	get, ctx, patient := w.locker.lock, bound, true
	switch {
	case w.chance(15):
		get, patient = w.locker.tryLock, false
	case w.chance(18): // of the rest
		short, cancel := context.WithTimeout(bound, time.Duration(w.rng.Int64N(int64(60*time.Millisecond))))
		defer cancel()
		ctx, patient = short, false
	}
	if w.keeps && w.chance(15) {
		ask.minHold = w.ttl/2 + time.Duration(w.rng.Int64N(int64(w.ttl)))
	} else {
		ask.plain = w.chance(80) || h.hot
	}

	call, err := now(), error(nil)
	if h.handle, err = get(ctx, key, ask); err == nil {
		if ask.minHold > 0 {
			h.kept = w.keptUntil(h, ask, call)
		}
		w.record(h.op(w, history.Grant, call))
		return h
	}
	if patient && bound.Err() != nil {
		w.stuck(fmt.Sprintf("worker %d waited for %q for %v: %v", w.id, key, time.Duration(now()-call), err))
	}
	if !surelyNot(err) {
		w.record(h.unknownGrant(w, call))
		w.rest(w.ttl / 2) // many unknown grants take long to judge
	}
	w.rest(20 * time.Millisecond)
	return nil
}

// keptUntil returns until when nobody else gets a lock that was requested at call: for the min hold since the grant,
// which came when the lease began or later.
func (w *worker) keptUntil(h *hold, ask wish, call int64) int64 {
	if !h.blurred {
		call = stamp(h.Until().Add(-trusted(max(ask.ttl, ask.minHold))))
	}
	return call + int64(ask.minHold)
}

// surelyNot reports whether an attempt that failed with err surely acquired nothing.
func surelyNot(err error) bool {
	return errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrNoQuorum) ||
		errors.Is(err, redlatch.ErrInvalidOption)
}

// op returns the operation of w that began at call and ends now.
func (h *hold) op(w *worker, kind history.Kind, call int64) history.Op {
	until := stamp(h.Until())
	return history.Op{
		Kind: kind, Worker: w.id, Key: h.key, Token: h.name, Fence: h.Fence(),
		Call: call, Return: now(), Until: until, Kept: h.kept, Blurred: h.blurred,
	}
}

// unknownGrant returns a grant that may have happened.
func (h *hold) unknownGrant(w *worker, call int64) history.Op {
	return history.Op{
		Kind: history.Grant, Worker: w.id, Key: h.key, Token: h.name,
		Call: call, Return: history.Never, Unknown: true, Blurred: h.blurred,
	}
}

// work uses the lock and releases it. Some holders overstay, so that their lease ends or has to be
// renewed, and some give their token away. The hot key is mostly released at once, while a turn lasts.
func (w *worker) work(ctx context.Context, h *hold) {
	if h.hot && h.kept == 0 && w.chance(75) {
		w.look(h)
		w.unlock(ctx, h)
		return
	}
	for range 1 + w.rng.IntN(3) {
		w.look(h)
		w.rest(4 * time.Millisecond)
	}
	switch {
	case w.chance(8):
		// An Extend whose outcome is unclear leaves Until as it was.
		err := h.Extend(ctx, w.ttl+time.Duration(w.rng.Int64N(int64(w.ttl))))
		if w.steady && err != nil {
			w.stuck(fmt.Sprintf("Extend of %q: %v", h.key, err))
		}
		w.look(h)
	case !h.renewed && w.chance(w.overstays):
		if heir := w.adopt(ctx, h); heir != nil {
			w.give(ctx, h, heir)
			return
		}
	case w.chance(w.overstays):
		for end := time.Now().Add(w.ttl + w.ttl/2); time.Now().Before(end) && ctx.Err() == nil && w.look(h); {
			w.rest(w.ttl / 4)
		}
	}
	if w.unlock(ctx, h) && h.kept > 0 { // nobody can adopt what a min hold keeps
		if heir := w.adopt(ctx, h); heir != nil {
			w.unlock(ctx, heir)
		}
	}
}

// give holds an adopted lock until some time after the first handle was lost and unlocked. Nobody uses the first handle
// meanwhile, since the adopter may release the lock.
func (w *worker) give(ctx context.Context, h, heir *hold) {
	for end := h.Until().Add(w.ttl); h.Err() == nil && time.Now().Before(end) && ctx.Err() == nil && w.look(heir); {
		w.rest(w.ttl / 8)
	}
	if h.Err() == nil {
		w.unlock(ctx, heir)
		w.unlock(ctx, h)
		return
	}
	w.unlock(ctx, h)
	for end := time.Now().Add(w.ttl / 2); time.Now().Before(end) && ctx.Err() == nil && w.look(heir); {
		w.rest(w.ttl / 8)
	}
	w.unlock(ctx, heir)
}

// adopt has some peer adopt the lock, and returns its handle, or nil.
func (w *worker) adopt(ctx context.Context, h *hold) *hold {
	p := w.peers[w.rng.IntN(len(w.peers))]
	heir := &hold{key: h.key, name: h.name, renewed: true, blurred: p.blurred}
	call := now()
	lock, err := p.locker.adopt(ctx, h.key, h.Token(), wish{ttl: w.ttl, renew: true, opTimeout: w.opTimeout})
	if err != nil {
		return nil
	}
	heir.handle = lock
	w.record(heir.op(w, history.Adopt, call))
	return heir
}

// unlock releases the lock, and reports whether that is known. On a quorum, a release that reaches one node in time and
// another after the end of the lease has freed the lock, and is reported as a loss.
func (w *worker) unlock(ctx context.Context, h *hold) bool {
	call := now()
	err := h.Unlock(ctx)
	op := h.op(w, history.Release, call)
	switch {
	case errors.Is(err, redlatch.ErrLost):
		if w.quorum {
			part := op
			part.Unknown, part.Return = true, history.Never
			w.record(part)
		}
		op.Kind, op.Note = history.Loss, "Unlock: "+err.Error()
	case err != nil:
		op.Unknown, op.Return = true, history.Never
	case h.kept == 0:
		op.Passed = h.Token() == "" // Unlock has passed the lock on
	}
	w.record(op)
	if w.steady && err != nil && h.renewed {
		w.stuck(fmt.Sprintf("Unlock of %q: %v", h.key, err))
	}
	return err == nil
}

// look records a use of the lock if its handle is trusted, and its loss otherwise.
func (w *worker) look(h *hold) bool {
	call := now()
	err := h.Err()
	op := h.op(w, history.Use, call)
	if err != nil {
		op.Kind, op.Note = history.Loss, err.Error()
	}
	w.record(op)
	if w.steady && err != nil && h.renewed {
		w.stuck(fmt.Sprintf("%q was lost: %v", h.key, err))
	}
	return err == nil
}
