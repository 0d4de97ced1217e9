package redlatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wire"
)

// A Token proves who holds a key. It is a UUID of version 7 or 8, which has the time when it was made.
// If [WithOwner] gives a name, the token begins with the name and a slash. The token of a writer of
// [NewReadWrite] begins with an exclamation mark.
//
// It is a secret: anyone who knows it can [Locker.Adopt] the lock, and so release it. Packages fmt,
// log/slog and encoding/json print it as "…", also in an exported field. They print the secret if they
// call no method. fmt does so in an unexported field, and for the verbs %p and %w, which are not for
// strings. encoding/json does so in the key of a map. string(token) is the secret, to store it or to
// hand it to another process.
type Token string

// String returns "…", or "" for an empty token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return "…"
}

// GoString returns what String does, in quotes.
func (t Token) GoString() string { return strconv.Quote(t.String()) }

// Format prints what String returns, for all verbs that package fmt passes on.
func (t Token) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), t.String())
}

// LogValue returns what String does.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON returns what String does, in quotes.
func (t Token) MarshalJSON() ([]byte, error) { return []byte(t.GoString()), nil }

// MarshalText returns what String does, for encoders other than encoding/json.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Status is the answer of [Locker.Inspect]. For a semaphore it describes the holder whose lease ends
// first.
type Status struct {
	Held  bool   // somebody holds the key
	Kept  bool   // nobody holds the key, but [Lock.UnlockAfter] or [WithMinHold] keeps others out
	Token Token  // of the holder
	Owner string // of the holder, see [WithOwner]; may be empty
	// Since is when the holder began to ask for the lock, by the clock of its process: most often the
	// beginning of its call. The lock has been held for at most that long. It is zero if it is unknown,
	// such as for a client of another library.
	Since   time.Time
	TTL     time.Duration // what is left of the lease, or of a kept key; 0 if free, negative if it never ends
	Waiters int           // lines in the queue: about one for each process, and up to 16 for a semaphore
	// Queue has these lines, the longest wait first, and 100 at most. It is nil without any, and
	// with strategies whose waiters poll.
	Queue []Waiter
	// Holders is the number of permits that are held of a semaphore or by readers, and otherwise 0 or
	// 1. It does not count permits that are kept.
	Holders int
	// Holding has the holders of a semaphore or of a read-write lock, the earliest first, and 100 at
	// most. It is nil for other locks. Permits in a min hold are not listed here.
	Holding []Holder
}

const (
	longestQueue = 100 // of Status.Queue
	mostHolding  = 100 // of Status.Holding, and of the min holds that an inspection shows
)

// A Holder holds a permit of a semaphore, or of a read-write lock. The readers of a process that
// share a permit are one.
type Holder struct {
	Owner  string        // see [WithOwner]; may be empty
	Token  Token         // with which [Locker.Adopt] continues the permit, to release it
	Since  time.Time     // as in [Status]
	TTL    time.Duration // what is left of the lease
	Writes bool          // it is a writer of [NewReadWrite], and the only holder
}

// A Waiter is a line in the queue for a key. The line of a process that has died may stay until its
// turn comes.
type Waiter struct {
	Owner  string        // see [WithOwner]
	Waited time.Duration // so far, by its first caller
}

// Forget ends the min hold of key, if [Lock.UnlockAfter] or [WithMinHold] keeps others out and
// nobody holds key. It does nothing else: a lock that is held stays, with the min hold that its own
// Unlock begins. Use it to let a job run again soon. The next waiter gets the lock at once. Forget
// takes nothing from a holder. To release the lock of another holder, delete its key, or use
// [Locker.Adopt] as the command redlatch unlock does. That holder notices at its next renewal. It may
// continue to work for up to a third of its TTL, unless its Locker learns of another holder before.
//
// With [NewMigration] it does this on both sides. A Locker that wraps another one must have a method
// Unwrap() Locker, which returns the wrapped one.
//
// ctx bounds the call, and [WithOpTimeout] each of its commands: those that inspect the key, and one for
// each min hold that it ends. The error is [ErrInvalid], [errors.ErrUnsupported] if l has no such
// method, or what [Locker.Inspect] returns. After any error the min hold may have ended.
func Forget(ctx context.Context, l Locker, key string) error {
	if isNil(l) {
		return wrap("forget", key, invalid("the Locker is nil"))
	}
	return wrap("forget", key, forget(ctx, l, key))
}

func forget(ctx context.Context, l Locker, key string) error {
	switch l := l.(type) {
	case *engine:
		return l.forget(ctx, key)
	case *migration:
		err := forget(ctx, l.to, key)
		if old := forget(ctx, l.from, key); err == nil {
			err = old
		}
		return err
	case interface{ Unwrap() Locker }:
		return forget(ctx, l.Unwrap(), key)
	}
	return fmt.Errorf("%w: a %T has no method Unwrap() Locker", errors.ErrUnsupported, l)
}

// forget ends the min hold that an inspection shows, and no later one. It inspects again if that has shown as many as
// it can.
func (e *engine) forget(ctx context.Context, key string) error {
	r := new(request)
	if err := e.check(ctx, r, key, nil); err != nil {
		return err
	}
	defer r.loan.over()
	ctx = r.loan.lend(ctx)
	for {
		kept, err := e.kept(ctx, r)
		if err == nil {
			err = e.endKept(ctx, r, kept)
		}
		if err != nil || len(kept) < mostHolding {
			return err
		}
		r.started = clock.Now()
	}
}

// kept returns the values that keep others out, if nobody holds the key.
func (e *engine) kept(ctx context.Context, r *request) ([]string, error) {
	got := e.inspect(ctx, r)
	switch {
	case got.err != nil || got.seen == nil || !wire.Parse(string(got.seen.status.Token)).Kept:
		return nil, got.err
	case got.seen.kept != nil:
		return got.seen.kept, nil
	}
	return []string{string(got.seen.status.Token)}, nil
}

// endKept releases values that keep others out, unless their time has ended since.
func (e *engine) endKept(ctx context.Context, r *request, values []string) error {
	for _, value := range values {
		id, now := e.identity(r, value), clock.MonoNow()
		done, _ := e.run(ctx, now, toRelease, &params{identity: &id, timeout: r.cfg.timeout(), began: now})
		if done.err != nil && !errors.Is(done.err, ErrLost) {
			return done.err
		}
	}
	return nil
}
