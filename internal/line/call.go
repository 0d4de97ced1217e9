package line

import (
	"context"
	"time"
)

// A Call waits in a line. Its owner sets the exported fields before [Lines.Join].
type Call struct {
	Caller[*Call]
	By       Waiter
	Attempts int // that the call has made before it joined

	line *keyLine
	ctx  context.Context //nolint:containedctx // for its values, which travel with what its line asks
}

// A Waiter is the owner of a Call. Attempt is called under the mutex of its Lines, and Options too, so they do not
// block. The line may call both when the call has ended.
type Waiter interface {
	// Options returns those of a line that begins with the call. They do not change.
	Options() *Options

	// Attempt returns a new attempt with a fresh token, for the line that has begun with the call.
	Attempt() *Attempt

	// Fail ends the wait.
	Fail(err error, attempts int)

	// Tell reports a refusal. If err is nil, this process holds the key, by an attempt.
	Tell(holder *Attempt, err error, attempts int)

	// Trouble reports that an attempt has failed, while the call goes on waiting.
	Trouble(ctx context.Context, err error, attempts int)
}

// Options are what does not change while a line lasts.
type Options struct {
	Config

	Polls   bool          // the line queues only while others do
	Limit   int           // of its calls, for an entry; 0: the key has one holder
	Renews  bool          // who is handed the key extends the claim
	Grace   time.Duration // of a lease that is not trusted
	MinHold time.Duration
	MaxHold time.Duration // 0: there is none
}
