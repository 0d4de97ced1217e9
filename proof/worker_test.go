package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/proof/history"
)

// A wish says how to acquire a lock.
type wish struct {
	ttl   time.Duration
	renew bool
	token string // empty: a fresh one
}

// handle is what a worker needs of a lock; *redlatch.Lock is one.
type handle interface {
	Token() string
	Fence() uint64
	Until() time.Time
	Done() <-chan struct{}
	Err() error
	Extend(ctx context.Context, ttl time.Duration) error
	Unlock(ctx context.Context) error
}

// locker grants handles. It is redlatch, or a broken locker that a history must expose.
type locker interface {
	lock(ctx context.Context, key string, w wish) (handle, error)
	tryLock(ctx context.Context, key string, w wish) (handle, error)
}

// sound is redlatch.
type sound struct{ redlatch.Locker }

func (s sound) lock(ctx context.Context, key string, w wish) (handle, error) {
	return s.Lock(ctx, key, w.options()...)
}

func (s sound) tryLock(ctx context.Context, key string, w wish) (handle, error) {
	return s.TryLock(ctx, key, w.options()...)
}

func (w wish) options() []redlatch.Option {
	opts := []redlatch.Option{redlatch.WithTTL(w.ttl)}
	if !w.renew {
		opts = append(opts, redlatch.WithoutRenewal())
	}
	if w.token != "" {
		opts = append(opts, redlatch.WithToken(w.token))
	}
	return opts
}

// A worker locks, works and unlocks, again and again, and records what it saw.
type worker struct {
	id      int
	locker  locker
	keys    []string
	ttl     time.Duration
	rng     *rand.Rand
	blurred bool // the locker's clocks are parted
	// overstays is how many in a hundred locks are held for longer than their TTL.
	overstays int
	record    func(history.Op)
	stuck     func(complaint string)
}

// run works until working ends. A wait that bound ends is reported as stuck, since the faults ended
// long before.
func (w *worker) run(working, bound context.Context) {
	for working.Err() == nil {
		key := w.keys[w.rng.IntN(len(w.keys))]
		if lock := w.acquire(bound, key); lock != nil {
			w.hold(bound, key, lock)
		}
		w.rest(3 * time.Millisecond)
	}
}

// chance is true in percent of the cases.
func (w *worker) chance(percent int) bool { return w.rng.IntN(100) < percent }

// rest sleeps for up to most.
func (w *worker) rest(most time.Duration) { time.Sleep(time.Duration(w.rng.Int64N(int64(most)))) }

// acquire asks for a lock: mostly with patience, sometimes without, or only once.
func (w *worker) acquire(bound context.Context, key string) handle {
	ask := wish{ttl: w.ttl, renew: w.chance(60)}
	get, ctx, patient := w.locker.lock, bound, true
	if w.chance(10) {
		ask.token = uuid.NewString()
	}
	switch {
	case w.chance(15):
		get, patient = w.locker.tryLock, false
		if w.chance(30) {
			ask.token = uuid.NewString()
		}
	case w.chance(15): //nolint:gocritic // a chance of its own
		short, cancel := context.WithTimeout(bound, time.Duration(w.rng.Int64N(int64(60*time.Millisecond))))
		defer cancel()
		ctx, patient = short, false
	}

	call, doubt := now(), false
	for tries := 0; ; tries++ {
		lock, err := get(ctx, key, ask)
		if err == nil {
			w.record(w.op(history.Grant, key, lock, call))
			return lock
		}
		if patient && bound.Err() != nil {
			w.stuck(fmt.Sprintf("worker %d waited for %q for %v: %v", w.id, key, time.Duration(now()-call), err))
		}
		doubt = doubt || !surelyNot(err)
		// A worker with a token of its own can ask again for a lock that it may have been granted.
		if again := doubt && ask.token != "" && tries < 3 && ctx.Err() == nil; !again {
			break
		}
	}
	if doubt {
		token := ask.token
		if token == "" {
			token = "?" + uuid.NewString()
		}
		w.record(history.Op{
			Kind: history.Grant, Worker: w.id, Key: key, Token: token,
			Call: call, Return: history.Never, Unknown: true, Blurred: w.blurred,
		})
	}
	w.rest(20 * time.Millisecond)
	return nil
}

// surelyNot reports whether an attempt that failed with err surely acquired nothing.
func surelyNot(err error) bool {
	return errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrNoQuorum)
}

// op returns the operation on lock that began at call and ends now.
func (w *worker) op(kind history.Kind, key string, lock handle, call int64) history.Op {
	until := stamp(lock.Until())
	return history.Op{
		Kind: kind, Worker: w.id, Key: key, Token: lock.Token(), Fence: lock.Fence(),
		Call: call, Return: now(), Until: until, Blurred: w.blurred,
	}
}

// hold uses the lock and releases it. Some holders overstay, so that their lease ends or has to be
// renewed.
func (w *worker) hold(ctx context.Context, key string, lock handle) {
	for range 1 + w.rng.IntN(3) {
		w.look(key, lock)
		w.rest(4 * time.Millisecond)
	}
	switch {
	case w.chance(8):
		// An Extend whose outcome is unclear leaves Until as it was.
		_ = lock.Extend(ctx, w.ttl+time.Duration(w.rng.Int64N(int64(w.ttl))))
		w.look(key, lock)
	case w.chance(w.overstays):
		for end := time.Now().Add(w.ttl + w.ttl/2); time.Now().Before(end) && ctx.Err() == nil && w.look(key, lock); {
			w.rest(w.ttl / 4)
		}
	}
	call := now()
	err := lock.Unlock(ctx)
	op := w.op(history.Release, key, lock, call)
	switch {
	case errors.Is(err, redlatch.ErrLost):
		op.Kind = history.Loss
	case err != nil:
		op.Unknown, op.Return = true, history.Never
	}
	w.record(op)
}

// look records a use of the lock if its handle is trusted, and its loss otherwise.
func (w *worker) look(key string, lock handle) bool {
	call := now()
	err := lock.Err()
	kind := history.Use
	if err != nil {
		kind = history.Loss
	}
	w.record(w.op(kind, key, lock, call))
	return err == nil
}
