package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/wire"
)

// Lead elects a leader among all callers with the same key. The leader runs fn. Lead does what
// [Election.Run] does. To ask who leads, use [NewElection].
func Lead(
	ctx context.Context, l Locker, key string,
	fn func(ctx context.Context, lock *Lock) error, opts ...Option,
) error {
	e, err := NewElection(l, key, opts...) //nolint:contextcheck // it sends nothing
	if err == nil {
		err = e.Run(ctx, fn)
	}
	return wrap("lead", key, err)
}

// An Election elects a leader among all processes that run one with the same key. It knows whether
// this process leads, and who does. Its methods are safe for concurrent use by multiple goroutines.
//
// It starts no goroutine: it works only while [Election.Run] runs.
type Election struct {
	locker Locker
	key    string
	opts   []Option

	// Behind a pointer, since fmt looks into one that is in an unexported field of a caller's struct,
	// without a lock.
	*candidacy
}

// A candidacy is what an Election knows.
type candidacy struct {
	runs atomic.Bool          // Run is under way
	term atomic.Pointer[Lock] // of the fn that runs; nil: none does

	mu     sync.Mutex // guards the fields below
	leader string     // that the newest refusal has named
	known  bool       // it has shown a leader
}

// NewElection returns an Election that uses the locks of l on key. It sends nothing. opts apply to
// the locks. [WithMaxHold] bounds a term. NewElection refuses [WithMaxWait], and ignores one that
// was given to l.
//
// The error is [ErrInvalid] if l is nil, if key is empty, or if l cannot work with key or opts.
func NewElection(l Locker, key string, opts ...Option) (*Election, error) {
	e := &Election{locker: l, key: key, candidacy: new(candidacy)}
	if err := checkElection(l, key, opts); err != nil {
		return nil, wrap("new election", key, err)
	}
	follow := func(_ context.Context, event Event) { e.refused(event.Err) }
	e.opts = append(slices.Clip(opts), WithHooks(Hooks{Waiting: follow, Moved: follow}), asLead)
	return e, nil
}

func checkElection(l Locker, key string, opts []Option) error {
	if err := checkCall(l, false); err != nil {
		return err
	}
	var cfg config
	err := cfg.apply(opts)
	switch {
	case err != nil:
		return err
	case key == "":
		return invalid("key is empty")
	case cfg.maxWait > 0:
		return invalid("WithMaxWait(%v): a follower waits until ctx ends", cfg.maxWait)
	}
	return checkLock(l, key, opts)
}

// checkLock returns an error if l is known to refuse a Lock with key and opts.
func checkLock(l Locker, key string, opts []Option) error {
	switch l := l.(type) {
	case *engine:
		return l.check(context.Background(), new(request), key, opts)
	case *migration:
		return l.check(context.Background(), key, opts)
	case interface{ Unwrap() Locker }:
		return checkLock(l.Unwrap(), key, opts)
	}
	return nil
}

// asLead is the option of the calls that an Election makes.
func asLead(cfg *config) error { cfg.lead, cfg.maxWait = true, 0; return nil }

// Run runs fn while this process leads. Until ctx ends, it waits for the lock as [Locker.Lock] does, runs
// fn, releases the lock, pauses, and starts again. The ctx of fn ends as in [Do]. fn must return when
// its ctx ends, because another leader may start then.
//
// [Election.Leader], [Hooks.Waiting] and [Hooks.Moved] tell a follower who leads. [Event.Lead] marks the
// events of an Election.
//
// If fn returns an error, its term ends, and Run continues. [Hooks.Trouble] reports the error with the
// Cause [CauseFunc], at most once a second for a key, and as a [FuncError] if [Do] would return one.
// Exception: an error that matches the error or the cause of fn's ctx after that has ended. If fn
// returns [ErrStop], or an error that wraps it, Run releases the lock and returns nil. If fn panics, Run
// releases the lock, and the panic continues. Run continues after a lost lock and after an outage of
// Redis: [Hooks.Trouble] reports the errors of Lock. After a term the pause is 0.5 to 1 s, at random. It
// doubles each time Lock fails, up to 8 to 16 s.
//
// When ctx ends, the error matches ctx's error and its cause. Exception: a cause that this package
// returned. If Run waited for the lock, the error also matches whatever the error of [Locker.Lock]
// matches. Run returns at once with an error that retrying cannot fix, as [Locker.Lock] does, and with
// [ErrInvalid] while another Run of the Election is under way.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, lock *Lock) error) error {
	switch err := checkCall(e.locker, fn == nil); {
	case err != nil:
		return wrap("run", e.key, err)
	case ctx == nil:
		return wrap("run", e.key, invalid("ctx is nil"))
	case !e.runs.CompareAndSwap(false, true):
		return wrap("run", e.key, invalid("another Run of the Election is under way"))
	}
	defer e.runs.Store(false)
	defer e.refused(nil)
	for pause := shortestRecess; ; {
		lock, err := obtain(ctx, "run", Locker.Lock, e.locker, e.key, e.opts)
		e.refused(nil)
		switch {
		case err == nil:
			if errors.Is(hold(ctx, "run", lock, e.termOf(ctx, lock, fn)), ErrStop) {
				return nil
			}
			pause = shortestRecess
		case permanent(err):
			return err
		case saysEnd(ctx, err): // and why Lock did not acquire
			return err
		}
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			end := ctxError(ctx)
			if err != nil {
				end = &gaveUp{end, errors.Unwrap(err)} // without the op and the key
			}
			return wrap("run", e.key, end)
		}
		if err != nil {
			pause = min(2*pause, longestRecess)
		}
	}
}

const (
	shortestRecess = time.Second      // the pause after a term. Half of it is random
	longestRecess  = 16 * time.Second // the longest pause while Lock fails
)

// termOf returns fn as an Election runs it under lock: Hooks.Trouble reports its error.
func (e *Election) termOf(
	ctx context.Context, lock *Lock, fn func(ctx context.Context, lock *Lock) error,
) func(ctx context.Context, lock *Lock) error {
	report := failureHook(lock.current())
	return func(held context.Context, lock *Lock) error {
		e.term.Store(lock)
		defer e.term.Store(nil)
		err := ofFunc(fn(held, lock))
		ended := held.Err() != nil && (errors.Is(err, held.Err()) || errors.Is(err, context.Cause(held)))
		if err != nil && !errors.Is(err, ErrStop) && !ended {
			report(ctx, err)
		}
		return err
	}
}

// Leading reports whether this process leads: fn of [Election.Run] has been called and has not
// returned, and its lock is trusted. Each call checks the clocks, as [Lock.Err] does, and sends
// nothing. So it is false before another process can lead, also if Redis is out of reach.
func (e *Election) Leading() bool { return e.leads() != nil }

// leads returns the lock of this term; nil if this process does not lead.
func (e *Election) leads() *Lock {
	if e.candidacy == nil {
		return nil
	}
	if lock := e.term.Load(); lock != nil && lock.Err() == nil {
		return lock
	}
	return nil
}

// Leader returns the name of the leader, see [WithOwner], as far as this process knows. While this
// process leads, that is its own name. Otherwise it is the name of the holder that the newest
// refusal has shown. known is false if this process knows of no leader: before the first refusal,
// between two leaders, after an error, and while [Election.Run] does not run. The name can be
// empty, with known true.
//
// The answer may be outdated. A process that waits asks Redis every one or two seconds. So it may
// name the last leader for that long, or for as long as it is cut off from Redis. If the Locker
// never calls [Hooks.Moved], Leader names the process that led when this one began to wait.
func (e *Election) Leader() (owner string, known bool) {
	if lock := e.leads(); lock != nil {
		return wire.Parse(attemptOf(lock.current()).id.token).Owner, true
	}
	if e.candidacy == nil {
		return "", false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader, e.known
}

// refused notes who leads by a refusal. Any other error shows nobody.
func (e *Election) refused(err error) {
	var held *HeldError
	known := errors.As(err, &held) && !held.Kept
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader, e.known = "", known; known {
		e.leader = held.Owner
	}
}

// String names the election, for logs.
func (e *Election) String() string { return fmt.Sprintf("election %q", e.key) }

// Format prints what String returns, whatever the verb is.
func (e *Election) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), e.String())
}

// sleep waits for d. It reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
