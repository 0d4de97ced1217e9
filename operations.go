package redlatch

import (
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The operations on one node: SetNXPX sends them to its only one, Redlock to each of many.

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed extend.lua
	extendSource string
	//go:embed release.lua
	releaseSource string
	//go:embed inspect.lua
	inspectSource string

	acquireScript = newScript(acquireSource)
	extendScript  = newScript(extendSource)
	releaseScript = newScript(releaseSource)
	inspectScript = newScript(inspectSource)
)

// acquire takes the lock in one round trip, unless it is taken and no fence is asked for.
func acquire(j *job, c *claim) (grant, error) {
	ttl := c.ttl.Milliseconds()
	resent := false
	if !c.fenced && !c.placed && c.replicas == 0 {
		var reply any
		var err error
		reply, resent, err = j.send(nil, append(j.blank(), "set", &c.key, &c.token, "nx", "px", &ttl))
		if err != nil || reply != nil {
			return grant{}, err
		}
		// The key is taken, perhaps by this very token: the script tells.
	}
	var words []any
	switch {
	case c.keep && c.fenced:
		words = acquireScript.call(j, 2, &c.key, &c.fences, &c.token, &ttl, c.grain, "", "keep")
	case c.keep:
		words = acquireScript.call(j, 1, &c.key, &c.token, &ttl, "", "", "keep")
	case c.entry != "":
		words = acquireScript.call(j, 3, &c.key, &c.fences, &c.queue, &c.token, &ttl, 1, &c.entry)
	case !c.fenced:
		words = acquireScript.call(j, 1, &c.key, &c.token, &ttl)
	case c.grain > 1:
		words = acquireScript.call(j, 2, &c.key, &c.fences, &c.token, &ttl, c.grain)
	default:
		words = acquireScript.call(j, 2, &c.key, &c.fences, &c.token, &ttl)
	}
	g, err := askToAcquire(j, words)
	if !c.fenced {
		g.fence = 0
	}
	if never := new(*undone); resent && errors.As(err, never) {
		err = (*never).err // the script was not carried out, but SET perhaps was
	}
	return g, err
}

// askToAcquire sends acquire.lua and reads what it answers.
func askToAcquire(j *job, words []any) (grant, error) {
	reply, _, err := j.send(acquireScript, words)
	if err != nil {
		return grant{}, err
	}
	switch reply := reply.(type) {
	case int64:
		return grant{fence: uint64(max(reply, -reply)), found: reply < 0}, nil
	case []any:
		if g, ok := readRefusal(reply); ok {
			return g, ErrNotAcquired
		}
	}
	return grant{}, oddReply("acquire.lua", reply)
}

// readRefusal reads what acquire.lua answers about a key that is held.
func readRefusal(fields []any) (g grant, ok bool) {
	left, ok := integer(fields, 0)
	if left >= 0 { // -1: it has no TTL
		g.left = max(milliseconds(left), time.Millisecond)
	}
	if !ok || len(fields) == 1 {
		return g, ok
	}
	var numbers [4]int64
	for i := range numbers {
		if numbers[i], ok = integer(fields, 2+i); !ok {
			return g, false
		}
	}
	g.holder, ok = fields[1].(string)
	g.fresh, g.head = numbers[0] == 1, numbers[1] == 1
	g.at = time.Duration(numbers[2])*time.Second + time.Duration(numbers[3])*time.Microsecond
	return g, ok
}

// extend makes the lock last.
func extend(j *job, c *claim) (grant, error) {
	ttl := c.ttl.Milliseconds()
	words := extendScript.call(j, 1, &c.key, &c.token, &ttl)
	if c.fenced {
		words = extendScript.call(j, 2, &c.key, &c.fences, &c.token, &ttl)
	}
	_, _, err := compared(j, "extend.lua", extendScript, words)
	return grant{}, err
}

// release deletes the lock, wherever no queue is kept.
func release(j *job, c *claim) (grant, error) {
	_, err := released(j, releaseScript.call(j, 1, &c.key, &c.token))
	return grant{}, err
}

// released sends release.lua and returns what it answers.
func released(j *job, words []any) (answer int64, err error) {
	answer, resent, err := compared(j, "release.lua", releaseScript, words)
	if resent && errors.Is(err, ErrLost) {
		err = nil // the send whose reply was lost has released it
	}
	return answer, err
}

// compared runs a script that acts where the token holds the key, and answers 0 elsewhere, which
// is ErrLost. It reports whether an earlier send may have been carried out.
func compared(j *job, name string, s *script, words []any) (answer int64, resent bool, err error) {
	reply, resent, err := j.send(s, words)
	answer, ok := reply.(int64)
	switch {
	case errors.Is(err, errOtherData):
		return 0, resent, ErrLost
	case err != nil:
		return 0, resent, err
	case !ok:
		return 0, resent, oddReply(name, reply)
	case answer == 0:
		return 0, resent, ErrLost
	}
	return answer, resent, nil
}

// inspect reads who holds the lock.
func inspect(j *job, c *claim) (grant, error) {
	reply, _, err := j.send(inspectScript, inspectScript.call(j, 3, &c.key, &c.fences, &c.queue))
	if err != nil {
		return grant{}, err
	}
	st, err := readStatus(reply)
	return grant{status: &st}, err
}

// readStatus reads what inspect.lua answers.
func readStatus(reply any) (Status, error) {
	fields, _ := reply.([]any)
	left, ok := integer(fields, 1)
	queued, counted := integer(fields, 3)
	if !ok || !counted {
		return Status{}, oddReply("inspect.lua", reply)
	}
	st := Status{Waiters: int(queued)}
	if counter, ok := fields[2].(string); ok {
		fence, err := strconv.ParseUint(counter, 10, 64)
		if err != nil {
			return Status{}, fmt.Errorf("the fence counter holds %q", counter)
		}
		st.Fence = fence
	}
	if token, ok := fields[0].(string); ok {
		st.Held, st.Token, st.TTL = true, token, milliseconds(left)
		if left < 0 {
			st.TTL = -1
		}
	}
	return st, nil
}

// longest is a century, so that sums of such times are none too long for a Duration.
const longest = 100 * 365 * 24 * time.Hour

// milliseconds returns n ms, or the longest time where that is less.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, longest.Milliseconds())) * time.Millisecond
}

// integer returns the integer at i of a reply, if there is one.
func integer(fields []any, i int) (int64, bool) {
	if i >= len(fields) {
		return 0, false
	}
	n, ok := fields[i].(int64)
	return n, ok
}

// oddReply is the error for a reply that a script of ours cannot have given.
func oddReply(script string, reply any) error {
	return fmt.Errorf("%s: cannot read the reply %v", script, reply)
}
