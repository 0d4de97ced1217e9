package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/proof/history"
)

// A wish says how to acquire a lock.
type wish struct {
	once  bool // TryLock
	renew bool
	write bool
	alone bool // options of its own: a line of its own
}

// locker is one process. Those who wait without options of their own stand in the line of one of
// its Lockers.
type locker struct {
	strategy           strategy
	renewed, unrenewed redlatch.Locker
	writers            *locker // nil: there are none
}

func newLocker(s strategy, clients []redis.UniversalClient) locker {
	ttl := redlatch.WithTTL(s.ttl)
	l := locker{s, must1(s.open(clients, ttl)), must1(s.open(clients, ttl, redlatch.WithoutRenewal())), nil}
	if s.writers != nil {
		s.open, s.writers = s.writers, nil
		w := newLocker(s, clients)
		l.writers = &w
	}
	return l
}

func (s locker) lock(ctx context.Context, key string, w wish) (*redlatch.Lock, error) {
	if w.write {
		w.write = false
		return s.writers.lock(ctx, key, w)
	}
	l, opts := s.unrenewed, []redlatch.Option(nil)
	if w.renew {
		l = s.renewed
	}
	if w.alone {
		opts = append(opts, redlatch.WithTTL(s.strategy.ttl))
	}
	if w.once {
		return l.TryLock(ctx, key, opts...)
	}
	return l.Lock(ctx, key, opts...)
}

// A worker locks, works and unlocks, again and again, and records what it saw.
type worker struct {
	id       int
	strategy strategy
	locker   locker
	keys     []string
	rng      *rand.Rand
	record   func(history.Op)
	complain func(text string)
	named    int // how many tokens have a name
}

// A hold is a lock of a worker. In the history its token has a name, since a handle whose Token was
// called may behave in another way.
type hold struct {
	*redlatch.Lock
	key, name string
	hot       bool // it has the key that many wait for together
	writes    bool
	renewed   bool
}

// run works until working ends. A wait that bound ends is reported as stuck, since the faults ended
// long before.
func (w *worker) run(working, bound context.Context) {
	for working.Err() == nil {
		key := w.keys[w.rng.IntN(len(w.keys))]
		if w.chance(w.strategy.crowded) {
			key = w.keys[0]
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
func (w *worker) rest(most time.Duration) { time.Sleep(w.upTo(most)) }

// upTo draws a duration.
func (w *worker) upTo(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}

// acquire asks for a lock: mostly with patience, sometimes without, or only once.
func (w *worker) acquire(bound context.Context, key string) *hold {
	w.named++
	h := &hold{key: key, name: fmt.Sprintf("w%d.%d", w.id, w.named), hot: key == w.keys[0], renewed: w.chance(60), writes: w.chance(w.strategy.writes)}
	ask := wish{renew: h.renewed, write: h.writes, once: w.chance(15), alone: !h.hot && w.chance(20)}
	ctx, patient := bound, !ask.once
	if patient && w.chance(18) {
		short, cancel := context.WithTimeout(bound, w.upTo(60*time.Millisecond))
		defer cancel()
		ctx, patient = short, false
	}
	call, err := now(), error(nil)
	if h.Lock, err = w.locker.lock(ctx, key, ask); err == nil {
		w.record(h.op(w, history.Grant, call))
		return h
	}
	if patient && bound.Err() != nil {
		w.complain(fmt.Sprintf("worker %d waited for %q for %v: %v", w.id, key, time.Duration(now()-call), err))
	}
	w.rest(20 * time.Millisecond)
	return nil
}

// op returns the operation of w that began at call and ends now.
func (h *hold) op(w *worker, kind history.Kind, call int64) history.Op {
	until := stamp(h.Until())
	return history.Op{
		Kind: kind, Worker: w.id, Key: h.key, Token: h.name, Fence: h.Fence(), Writes: h.writes, Call: call, Return: now(), Until: until,
	}
}

// work uses the lock and releases it. Some holders overstay, so that their lease ends or has to be
// renewed. Some never release, as if they had crashed. The hot key is mostly released at once,
// while a turn lasts.
func (w *worker) work(ctx context.Context, h *hold) {
	if h.hot && w.chance(75) {
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
		// An Extend whose outcome is unknown leaves Until as it was.
		_ = h.Extend(ctx, w.strategy.ttl+w.upTo(w.strategy.ttl))
		w.look(h)
	case !h.renewed && w.chance(w.strategy.overstays/2):
		return
	case w.chance(w.strategy.overstays):
		for end := time.Now().Add(w.strategy.ttl * 3 / 2); time.Now().Before(end) && ctx.Err() == nil && w.look(h); {
			w.rest(w.strategy.ttl / 4)
		}
	}
	w.unlock(ctx, h)
}

// unlock releases the lock. On a quorum, a release that reaches one node in time and
// another after the end of the lease has freed the lock, and is reported as a loss.
func (w *worker) unlock(ctx context.Context, h *hold) {
	call := now()
	err := h.Unlock(ctx)
	op := h.op(w, history.Release, call)
	switch {
	case errors.Is(err, redlatch.ErrLost):
		if w.strategy.quorum {
			part := op
			part.Unknown = true
			w.record(part)
		}
		op.Kind, op.Note = history.Loss, "Unlock: "+err.Error()
	case err != nil:
		op.Unknown = true
	default:
		op.Passed = h.Token() == "" // Unlock has passed the lock on
	}
	w.record(op)
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
	return err == nil
}

var began = time.Now()

// stamp returns t in nanoseconds, as histories want it: by the monotonic clock.
func stamp(t time.Time) int64 { return int64(t.Sub(began)) + 1 }

// now is the stamp of this moment.
func now() int64 { return stamp(time.Now()) }
