package judge

import (
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
)

// functions: "If `Do` returns nil, its function was called once and returned nil. The function's ctx ends
// when the lock ends, with the `Err` of the lock as its cause." Otherwise Do returns the error of its
// function, or ErrLost. A panic of the function and runtime.Goexit leave the call. Lead ends with ErrStop,
// and with its ctx.
func functions(h *History, broken func(time.Duration, string, ...any)) {
	for _, c := range h.calls {
		if slices.Contains([]string{"Do", "TryDo", "DoAll", "TryDoAll", "Lead"}, c.What) && c.Returned != Never {
			c.function(broken)
		}
	}
	for _, k := range h.holds {
		if k.CtxEnded != nil {
			k.ctx(broken)
		}
	}
}

// function checks how a call ended whose function ran.
func (c *Call) function(broken func(time.Duration, string, ...any)) {
	var fails error
	if c.Result != nil {
		fails = c.Result.Err
	}
	leads := c.What == "Lead"
	switch {
	case c.Runs > 0 && c.Result == nil:
		broken(c.Returned, "%v returns while its function runs", c)
	case c.Runs > 1 && !leads:
		broken(c.Returned, "%v runs its function %d times", c, c.Runs)
	case c.Exit != "" && (c.Result == nil || c.Result.Text != c.Exit):
		broken(c.Returned, "%v: %s, and its function did not", c, c.Exit)
	case c.Exit != "":
	case c.Result != nil && (c.Result.Text == "panics" || c.Result.Text == "exits"):
		broken(c.Returned, "%v returns %v, and its function %s", c, c.Err, c.Result.Text)
	case c.Err == nil && c.Runs == 0:
		broken(c.Returned, "%v returns nil, and its function did not run", c)
	case leads && (c.Err == nil) != errors.Is(fails, redlatch.ErrStop):
		broken(c.Returned, "%v returns %v, and its function %v", c, c.Err, fails)
	case leads:
	case c.Runs == 0 && errors.Is(c.Err, redlatch.ErrReleased):
		broken(c.Returned, "%v: %v, and its function did not run", c, c.Err)
	case fails != nil && !c.failed():
		broken(c.Returned, "%v returns %v, and its function %v", c, c.Err, fails)
	case c.Runs > 0 && fails == nil && c.Err != nil && !errors.Is(c.Err, lost):
		broken(c.Returned, "%v returns %v, and its function nil", c, c.Err)
	}
}

// ctx checks the end of the ctx of a function, if somebody has watched the lock.
func (k *Hold) ctx(broken func(time.Duration, string, ...any)) {
	e, first, says := k.CtxEnded, k.Ended, false
	for _, o := range k.Holds {
		if o.CtxEnded != nil && o.CtxEnded.At == e.At { // of one run
			first = min(first, o.Ended)
			says = says || o.Ended == e.At && errors.Is(e.Err, o.Why)
		}
	}
	switch {
	case k.Ended == Never: // nobody has watched it
	case e.At > first:
		broken(e.At, "%v ended at %v, and the ctx of its function later", k, first)
	case e.At < first && e.At < k.Ends:
		broken(e.At, "%v ended at %v, and the ctx of its function earlier: %v", k, first, e.Err)
	case e.At == first && e.At < k.Ends && !says:
		broken(e.At, "%v ended with %v, and the ctx of its function with %v", k, k.Why, e.Err)
	}
}

// failed reports whether the error of a call is that of its function.
func (c *Call) failed() bool {
	return c.Result != nil && c.Result.Err != nil && errors.Is(c.Err, c.Result.Err)
}
