package judge

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
)

// reports: Hooks "report each grant, and its end, once." What they say of it was so: whose lock it is, its
// fence, for how long it was waited for or held, and why it failed.
func reports(h *History, broken func(time.Duration, string, ...any)) {
	at := make(map[string][]Event)
	waiting := make(map[waits]bool)
	for _, e := range h.Events {
		if e.Kind != Hooked || e.Report == nil {
			continue
		}
		if e.Text == "Acquired" {
			at[e.Places[0]] = append(at[e.Places[0]], e)
		}
		h.report(e, waiting, broken)
	}
	if len(at) == 0 {
		return // there are no hooks
	}
	for _, k := range h.holds {
		place := k.Places[len(k.Places)-1] // of a migration, that of to
		if !slices.ContainsFunc(at[place], func(e Event) bool { return k.grantedBy(e) }) {
			broken(k.Granted, "%v: Acquired did not report it", k)
		}
	}
	for _, c := range h.calls {
		long := c.Timeout + 300*time.Millisecond + 10*c.Trip
		if c.What == "Lock" && !h.Faulty && !c.Migrates && min(c.waited(), c.Waits, h.over)-c.Begun > long &&
			!waiting[waits{c.Owner, c.Places[0], c.Begun}] {
			broken(c.Begun, "%v: Waiting did not report it", c)
		}
	}
}

// waits are calls that have waited for a key.
type waits struct {
	owner, place string
	since        time.Duration
}

// grantedBy reports whether Acquired has reported a lock.
func (k *Hold) grantedBy(e Event) bool {
	r := e.Report
	if r.Owner != k.Owner || r.Fence != k.Fence || e.At > k.Granted || e.At < k.Begun {
		return false
	}
	switch k.What {
	case "Lock", "TryLock", "Do", "TryDo", "Adopt":
		return e.At == k.Granted && (k.Migrates || r.Elapsed == e.At-k.Begun)
	}
	return true
}

// report checks what a hook was told.
func (h *History) report(e Event, waiting map[waits]bool, broken func(time.Duration, string, ...any)) {
	r := e.Report
	say := func(is bool, format string, args ...any) {
		if is {
			broken(e.At, "%s of %s: "+format+": %+v", append(append([]any{e.Text, e.Owner}, args...), *r)...)
		}
	}
	say(r.Took < 0 || r.Elapsed < 0, "a time below 0")
	if r.Key == "" {
		say(r.Err == nil || !h.Faulty && !slices.ContainsFunc(h.calls, func(c *Call) bool { return c.Owner == e.Owner && c.hasty() }),
			"without a fault")
		say(e.Text == "Trouble" && (r.Node == "" || r.Cause == ""), "a node and a cause")
		return
	}
	calls := h.callsOf(e)
	leads := func(c *Call) bool { return (c.What == "Lead") == r.Lead }
	say(!slices.ContainsFunc(calls, leads), "no call of Lead, or none but those")
	alike := func(c *Call) bool { return c.Strategy == r.Strategy || c.Migrates }
	say(!slices.ContainsFunc(calls, alike), "another strategy")
	switch e.Text {
	case "Acquired":
		say(r.Err != nil || r.Took != 0 || r.Renewal, "no error, and no command")
	case "Waiting", "Moved":
		h.waiting(e, calls, waiting, say, broken)
	case "Trouble":
		say(r.Err == nil || r.Cause == "", "an error, and a cause")
		expected := r.Cause == redlatch.CauseFunc || isAny(r.Err, lost, context.Canceled, context.DeadlineExceeded)
		say(!h.Faulty && !expected && !slices.ContainsFunc(calls, (*Call).hasty), "without a fault")
	default:
		h.held(e, calls, say)
	}
}

// hasty reports whether the first connection may open too late for a call.
func (c *Call) hasty() bool {
	return c.Timeout < 10*c.Trip || c.MaxWait > 0 && c.MaxWait < 10*c.Trip
}

// callsOf returns the calls whose lock an event may be about. An adopted one has the owner of its token.
func (h *History) callsOf(e Event) (calls []*Call) {
	for _, c := range h.calls {
		owned := c.Owner == e.Report.Owner || c.What == "Adopt" && e.Text == "Trouble"
		if owned && c.acquires() && c.Begun <= e.At && shares(c.Places, e.Places) {
			calls = append(calls, c)
		}
	}
	return calls
}

// waiting checks an event of a call that waits.
func (h *History) waiting(
	e Event, calls []*Call, known map[waits]bool,
	say func(bool, string, ...any), broken func(time.Duration, string, ...any),
) {
	r, since := e.Report, e.At-e.Report.Elapsed
	calls = slices.DeleteFunc(slices.Clone(calls), func(c *Call) bool {
		exact := (c.What == "Lock" || c.What == "Do") && !c.Migrates
		several := c.Mode == Reader || c.Mode == Permit && c.Limit > 1 || c.Whole && !c.Migrates
		return c.Returned < e.At || !c.mayWait() && c.What != "Lead" || c.Begun > since || exact && c.Begun < since ||
			several && e.Text == "Moved"
	})
	say(!errors.Is(r.Err, redlatch.ErrNotAcquired), "a refusal")
	if len(calls) == 0 {
		say(true, "nobody waits since %v", since)
		return
	}
	c, w := calls[0], waits{r.Owner, e.Places[0], since}
	say(e.Text == "Moved" && !known[w], "Waiting was not called")
	known[w] = true
	var held *redlatch.HeldError
	if errors.As(r.Err, &held) {
		h.refusal(c, held, e.At, broken)
	}
}

// held checks an event of a lock.
func (h *History) held(e Event, calls []*Call, say func(bool, string, ...any)) {
	r := e.Report
	var locks []*Hold
	unseen := false // a lock that was granted before its call knew of it, or never did
	for _, c := range calls {
		runs := c.What != "Lock" && c.What != "TryLock" && c.What != "Adopt"
		unseen = unseen || c.Migrates || runs && min(c.Returned, h.over)+4*c.Timeout >= e.At
		for _, k := range c.Holds {
			if k.Fence == r.Fence && k.Granted <= e.At {
				locks = append(locks, k)
			}
		}
	}
	say(len(locks) == 0 && !unseen, "there is no such lock")
	some := func(is func(*Hold) bool) bool { return unseen || slices.ContainsFunc(locks, is) }
	say(!some(func(k *Hold) bool {
		until := e.At
		if e.Text == "Released" || e.Text == "Lost" { // Unlock may wait for a renewal when it has its reply
			until = min(until, k.Unlocking)
		}
		most := e.At - k.Begun + k.Timeout + 10*k.Trip
		return r.Elapsed >= until-k.Granted && (h.Faulty || r.Elapsed <= most)
	}), "the time since the grant")
	say(r.Took > r.Elapsed, "it took longer than the lock was held")
	switch e.Text {
	case "Renewed", "RenewFailed":
		say((r.Err == nil) != (e.Text == "Renewed"), "an error, or none")
		say(e.Text == "RenewFailed" && errors.Is(r.Err, lost), "the lock is lost")
		extended := func(k *Hold) bool { return k.extends(e.At) }
		say(!r.Renewal && !some(extended), "nobody has extended it")
	case "Lost":
		say(!errors.Is(r.Err, lost), "a loss")
	case "Released":
		say(r.Err != nil && errors.Is(r.Err, lost) && !h.loses(), "a loss")
		say(!some(func(k *Hold) bool { return k.Unlocking <= e.At }), "Unlock was not called")
	}
	say(e.Text != "Renewed" && e.Text != "RenewFailed" && r.Renewal, "a renewal")
}

// extends reports whether a caller extends a lock, or keeps others out of that of several readers.
func (k *Hold) extends(at time.Duration) bool {
	return slices.ContainsFunc(slices.Concat(k.Extends, k.Releases), func(c *Call) bool {
		return c.Begun <= at && min(c.Returned, c.Ends)+4*c.Timeout >= at && (c.What == "Extend" || k.Mode == Reader)
	}) || k.Mode == Reader && k.Unlocking <= at
}
