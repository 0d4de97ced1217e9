// Package redlatch provides locks that are kept in Redis.
//
// A lock is a lease: it ends by itself when its TTL runs out. A [Lock] is renewed until Unlock,
// but a process that is paused for longer than the TTL loses it without knowing. Where two owners
// would be wrong rather than merely wasteful, let the resource refuse writes whose [Lock.Fence] is
// older than one it has seen.
//
// A [Locker] grants locks. [NewSetNXPX] makes one that keeps each lock as one key of one Redis,
// [NewRedlock] one that keeps it on a quorum of independent ones, and [NewLegacySetNX] one that
// joins clients which already lock by SETNX and GETSET. [Do] is the short way to run a function
// under a lock:
//
//	err := redlatch.Do(ctx, locker, "orders:42", func(ctx context.Context, lock *redlatch.Lock) error {
//		return ship(ctx, 42, lock.Fence()) // ctx ends when the lock does
//	})
//
// [TryDo] does not wait, [DoAll] locks several keys, and [Lead] runs a function on one process of many.
//
// # Errors
//
// Every operation ends in one of three ways. It was done (nil). It is known not to be done: the error matches
// one of the Err variables, which name the exceptions. Or its outcome is unknown: ErrUnavailable, such as no
// reply in time or a broken connection, and any other error. If the outcome of an attempt to lock is unknown, it is released,
// unless [WithToken] chose its token. No error leaves a key behind for longer than its TTL. (The key of
// LegacySetNX has no TTL, but a time in it: once that has passed, the key stays and is free.)
//
// # Time
//
// A lock is trusted until [Lock.Until], which is counted from before the request was sent and
// held back by the drift, see [WithDrift]. Its end needs no reply from Redis, and it is judged by
// the monotonic and by the wall clock, whichever is further on.
//
// # Servers
//
// Redis 5.0 or newer, or Valkey. A user of Redis with limited rights needs those that SECURITY.md in
// the repository lists.
package redlatch

import (
	"context"
	"time"
)

// Locker grants locks on keys. Its methods may be called from many goroutines. It may get more
// methods: embed a Locker to wrap one.
type Locker interface {
	// Lock waits until key is granted or ctx is done.
	//
	// ctx bounds the waiting only: once Lock has returned, the end of ctx does not release. The
	// caller must call Unlock. If ctx ends first, the error matches ctx.Err(), and by what the last attempt
	// met with either ErrNotAcquired, with a [HeldError] where the holder is known, or ErrUnavailable. Nothing
	// is left in Redis once what was under way has come back, but what a token of [WithToken] had before.
	//
	// A wait ends only with ctx or with an error that retrying cannot fix: a key of another type, a command
	// that Redis does not serve, or ErrInvalidOption. The first attempt fails as TryLock does, but after
	// ErrNotAcquired Lock waits. Once waiting, Lock retries through all errors until ctx ends, and
	// Hooks.Trouble reports them. Give ctx a deadline.
	//
	// On one Redis ([NewSetNXPX]) a lock is handed from Unlock to the next waiter, of any process,
	// in the order in which they came; only a key that is free goes to whoever looks first.
	Lock(ctx context.Context, key string, opts ...Option) (*Lock, error)

	// TryLock makes one attempt. The error is ErrNotAcquired where another owner has key, with a [HeldError] where
	// the holder is known, or where attempts that were made at one moment split the nodes of [NewRedlock] so that
	// nobody was granted it; ErrLost where the grant took longer than the lease lasts, ErrNoQuorum of
	// [NewRedlock], ErrNotReplicated of [WithReplicas], or ErrInvalidOption. Any other, ErrUnavailable and
	// ctx's among them, leaves open whether the lock was taken: TryLock gives it back, unless [WithToken] chose
	// its token. It waits for that until ctx ends, unless Redis could not be reached at all. So an attempt on
	// a Redis that hangs takes up to twice as long as [WithOpTimeout].
	TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error)

	// Adopt returns a handle on a lock that was granted elsewhere, proved by its token. It makes
	// the lock last for its TTL from now and renews it like any other; it never shortens it. The
	// other handle works on, and either can release. The new handle has a higher fence: once it has
	// written, the resource refuses the other. ctx bounds the call. The error is ErrLost where
	// the token does not hold key; ErrInvalidOption; [errors.ErrUnsupported] of [NewMigration];
	// ErrUnavailable, ErrNoQuorum, ErrNotReplicated or that of Redis or ctx, which release nothing, and may
	// have made the lock last longer.
	Adopt(ctx context.Context, key, token string, opts ...Option) (*Lock, error)

	// Inspect reports who holds key, without changing anything. It is a picture of a moment that
	// has passed: nothing may be concluded for a critical section. Who is told Status.Token can
	// release the lock. ctx and WithOpTimeout bound the call. The error is ErrInvalidOption, ErrUnavailable,
	// ErrNoQuorum of [NewRedlock], or that of Redis or ctx.
	Inspect(ctx context.Context, key string) (Status, error)
}

// Status is what [Locker.Inspect] saw.
type Status struct {
	Held    bool          `json:"held"`
	Token   string        `json:"token,omitempty"`   // of the holder
	Owner   string        `json:"owner,omitempty"`   // what its WithOwner said
	TTL     time.Duration `json:"ttl_ns,omitempty"`  // what is left of it; 0 when free, negative where the key has none
	Waiters int           `json:"waiters,omitempty"` // queued, as far as Redis knows
	Holders int           `json:"holders,omitempty"` // of a semaphore; 0 or 1 elsewhere
}

// Lock is one grant, made by a [Locker]. Its methods may be called from many goroutines.
//
// A Lock that is dropped without Unlock is renewed no more once the garbage collector has noticed,
// and ends with its TTL: keep the pointer for as long as the lock is needed. A copy of the struct, its
// Context or its Done channel does not keep it.
type Lock struct {
	lease *lease
	from  *Lock // the other side of a migration, taken before this one; nil without
}

// Key returns the key as the caller named it, without the prefix of [WithKeyPrefix].
func (k *Lock) Key() string { return k.lease.r.key }

// Token returns what proves ownership in Redis: a UUID, behind what [WithOwner] names, or what [WithToken] chose. Whoever knows it
// can [Locker.Adopt] the lock.
func (k *Lock) Token() string { return k.lease.params.token }

// Fence returns a number that grows with every grant of the key, for the protected resource to refuse
// older ones. Compare the fences of one key only. Fence stays the same for this handle; a handle that
// [Locker.Adopt] returns has a higher one. It is 0 where the strategy issues none, which is [NewLegacySetNX].
func (k *Lock) Fence() uint64 { return k.lease.fence }

// Until returns the end of the lease: the lock is trusted before this instant and not after.
// Renewals and Extend move it. A lock that was handed over by another's Unlock is trusted for its TTL
// from when Redis handed it over.
func (k *Lock) Until() time.Time {
	until := k.lease.until()
	if k.from != nil {
		if old := k.from.Until(); old.Before(until) {
			return old
		}
	}
	return until
}

// Done returns a channel that is closed when the lock has ended, however it did.
func (k *Lock) Done() <-chan struct{} {
	_ = k.Err() // a timer may be late on a busy machine
	return k.lease.doneChan()
}

// Err returns nil while the lock is trusted, then an error that matches ErrReleased, ErrLost or ErrMaxHold, always
// the same. It judges by the clocks at each call and asks nobody, so a call right before a step that
// matters is cheap and worth it.
func (k *Lock) Err() error {
	if k.from != nil {
		if err := k.from.Err(); err != nil {
			k.lease.end(err)
		}
	}
	return k.lease.status()
}

// Context returns a child of parent that ends when the lock does; [context.Cause] is then Err. parent
// must not be nil. It needs no cancel: what it costs is freed when parent or the lock ends.
func (k *Lock) Context(parent context.Context) context.Context {
	_ = k.Err()
	return k.lease.context(parent)
}

// Extend makes the lock last for ttl from now on, if it would end sooner, within [WithMaxHold].
// Renewal goes on as before. ctx bounds the call, as [WithOpTimeout] does.
//
// The error is ErrLost, ErrMaxHold or ErrReleased where the lock has ended; ErrInvalidOption for a
// ttl below 1 ms or a nil ctx; any other, ErrUnavailable among them, leaves Until as it was, and the call
// may be made again.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	switch {
	case ctx == nil:
		return wrap("extend", k.lease.r.key, invalid("ctx is nil"))
	case ttl < time.Millisecond:
		return wrap("extend", k.lease.r.key, invalid("Extend(%v): below 1ms", ttl))
	}
	if k.from != nil {
		if err := k.from.Extend(ctx, ttl); err != nil {
			return err
		}
	}
	return wrap("extend", k.lease.r.key, k.lease.extend(ctx, min(ttl, longest).Truncate(time.Millisecond)))
}

// Unlock gives the lock back. It is carried out also when ctx has ended: ctx only lends its
// values, and [WithOpTimeout] bounds the call. The lock has ended when Unlock returns, whatever
// it returns; Err is ErrReleased from the moment it is called.
//
// The error is ErrLost or ErrMaxHold where the lock had ended before, and the next owner's key is
// untouched; ErrReleased at a second call; any other, ErrUnavailable among them, says that Redis did not
// confirm, and the key ends with its TTL at the latest.
func (k *Lock) Unlock(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	_ = k.Err()
	err := wrap("unlock", k.lease.r.key, k.lease.release(ctx))
	if k.from != nil {
		if old := k.from.Unlock(ctx); err == nil {
			err = old
		}
	}
	return err
}
