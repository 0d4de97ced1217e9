package redlatch

import (
	"context"
	"log/slog"
	"time"
)

// Hooks are callbacks that hear of what happens to locks, as those of [net/http/httptrace] do.
// Any may be nil, and all may run concurrently. They run in the goroutine that noticed, which
// waits for them, so a hook must be quick. One may run after Done was closed, and Lost, where a timer
// noticed the loss, even after Unlock has returned.
type Hooks struct {
	// Acquired: a lock was granted or adopted. Elapsed is how long the caller waited.
	Acquired func(Event)
	// Waiting: the first attempt of a Lock call was refused, and it starts to wait.
	Waiting func(Event)
	// Renewed: a renewal or Extend succeeded. Elapsed is its round trip.
	Renewed func(Event)
	// RenewFailed: a renewal or Extend failed, for Err, in a way that leaves the lock alive. A
	// renewal is retried.
	RenewFailed func(Event)
	// Lost: the lock ended without having been released, for Err: also a fixed lease that was left
	// to its end on purpose. Elapsed is how long it was held.
	Lost func(Event)
	// Released: Unlock ended the lock. Err is nil where Redis confirmed it.
	Released func(Event)
	// Degraded: waiters of the Locker poll, since Redis does not let them hear of their turn, for
	// Err. Key is empty. The Locker's own hooks hear of it, not those of a call; again only when it
	// had recovered in between. Lockers whose waiters always poll do not report it.
	Degraded func(Event)
	// Trouble: something failed, for Err and Cause, and is ridden out: an attempt of a Lock call that waits, or of
	// [Lead], or a node of [NewRedlock], which Node names, while the others may serve. At most once a second for one
	// Cause and Node of a Locker. Only the Locker's own hooks report a node, and Key is empty then.
	Trouble func(Event)
}

// Event says what happened to which lock. Token, Owner, Fence and Elapsed are zero where they are not
// known yet.
type Event struct {
	Strategy string // "setnxpx", "redlock", "legacysetnx" or "semaphore"
	Key      string // as the caller named it
	Token    string // a secret: whoever knows it can release the lock
	Owner    string // what WithOwner said
	Fence    uint64
	Attempts int           // acquisition attempts so far; 0 in other events than Acquired and Waiting, and for Adopt
	Elapsed  time.Duration // waited (Acquired, Waiting), held (Lost, Released), round trip (Renewed, RenewFailed)
	Took     time.Duration // how long Redis took, in Renewed, RenewFailed and Released, and in Lost where Unlock found the loss
	Renewal  bool          // in Renewed and RenewFailed: nobody called Extend
	Err      error         // set in Lost, RenewFailed, Degraded and Trouble, and in Released where Redis did not confirm
	Node     string        // in Trouble: the address of a node, or which one it is
	// Cause is set in Trouble: "timeout", "connection", "quorum" (too few nodes answered), "replicas" (too few
	// confirmed), "slow" (the grant took longer than the lease lasts), or the first word that Redis answered.
	Cause string
}

// JoinHooks returns Hooks that call those of every argument, in order.
func JoinHooks(hooks ...Hooks) Hooks {
	join := func(of func(*Hooks) func(Event)) func(Event) {
		var set []func(Event)
		for i := range hooks {
			if f := of(&hooks[i]); f != nil {
				set = append(set, f)
			}
		}
		switch len(set) {
		case 0:
			return nil
		case 1:
			return set[0]
		}
		return func(e Event) {
			for _, f := range set {
				f(e)
			}
		}
	}
	return Hooks{
		Acquired:    join(func(h *Hooks) func(Event) { return h.Acquired }),
		Waiting:     join(func(h *Hooks) func(Event) { return h.Waiting }),
		Renewed:     join(func(h *Hooks) func(Event) { return h.Renewed }),
		RenewFailed: join(func(h *Hooks) func(Event) { return h.RenewFailed }),
		Lost:        join(func(h *Hooks) func(Event) { return h.Lost }),
		Released:    join(func(h *Hooks) func(Event) { return h.Released }),
		Degraded:    join(func(h *Hooks) func(Event) { return h.Degraded }),
		Trouble:     join(func(h *Hooks) func(Event) { return h.Trouble }),
	}
}

// SlogHooks returns Hooks that write to logger, or to [slog.Default] where it is nil: what is
// usual at Debug, RenewFailed, Degraded and Trouble at Warn, Lost at Error. Nothing that is secret is logged:
// the owner, and not the token.
func SlogHooks(logger *slog.Logger) Hooks {
	if logger == nil {
		logger = slog.Default()
	}
	at := func(level slog.Level, message string) func(Event) {
		return func(e Event) {
			attrs := []slog.Attr{
				slog.String("strategy", e.Strategy),
				slog.String("key", e.Key),
				slog.String("owner", e.Owner),
				slog.Uint64("fence", e.Fence),
				slog.Int("attempts", e.Attempts),
				slog.Duration("elapsed", e.Elapsed),
			}
			if e.Cause != "" {
				attrs = append(attrs, slog.String("node", e.Node), slog.String("cause", e.Cause))
			}
			if e.Err != nil {
				attrs = append(attrs, slog.String("error", e.Err.Error()))
			}
			logger.LogAttrs(context.Background(), level, message, attrs...)
		}
	}
	return Hooks{
		Acquired:    at(slog.LevelDebug, "lock acquired"),
		Waiting:     at(slog.LevelDebug, "waiting for lock"),
		Renewed:     at(slog.LevelDebug, "lock renewed"),
		RenewFailed: at(slog.LevelWarn, "lock renewal failed"),
		Lost:        at(slog.LevelError, "lock lost"),
		Released:    at(slog.LevelDebug, "lock released"),
		Degraded:    at(slog.LevelWarn, "lock waiting degraded"),
		Trouble:     at(slog.LevelWarn, "lock service in trouble"),
	}
}
