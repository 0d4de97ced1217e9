package lease

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Home is what a [Lease] needs of the attempt that was granted it. The Lease calls it without its
// mutex.
type Home interface {
	// Extend sends an extension, and waits for its outcome until ctx ends. It calls [Lease.Extended]
	// once, when the outcome is known, and returns its error unless ctx has ended before.
	Extend(ctx context.Context, x Extension) error

	// Pass has the line pass the lock on. Otherwise it sends a release, calls [Lease.NotPassed], and
	// waits for the outcome.
	Pass(ctx context.Context, now clock.Instant) (passed bool, err error)

	// GiveBack sends a release, which keeps others out for a time, and waits for the outcome. held
	// says that the lease lasted until then.
	GiveBack(ctx context.Context, now clock.Instant, keep time.Duration, held bool) error

	// Ended says, once, that the lease has ended. lost says that no handle has ended it.
	Ended(lost bool)

	// Report calls a hook of a handle.
	Report(ctx context.Context, r Report)
}

// A Report is what the hooks of a handle are told.
type Report struct {
	By      *Config       // of the call that was granted the handle
	Number  int           // of the handle
	Elapsed time.Duration // since the grant
	Took    time.Duration // by the command; 0: there was none
	Err     error

	// Extension is what has succeeded, or failed with Err. If it is nil, the handle has ended: it was
	// released, or lost if Err matches ErrLost.
	Extension *Extension
}
