//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/redlatch/redlatch"
)

// heldVariable names the environment variable in which COMMAND gets the tokens of the locks that it
// runs under, of each run around it.
const heldVariable = "REDLATCH_HELD"

// withHeld returns the value of heldVariable for a COMMAND that also holds a token. A token is
// printable, but may have spaces.
func withHeld(token redlatch.Token) string {
	return strings.TrimPrefix(os.Getenv(heldVariable)+"\n"+string(token), "\n")
}

// lock waits for the lock, unless it would wait for itself.
func (f *runFlags) lock(ctx context.Context, c *connection, opts []redlatch.Option) (*redlatch.Lock, error) {
	held := strings.Split(os.Getenv(heldVariable), "\n")
	if held[0] == "" || f.limit > 1 { // a semaphore may have other permits
		return c.Lock(ctx, f.key, opts...)
	}
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	own := &ownWaitError{f.key}
	look := func(context.Context, redlatch.Event) {
		if seen, err := c.Inspect(ctx, f.key); err == nil && holdsOne(seen, held) {
			refuse(own)
		}
	}
	opts = append(slices.Clip(opts), redlatch.WithHooks(redlatch.Hooks{Waiting: look, Moved: look}))
	lock, err := c.Lock(ctx, f.key, opts...)
	if err != nil && errors.Is(context.Cause(ctx), own) {
		err = own
	}
	return lock, err
}

func (f *runFlags) tryLock(ctx context.Context, c *connection, opts []redlatch.Option) (*redlatch.Lock, error) {
	return c.TryLock(ctx, f.key, opts...)
}

// holdsOne reports whether one of some tokens holds the key.
func holdsOne(seen redlatch.Status, tokens []string) bool {
	held := func(token redlatch.Token) bool { return slices.Contains(tokens, string(token)) }
	return held(seen.Token) || slices.ContainsFunc(seen.Holding, func(h redlatch.Holder) bool { return held(h.Token) })
}

// An ownWaitError says that run would wait for itself: a run around this one holds the key, and waits
// for its COMMAND, which waits for this run. It matches ErrInvalid.
type ownWaitError struct{ key string }

func (e *ownWaitError) Error() string {
	const text = "run %q: redlatch runs under this lock already, so it would wait for itself. " +
		"If COMMAND does not wait for it, unset %s"
	return fmt.Sprintf(text, e.key, heldVariable)
}

func (e *ownWaitError) Is(target error) bool { return target == redlatch.ErrInvalid }
