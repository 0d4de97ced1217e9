package judge

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

var secret = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// classes: "An error matches `ErrNotAcquired` only if Redis, or a holder in this process, has shown
// another owner." and "Errors of redlatch have one line, and no token. They match the error of a ctx only
// if that ctx has ended. A call that returns no error returns its result." Each error is one that the documentation
// of its call names.
func classes(h *History, broken func(time.Duration, string, ...any)) {
	for _, c := range h.calls {
		switch {
		case c.Panic != "":
			broken(c.Returned, "%v panics: %s", c, c.Panic)
		case c.Err == nil || c.Returned == Never || c.failed():
		case strings.Contains(c.Err.Error(), "\n"), secret.MatchString(c.Err.Error()):
			broken(c.Returned, "%v: the text %q", c, c.Err)
		case isAny(c.Err, context.Canceled, context.DeadlineExceeded) && c.Ends > c.Returned:
			broken(c.Returned, "%v: %v, and its ctx has not ended", c, c.Err)
		case c.Closed > 0 && c.Closed <= c.Returned && errors.Is(c.Err, redis.ErrClosed):
		case !isAny(c.Err, c.errors()...):
			broken(c.Returned, "%v: %v", c, c.Err)
		case errors.Is(c.Err, redlatch.ErrNotAcquired) && errors.Is(c.Err, redlatch.ErrUnavailable):
			broken(c.Returned, "%v: two classes: %v", c, c.Err)
		case errors.Is(c.Err, redlatch.ErrNotAcquired) && !h.heldBeside(c):
			broken(c.Returned, "%v: %v, and nobody else has asked for it", c, c.Err)
		case errors.Is(c.Err, redlatch.ErrUnavailable) && !h.Faulty &&
			!isAny(c.Err, context.Canceled, context.DeadlineExceeded) && c.Returned < c.Waits && c.What != "Extend": // which has little time at the end of a lease
			broken(c.Returned, "%v: without a fault: %v", c, c.Err)
		case errors.Is(c.Err, lost) && c.Hold > 0 && !h.loses():
			h.lostEarly(c, broken)
		}
	}
}

// errors returns those that may be the reason why a call failed.
func (c *Call) errors() []error {
	if c.Returned >= c.Waits {
		return []error{
			context.Canceled, context.DeadlineExceeded, redlatch.ErrNotAcquired, redlatch.ErrUnavailable, lost,
			redlatch.ErrReleased,
		}
	}
	switch c.What {
	case "Unlock", "UnlockAfter", "Extend":
		return []error{lost, redlatch.ErrReleased, redlatch.ErrUnavailable}
	case "Inspect", "Forget":
		return []error{redlatch.ErrUnavailable}
	case "Adopt":
		return []error{redlatch.ErrUnavailable, lost, redlatch.ErrNotReplicated}
	case "Lock", "Lead":
		return []error{redlatch.ErrUnavailable, lost, redlatch.ErrNotReplicated}
	}
	return []error{redlatch.ErrNotAcquired, redlatch.ErrUnavailable, lost, redlatch.ErrNotReplicated}
}

// heldBeside reports whether somebody else may have had one of the keys while c lasted.
func (h *History) heldBeside(c *Call) bool {
	for _, o := range h.calls {
		if o != c && o.acquires() && o.Begun <= c.Returned && shares(o.Places, c.Places) && h.reach(o) >= c.Begun {
			return true
		}
	}
	return false
}

// acquires reports whether a call asks for a lock.
func (c *Call) acquires() bool { return c.Hold == 0 && c.What != "Inspect" && c.What != "Forget" }

// reach returns until when what a call has asked for may keep others out.
func (h *History) reach(c *Call) time.Duration {
	until := min(c.Returned, h.over) + c.ttl() + drift(c.ttl()) // an attempt of unknown outcome
	if !h.Faulty {
		until = min(c.Returned, h.over) + 4*c.Timeout
	}
	for _, k := range c.Holds {
		until = max(until, h.kept(k))
	}
	return until
}

func shares(a, b []string) bool {
	for _, x := range a {
		if slices.Contains(b, x) {
			return true
		}
	}
	return false
}

// lostEarly: a method says that the lock is lost, and nothing was lost.
func (h *History) lostEarly(c *Call, broken func(time.Duration, string, ...any)) {
	for _, k := range h.holds {
		if k.N == c.Hold && c.Returned < k.Until && !k.Adopted && k.Of == nil && c.Begun <= k.Unlocking {
			broken(c.Returned, "%v: before %v: %v", c, k.Until, c.Err)
		}
	}
}
