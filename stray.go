package redlatch

import (
	"context"
	"errors"
	"net"
	"time"
)

// A stray is a command whose reply nobody waits for any more, since its client gave up the
// connection. It may still be on its way, and can land after the release of what it takes.

const (
	// firstLook is after how long it is first looked for what a stray took. The pauses double, up to
	// lastLook, after which the connection is taken to be empty.
	firstLook = 250 * time.Millisecond
	lastLook  = 4 * time.Second
)

// strays reports whether a command that failed with err may be carried out yet.
func strays(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() && !neverLeft(err)
}

// chase has what a stray of c takes after its lease has ended given back soon, but no lock of a token
// that the caller chose, and may use again by then. The timers are its own, and end with the last
// look.
func (n *node) chase(ctx context.Context, undo operation, c *claim) {
	if undo == nil || c.chosen && c.entry == "" {
		return
	}
	ctx = detached(ctx)
	var lookAfter func(pause time.Duration)
	lookAfter = func(pause time.Duration) {
		time.AfterFunc(pause, func() {
			if c.life.settled() {
				n.start(ctx, undo, c, form{last: true})
			}
			if pause < lastLook {
				lookAfter(2 * pause)
			}
		})
	}
	lookAfter(firstLook)
}
