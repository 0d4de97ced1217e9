package redlatch

import (
	_ "embed" // for release.lua
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lua"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

//go:embed release.lua
var releaseText string

// scripts has the operations of a strategy.
type scripts struct{ acquire, extend, release, inspect *node.Script }

// scriptsOf returns the scripts whose files begin with kind.
func scriptsOf(kind string) scripts {
	return scripts{
		script(kind + "acquire.lua"), script(kind + "extend.lua"), script(kind + "release.lua"),
		script(kind + "inspect.lua"),
	}
}

func script(file string) *node.Script {
	if file == "release.lua" {
		return lua.ScriptOf(file, releaseText)
	}
	return lua.Script(file)
}

// readAcquire reads the replies of the scripts that acquire.
func readAcquire(r node.Reply) reply {
	if r.Err != nil {
		return reply{err: r.Err}
	}
	if tick, granted := r.Value.(int64); granted {
		return reply{tick: uint64(max(tick, -tick)), newEntry: tick < 0}
	}
	if added, more := leavesMore(r.Value); more {
		return reply{err: ErrNotAcquired, again: true, newEntry: added == int64(1), left: time.Millisecond, first: true}
	}
	return readRefusal(r.Value)
}

// leavesMore reads the reply of a script that has done its most: {"more", rest}.
func leavesMore(value any) (rest any, more bool) {
	if fields, _ := value.([]any); len(fields) == 2 && fields[0] == "more" {
		return fields[1], true
	}
	return value, false
}

// readBeside reads the reply to an acquire that needs the permit of another token. It is 0 if that
// has none.
func readBeside(r node.Reply) reply {
	if r.Err == nil && r.Value == int64(0) {
		return reply{err: errNotOurs}
	}
	return readAcquire(r)
}

// readRefusal reads the reply for a key that is held, or has expired while the script ran:
// miniredis does that.
func readRefusal(value any) reply {
	got, odd := reply{err: ErrNotAcquired}, reply{err: oddReply(value)}
	fields, _ := value.([]any)
	if len(fields) == 0 {
		return odd
	}
	left, ok := fields[0].(int64)
	if left != -1 { // -1: it has no TTL; -2: it is gone
		got.left = max(clock.Milliseconds(left), time.Millisecond)
	}
	if ok && len(fields) > 1 && fields[1] != nil {
		got.holder, ok = fields[1].(string)
	}
	if ok && len(fields) > 2 {
		n, count := integers(value, 2)
		got.newEntry, got.first, ok = n[0] == 1, n[1] == 1, count == 4
		got.at = clock.RedisAt(n[2], n[3])
	}
	if !ok {
		return odd
	}
	return got
}

// readExtend reads the replies of extend.lua, semaphore_extend.lua and quorum_extend.lua.
func readExtend(r node.Reply) reply {
	answer, err := compared(r)
	switch {
	case answer < 0:
		return reply{err: errTaken}
	case errors.Is(err, errNotOurs):
		return reply{err: errDeleted}
	}
	return reply{tick: uint64(answer), err: err}
}

// keeping adds the time for which a release keeps others out. A second send finds what the first
// has left then.
func keeping(c *node.Call, p *params, read parse) (*node.Call, parse) {
	if p.keep == 0 {
		return c, read
	}
	c.KeepsFrom()
	c.Append(p.keep.Milliseconds())
	return c, func(r node.Reply) reply {
		if r.Value == int64(keptBefore) && !r.Resent { // by another handle
			return reply{err: errNotOurs}
		}
		r.Resent = r.Resent && p.keep < p.timeout
		return read(r)
	}
}

// keptBefore is the answer to a release that was to keep the key, and finds it kept for its token.
const keptBefore = 3

func readRelease(r node.Reply) (answer int64, err error) {
	answer, err = compared(r)
	if r.Resent && errors.Is(err, ErrLost) {
		err = nil // an earlier send, whose reply was lost, may have released it
	}
	return answer, err
}

// compared reads the reply of a script that acts only if the token holds the key. The script
// answers 0 if it does not, which is ErrLost.
func compared(r node.Reply) (answer int64, err error) {
	answer, ok := r.Value.(int64)
	switch err = r.Err; {
	case errors.Is(err, rediserr.ErrOtherData):
		err = errOverwritten
	case err == nil && !ok:
		err = oddReply(r.Value)
	case err == nil && answer == 0:
		err = errNotOurs
	}
	return answer, err
}

// Why the token does not hold the key.
var (
	errNotOurs     = fmt.Errorf("%w: the key is gone (expired, deleted or evicted), or another owner has it", ErrLost)
	errDeleted     = fmt.Errorf("%w: the key is gone: expired, deleted or evicted", ErrLost)
	errTaken       = fmt.Errorf("%w: another owner has the key", ErrLost)
	errOverwritten = fmt.Errorf("%w: the key holds something else", ErrLost)
)

// readInspect reads the replies of the scripts that inspect.
func readInspect(r node.Reply) reply {
	if r.Err != nil {
		return reply{err: r.Err}
	}
	fields, _ := r.Value.([]any)
	var members any // of a semaphore
	if len(fields) > 5 {
		fields, members = fields[:5], fields[5]
	}
	n, count := integers(fields, 2)
	if count < 2 {
		return reply{err: oddReply(r.Value)}
	}
	left := n[0]
	holding, kept := readMembers(members)
	st := Status{Waiters: int(n[1]), Holders: int(n[2]), Queue: readQueue(fields[1]), Holding: holding}
	if token, ok := fields[0].(string); ok && left != -2 {
		st.Held, st.Token, st.TTL = true, Token(token), clock.Milliseconds(left)
	}
	return reply{seen: &inspection{st, kept}}
}

// readMembers reads the tokens of a semaphore, each followed by what is left in ms: those that hold a
// permit, and the values that keep one.
func readMembers(value any) (holding []Holder, kept []string) {
	fields, _ := value.([]any)
	for pair := range slices.Chunk(fields, 2) {
		token, _ := pair[0].(string)
		left, ok := pair[len(pair)-1].(int64)
		switch h := wire.Parse(token); {
		case !ok:
		case h.Kept:
			kept = append(kept, token)
		default:
			holding = append(holding, Holder{
				Owner: h.Owner, Token: Token(token), Since: h.MadeAt, TTL: clock.Milliseconds(left), Writes: h.Writes,
			})
		}
	}
	slices.SortStableFunc(holding, func(a, b Holder) int { return a.Since.Compare(b.Since) })
	return holding, kept
}

// readQueue reads entries, each followed by how long it has waited, in µs.
func readQueue(value any) (queue []Waiter) {
	fields, _ := value.([]any)
	for pair := range slices.Chunk(fields, 2) {
		entry, _ := pair[0].(string)
		micros, ok := pair[len(pair)-1].(int64)
		if ok {
			waited := max(time.Duration(micros)*time.Microsecond, 0)
			queue = append(queue, Waiter{wire.Parse(wire.TokenOf(entry)).Owner, waited})
		}
	}
	return queue
}

// integers returns the fields of a reply from one on, and how many they are; none if there is
// anything but integers.
func integers(value any, from int) (all [4]int64, count int) {
	fields, _ := value.([]any)
	for i := from; i < len(fields); i++ {
		n, ok := fields[i].(int64)
		if !ok || i-from >= len(all) {
			return [4]int64{}, 0
		}
		all[i-from] = n
		count++
	}
	return all, count
}

// oddReply returns the error for a reply that no script of this package sends: that of a proxy in
// trouble. The reply may hold a token.
func oddReply(value any) error { return outage{fmt.Errorf("unexpected reply of type %T", value)} }
