// Package redlatch provides distributed locks, read-write locks, semaphores and leader election on
// Redis and Valkey.
//
// A lock is a lease: it ends by itself when its TTL runs out. A [Lock] is renewed until Unlock, but a
// process that is paused for longer than the TTL loses it, and may write before it notices. If two
// owners would corrupt data and not just repeat work, have the resource refuse writes whose
// [Lock.Fence] is older than one it has seen.
//
// A [Locker] grants locks. [NewSetNXPX] keeps each lock as one key of one Redis. [NewRedlock] keeps it
// on a quorum of independent nodes. [NewSemaphore] allows several holders of a key, [NewReadWrite] many
// readers or one writer. [NewLegacySetNX] works alongside clients that already lock with SETNX and
// GETSET. [Do] runs a function under a lock:
//
//	err := redlatch.Do(ctx, locker, "orders:42", func(ctx context.Context, lock *redlatch.Lock) error {
//		return ship(ctx, 42, lock.Fence()) // ctx ends when the lock does
//	})
//
// [DoAll] locks several keys. [TryDo] and [TryDoAll] do not wait. [Lead] elects one of many processes
// to run a function, and an [Election] says who leads.
//
// # Errors
//
// If a method of [Locker] or [Lock] returns nil, the operation succeeded. If its error matches
// [ErrNotAcquired], [ErrLost], [ErrReleased], [ErrNotReplicated] or [ErrInvalid], the operation had no
// effect, unless the documentation of that variable says otherwise. After any other error, such as
// [ErrUnavailable] for a broken connection or a timeout, the outcome is unknown. An [Error] has the
// operation and the key.
//
// Once [Do], [TryDo], [DoAll] and [TryDoAll] have called fn, they return its error. Of the errors
// above, they add only [ErrLost]. If fn returns the error of another lock, such as
// [ErrNotAcquired], they return a [FuncError], which does not match it. So [ErrNotAcquired] always
// says that fn was not called.
//
// If the outcome of an attempt to acquire is unknown, redlatch releases the lock. No error leaves a
// key held for longer than its TTL.
//
// # Time
//
// A lock is trusted, which means that [Lock.Err] returns nil, until [Lock.Until] at the latest.
// [Lock.Until] is the time just before the last successful request was sent, plus the TTL, minus 1 %
// and 2 ms for clocks that differ, minus the time of [WithGrace]. The lock ends then even if Redis
// cannot be reached. Time is measured by the monotonic and the wall clock, whichever has advanced
// further.
//
// # Versions
//
// From v1.0, a major version removes no exported name and changes none, and [Locker] gets no method in
// it. A name that the next major version removes has a paragraph in its comment that begins with
// "Deprecated:" and names what replaces it, for at least a year before.
//
// The clients of go-redis v9 are a part of this API. So when there is a go-redis v10, a new major
// version of this package will use it, and the one for v9 gets fixes for another year. Each version
// works with every release of Go that the Go team supports, which are the newest two. A patch
// version needs no newer Go or go-redis. The changelog says what versions below v1.0 promise.
//
// # Servers
//
// redlatch needs Redis 5.0 or newer, or Valkey, with EVAL. A proxy that checks scripts, such as in some
// clouds, does not work. If EVALSHA is renamed away, each call sends its script. Set maxmemory-policy
// to noeviction. [Security] lists the ACL permissions that a restricted Redis user needs.
//
// # Documents
//
// [Guarantees] lists what still holds under each kind of failure. [Recipes] has short programs for
// common tasks.
//
// [Guarantees]: https://github.com/redlatch/redlatch/blob/main/docs/guarantees.md
// [Recipes]: https://github.com/redlatch/redlatch/blob/main/docs/recipes.md
// [Security]: https://github.com/redlatch/redlatch/blob/main/SECURITY.md
package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
)

// Locker grants locks on keys. Its methods may be called from many goroutines. Locks are not reentrant:
// a second Lock call for the same key waits, even in the same goroutine. Callers that lock several
// keys, one after the other and in different orders, can wait for each other forever: use [DoAll].
//
// A key is any string but the empty one, with any bytes. A Locker on a *[redis.ClusterClient] refuses a
// key with a } and no hash tag, because its companion keys could not be in its slot. It also refuses
// the key of the fences, see [NewSetNXPX].
//
// Share one Locker in a process, even among tenants: give their keys prefixes. While callers queue,
// each Locker keeps one goroutine and one connection for its subscription. A thousand Lockers keep
// a thousand of each. The callers of one Locker that wait for one key form a line: the Locker asks
// Redis once for all of them, and serves them one after the other. With [NewSemaphore] they form up
// to 16 lines. The readers of [NewReadWrite] are served together. While nobody waits, a Locker
// costs nothing in Redis. It has no Close method: its subscription ends by itself within two
// seconds after the last waiter has left. A test that checks for leaked goroutines waits for that
// time first. Close the client after the last Unlock and after [Drain]. Then all calls fail,
// including calls that wait, with an error that matches [redis.ErrClosed], or with [ErrNoQuorum].
//
// Within a major version this interface gets no method: new abilities are functions, such as [Drain].
// A type that wraps a Locker should embed it, and have a method
//
//	Unwrap() Locker
//
// which returns the wrapped Locker. [Drain], [Forget], [NewElection] and [NewMigration] look through
// it. A wrapper that changes keys must not have it.
//
// When a call has returned, nothing uses its ctx, even if commands of the call continue. So a
// program may reuse a ctx, as package gin does. From then on, hooks of the client and goroutines of
// this package get a ctx that has ended and has no values. Exceptions: the ctx of [Lock.Context],
// and the ctx that [Do] passes to fn, stay children of the ctx that was given.
//
// A fake cannot create a held [Lock]. Embed a Locker of package redlatchtest, which grants real locks
// and can take them away. Return errors such as &HeldError{Owner: "bob"} where the fake should refuse.
type Locker interface {
	// Lock waits until key is granted or ctx is done. ctx bounds only the wait: canceling it later
	// does not release the lock. Give it a deadline, or use [WithMaxWait].
	//
	// If ctx ends first, the error matches ctx.Err(). It also matches [ErrNotAcquired] if the last
	// attempt found another owner, and [ErrUnavailable] otherwise. If ctx had ended before the call,
	// it matches neither. When the commands in flight have completed, the call leaves nothing in
	// Redis.
	//
	// If the first attempt fails with [ErrNotAcquired], or this Locker holds key, Lock waits. It
	// returns any other error of the first attempt, as TryLock does. Exception: a connection that is
	// slow to open, see below. While Lock waits, it retries after errors and reports them to
	// [Hooks.Trouble]. It returns errors that retrying cannot fix: a key of another Redis type
	// (WRONGTYPE), an unsupported command, a proxy that refuses scripts, a closed client, and
	// [ErrInvalid]. With [NewRedlock] it returns them if so many nodes fail with such an error that
	// the rest cannot form a quorum.
	//
	// The first connection of a client may take longer to open than [WithOpTimeout]. Lock then makes
	// another attempt. It stops when as much time has passed since the first command of this Locker as
	// a dial may take: the DialTimeout of the client, 5 s by default. A server that hangs looks the same
	// until then.
	//
	// Do not pass the ctx of a lock on the same key, such as the one that [Do] passes to fn, or a ctx
	// derived from it, even by [context.WithoutCancel]. The call could only wait for itself. It fails
	// with [ErrInvalid], unless key is a semaphore and the call has a limit above 1. In a goroutine for
	// which the holder does not wait, pass a ctx from elsewhere. The two Lockers of [NewReadWrite] count
	// as one. So do a writer and the permits of a semaphore on the same client.
	//
	// A call whose options differ from its Locker's options has its own line, and costs Redis as much
	// as another process. [WithHooks], [WithMaxWait] and [WithLimit] do not count: each limit has
	// lines. With [NewSetNXPX], [NewSemaphore] and [NewReadWrite], Unlock hands the lock to the line of
	// any process whose first caller has waited longest. For up to 5 ms, that process then passes it on
	// to its other waiters, once each, without asking Redis. A key whose lease has ended also goes to
	// that line.
	Lock(ctx context.Context, key string, opts ...Option) (*Lock, error)

	// TryLock makes one attempt. The error matches
	//
	//  - [ErrNotAcquired] if another owner has key, with a [HeldError] if the owner is known. With
	//    [NewRedlock], concurrent attempts can split the nodes so that none is granted. TryLock
	//    repeats such an attempt after a random pause, until [WithOpTimeout] has passed since the
	//    call.
	//  - [ErrLost] if the grant took longer than the lease lasts.
	//  - [ErrNoQuorum], with [NewRedlock].
	//  - [ErrNotReplicated], with [WithReplicas].
	//  - [ErrInvalid].
	//
	// TryLock returns when ctx ends. If Redis has not answered by then, the error matches ctx.Err() and
	// [ErrUnavailable], and redlatch releases a lock that is granted later. If ctx had ended before the
	// call, it matches only ctx.Err().
	//
	// After any other error, such as [ErrUnavailable], the outcome is unknown. TryLock then sends a
	// release, and waits for its reply until ctx ends, or for [WithOpTimeout] at most, unless Redis
	// cannot be reached at all.
	TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error)

	// Adopt returns a handle on a lock that was granted elsewhere. token proves ownership. Adopt
	// makes the lock last for at least the TTL from now, and never shortens the lease. The new
	// handle is renewed like any other.
	//
	// Earlier handles keep working, and each of them can release the lock, or pass it on if
	// [Lock.Token] was never called. Their fences are lower than the new one, so a resource that checks
	// fences refuses them after the adopter has written. A reader of [NewReadWrite] gets its own lock
	// instead.
	//
	// ctx bounds the call. The error is [ErrLost] if token does not hold key, or if the reply took
	// longer than the lease lasts, [ErrInvalid], or [errors.ErrUnsupported] with [NewMigration]. After
	// [ErrUnavailable], [ErrNoQuorum], [ErrNotReplicated], or an error of Redis or ctx, the lock is not
	// released and may last longer.
	Adopt(ctx context.Context, key string, token Token, opts ...Option) (*Lock, error)

	// Inspect reports who holds key, without changing anything. The answer may be outdated when it
	// arrives, so it cannot protect a critical section. It uses the prefix of the Locker, and not the
	// prefix of a call.
	//
	// ctx and [WithOpTimeout] bound the call. The error is [ErrInvalid], [ErrUnavailable],
	// [ErrNoQuorum] with [NewRedlock], or an error of Redis or ctx.
	Inspect(ctx context.Context, key string) (Status, error)
}

// A Lock is a lock that a [Locker] granted. Its methods are safe for concurrent use by multiple
// goroutines.
//
// Keep the pointer for as long as the lock is needed. If a Lock is dropped without Unlock, renewal
// stops once the garbage collector has noticed, and the lock ends with its TTL. In a process whose
// heap stays small, the collector may never run, so the lock may last as long as the process.
// Neither a copy of the struct, nor its Context, nor its Done channel keeps it alive.
//
// A zero Lock counts as released: Err returns [ErrReleased].
type Lock struct {
	handle lease.Handle
	from   *Lock // the lock on the other side of a migration; nil without one
}

// isZero reports whether no Locker has granted k.
func (k *Lock) isZero() bool { return k.handle == (lease.Handle{}) }

// current returns the handle of k, or that of a lock that was released if k is zero.
func (k *Lock) current() lease.Handle {
	if k.isZero() {
		return noHandle
	}
	return k.handle
}

// Key returns the key as the caller named it, without the prefix of [WithKeyPrefix].
func (k *Lock) Key() string { return attemptOf(k.current()).id.key }

// Token returns the proof of ownership that Redis keeps. Anyone who knows it can [Locker.Adopt] the
// lock. If Token was called and the lock is lost, Unlock leaves the key alone, because another handle
// may hold it with the token.
//
// Unlock passes a lock on to another caller of the process only if Token was not called before. If
// it has passed the lock on, Token returns "".
func (k *Lock) Token() Token {
	h := k.current()
	if !h.Reveal() {
		return ""
	}
	a := attemptOf(h)
	a.engine.spares(a.id.token)
	return Token(a.id.token)
}

// Fence returns a fencing token: a number that grows with every grant of a lock, of a permit, and of a
// writer. Have the protected resource refuse numbers below the highest it has seen. Compare only fences
// of one key. The Fence of a handle never changes; [Locker.Adopt] returns a handle with a higher one.
// It is 0 if the strategy issues none.
func (k *Lock) Fence() uint64 { return fenceOf(k.current()) }

// String names the lock, as in `lock "orders:42", fence 123`, for logs and errors. Without fences it
// is only `lock "orders:42"`. It shows no token.
func (k Lock) String() string {
	text := fmt.Sprintf("lock %q", k.Key())
	if fence := k.Fence(); fence != 0 {
		text += fmt.Sprintf(", fence %d", fence)
	}
	return text
}

// Format prints what String returns, whatever the verb is.
func (k Lock) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), k.String())
}

// Until returns the end of the lease: the lock is trusted before this instant and not after. Renewals
// and Extend move it. After a hand-over by another process, a lease that is renewed begins with 2 s
// (longer with a min hold or a grace). After 20 ms redlatch extends it to the TTL. With
// [WithoutRenewal] the lease lasts for the whole TTL from the hand-over on, and only Extend moves its
// end. A lock that was passed on within this process continues its lease, which may be shorter by up to
// a hundredth of the TTL.
func (k *Lock) Until() time.Time {
	if k.isZero() {
		return time.Time{}
	}
	until := k.handle.Until()
	if k.from != nil {
		if old := k.from.Until(); old.Before(until) {
			return old
		}
	}
	return until
}

// Done returns a channel that is closed when the lock has ended, for whatever reason.
func (k *Lock) Done() <-chan struct{} {
	_ = k.Err() // a timer may be late on a busy machine
	return k.current().Ended().Done()
}

// Err returns nil while the lock is trusted. Afterwards it always returns the same error, which
// matches [ErrReleased], [ErrLost] or [ErrMaxHold]. Err reads the clocks and sends nothing, so it is
// cheap to call right before a critical step.
func (k *Lock) Err() error {
	if k.from != nil {
		if err := k.from.Err(); err != nil {
			k.current().End(err)
		}
	}
	return k.current().Err()
}

// Context returns a child of parent that ends when the lock does; [context.Cause] then returns Err.
// parent must not be nil. No cancel function is needed: the resources are freed when parent or the
// lock ends. Calls with the same parent may return the same ctx, and a parent that never ends costs
// the lock nothing.
func (k *Lock) Context(parent context.Context) context.Context {
	_ = k.Err()
	return k.current().Context(parent, func(ctx context.Context) context.Context {
		for side := k; side != nil; side = side.from {
			ctx = with(ctx, side.current()) //nolint:fatcontext // few
		}
		return ctx
	})
}

// Extend makes the lock last for at least ttl from now, but not beyond the limit of [WithMaxHold].
// It never shortens the lease. Renewals continue as before: their interval depends on [WithTTL] and
// not on ttl. ctx and [WithOpTimeout] bound the call. If ctx ends it, the lease may still be
// extended when Redis answers.
//
// The error is [ErrLost], [ErrMaxHold] or [ErrReleased] if the lock has ended. It is [ErrInvalid] for a
// nil ctx, a ttl below 1 ms, or a ttl of which [WithGrace] leaves nothing. Any other error, such as
// [ErrUnavailable], leaves Until as it was, and the call may be retried.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	switch {
	case ctx == nil:
		return wrap("extend", k.Key(), invalid("ctx is nil"))
	case ttl < time.Millisecond:
		return wrap("extend", k.Key(), invalid("Extend(%v): below 1ms", ttl))
	case ctx.Err() != nil:
		return wrap("extend", k.Key(), ctxError(ctx))
	}
	lasts := min(ttl, clock.Longest).Truncate(time.Millisecond)
	for side := k; side != nil; side = side.from {
		if grace := attemptOf(side.current()).request.cfg.grace; grace > 0 && clock.Validity(lasts, grace) <= 0 {
			return wrap("extend", k.Key(), invalid("Extend(%v): WithGrace(%v) leaves nothing of it", ttl, grace))
		}
	}
	if k.from != nil {
		if err := k.from.Extend(ctx, ttl); err != nil {
			return err
		}
	}
	return wrap("extend", k.Key(), k.current().Extend(ctx, lasts))
}

// Unlock releases the lock even if ctx has ended: only the values of ctx are used. [WithOpTimeout]
// bounds the call. Right after a hand-over, Unlock also waits for the reply to the first extension, for
// 2 s at most. With [NewRedlock], the release waits for a renewal that is under way on the same node,
// so the call can take twice that time. The lock ends when Unlock is called. From then on Err returns
// [ErrReleased], unless the lock had already been lost.
//
// The error is [ErrLost] or [ErrMaxHold] if the lock had ended before; the next owner's key is
// untouched. A second call returns [ErrReleased]. After any other error, such as [ErrUnavailable], the
// outcome is unknown, and the key ends with its TTL at the latest. An Unlock that passes the lock
// on to another caller of this process sends nothing, so it does not notice if the key was deleted.
func (k *Lock) Unlock(ctx context.Context) error { return k.unlock(ctx, 0) }

// UnlockAfter ends the lock now, as Unlock does, and keeps everybody else out for d: nobody gets the
// key within that time, and then the next waiter does. Use it to keep a job from running again soon.
// [Status.Kept] and [HeldError.Kept] distinguish such a key from a held key. The lock is not passed on
// within the process. With a d of 0 it is Unlock. If Redis cannot be reached, the key ends with its
// TTL, which may be sooner. If Redis returns within a minute, the key is kept until d has passed, or a
// moment longer: d counts from the call.
//
// If d is 10 s or less, this process hands the key on when d has passed. Redis keeps it for 100 ms
// longer, in case the process is gone by then. If d is longer, Redis ends it, and the next waiter
// knows when to ask. With [NewRedlock] waiters poll, and Redis ends it.
//
// The errors are those listed for Unlock. For a negative d the error is [ErrInvalid]. With
// [NewLegacySetNX] the error matches [errors.ErrUnsupported], because its keys have no room for d. In
// both cases the lock has not ended.
func (k *Lock) UnlockAfter(ctx context.Context, d time.Duration) error {
	if d < 0 {
		return wrap("unlock", k.Key(), invalid("UnlockAfter(%v): negative", d))
	}
	for side := k; side != nil && d > 0; side = side.from {
		if e := attemptOf(side.current()).engine; !e.keeps {
			err := fmt.Errorf("UnlockAfter(%v): %s does not support it: %w", d, e.name, errors.ErrUnsupported)
			return wrap("unlock", k.Key(), err)
		}
	}
	return k.unlock(ctx, min(d, clock.Longest))
}

// discard gives back a lock under which nothing was begun, without its minimum hold. Of ctx only
// the values are used.
func (k *Lock) discard(ctx context.Context) {
	k.dropMinHold()
	_ = k.unlock(ctx, 0)
}

// dropMinHold drops the minimum hold, since nothing was begun under the lock.
func (k *Lock) dropMinHold() {
	for side := k; side != nil; side = side.from {
		side.current().DropMinHold()
	}
}

// unlock releases the lock, and that on the other side of a migration. For the time after nobody
// else gets the key.
func (k *Lock) unlock(ctx context.Context, after time.Duration) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if k.from == nil {
		return wrap("unlock", k.Key(), k.current().Unlock(ctx, after))
	}
	_ = k.Err() // the other side may have ended
	var err error
	guarded(func() { err = k.current().Unlock(ctx, after) }, func() { _ = k.from.unlock(ctx, after) })
	err = wrap("unlock", k.Key(), err)
	if !errors.Is(err, ErrReleased) { // else another call releases both sides
		if old := k.from.unlock(ctx, after); err == nil {
			err = old
		}
	}
	return err
}
