package redlatch

import (
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
)

// The operations on one node: a call, and how its reply is read. SetNXPX and Semaphore send them to their only node.
// Redlock sends inspectCall to each of its nodes.

//go:embed *.lua
var files embed.FS

// source returns the text of a script. A line "-- include <file>" is replaced by the text of that file. What several
// scripts do is written once in this way, without a function, which would make a lock and unlock 2 to 6 % slower.
func source(file string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // no script has this name
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
			line = source(included)
		}
		b.WriteString(line)
	}
	return b.String()
}

func script(file string) *node.Script { return node.NewScript(source(file)) }

// scripts has the operations of a strategy.
type scripts struct{ acquire, extend, release, inspect *node.Script }

// adoptCall extends the lock and issues a fence. settings are further arguments of the script.
func adoptCall(script *node.Script, p *acquireParams, settings ...any) *node.Call {
	ttl := p.ttl.Milliseconds()
	c := node.Eval(script, 3, &p.key, &p.fences, &p.queue, &p.token, &ttl)
	c.Append(settings...)
	c.Timeout = p.timeout
	return c
}

// acquireCall takes the lock, or a place in its queue.
func acquireCall(script *node.Script, p *acquireParams, settings ...any) *node.Call {
	c := adoptCall(script, p, settings...)
	if p.want > 1 || p.entry != "" {
		c.Append(p.want)
	}
	if p.entry != "" {
		c.Append(&p.entry, p.waited.Microseconds())
	}
	if p.queued {
		c.Append("again")
	}
	return c
}

// readAcquire reads the replies of acquire.lua, quorum_acquire.lua and semaphore_acquire.lua.
func readAcquire(r node.Reply) (acquireReply, error) {
	if r.Err != nil {
		return acquireReply{}, r.Err
	}
	switch reply := r.Value.(type) {
	case int64:
		return acquireReply{fence: uint64(max(reply, -reply)), alreadyHeld: reply < 0}, nil
	case []any:
		if more, ok := integer(reply, 1); ok && len(reply) == 2 {
			fence, ok := integer(reply, 0)
			if !ok || more < 0 {
				break
			}
			return acquireReply{fence: uint64(max(fence, -fence)), more: int(more), alreadyHeld: fence < 0}, nil
		}
		if refusal, ok := readRefusal(reply); ok {
			return refusal, ErrNotAcquired
		}
	}
	return acquireReply{}, oddReply(r.Value)
}

// readRefusal reads the reply for a key that is held, or has expired while the script ran: miniredis does that.
func readRefusal(fields []any) (a acquireReply, ok bool) {
	left, ok := integer(fields, 0)
	if left != -1 { // -1: it has no TTL; -2: it is gone
		a.Left = max(clock.Milliseconds(left), time.Millisecond)
	}
	if ok && len(fields) > 1 && fields[1] != nil {
		a.Holder, ok = fields[1].(string)
	}
	if !ok || len(fields) <= 2 {
		return a, ok
	}
	var numbers [4]int64
	for i := range numbers {
		if numbers[i], ok = integer(fields, 2+i); !ok {
			return a, false
		}
	}
	a.Fresh, a.First = numbers[0] == 1, numbers[1] == 1
	a.Kept = isKeeper(a.Holder)
	a.Foreign = !a.Kept && !minted(a.Holder)
	a.At = time.Duration(numbers[2])*time.Second + time.Duration(numbers[3])*time.Microsecond
	handed, _ := integer(fields, 6)
	a.Handed = handed == 1
	return a, true
}

func extendCall(script *node.Script, t *target, ttl time.Duration, settings ...any) *node.Call {
	ms := ttl.Milliseconds()
	c := node.Eval(script, 1, &t.key, &t.token, &ms)
	c.Append(settings...)
	c.Timeout = t.timeout
	return c
}

// readExtend reads the replies of extend.lua, semaphore_extend.lua and quorum_extend.lua.
func readExtend(r node.Reply) (fence uint64, err error) {
	answer, err := compared(r)
	switch {
	case answer < 0:
		return 0, errTaken
	case errors.Is(err, errNotOurs):
		return 0, errDeleted
	}
	return uint64(answer), err
}

// released makes c a release: it continues without its caller. If the caller chose the token, it is not resent if an
// earlier send may have been carried out: a late copy would release the next lock with that token.
func (p *releaseParams) released(c *node.Call) *node.Call {
	if p.keeper != "" {
		c.Append(p.keeper)
	}
	if p.keep > 0 {
		c.Append(p.keep.Milliseconds())
	}
	c.Timeout, c.Persist, c.Once = p.timeout, true, p.callerToken
	return c
}

// passOnCall hands the lock to the first in the queue, or deletes it, or keeps it for some time.
func passOnCall(script *node.Script, p *releaseParams, settings ...any) *node.Call {
	c := node.Eval(script, 3, &p.key, &p.fences, &p.queue, &p.token)
	c.Append(settings...)
	if p.entry != "" || p.next != "" || p.keeper != "" {
		c.Append(p.entry)
	}
	if p.next != "" || p.keeper != "" {
		c.Append(p.next, p.waited.Microseconds())
	}
	return p.released(c)
}

// readPassOn reads the replies of release.lua and semaphore_release.lua. published is false if the lock was released, but
// nobody got it since PUBLISH is forbidden.
func readPassOn(r node.Reply) (got releaseReply, published bool, err error) {
	fields, _ := r.Value.([]any)
	if len(fields) == 0 || r.Err != nil {
		answer, err := readRelease(r)
		return got, answer >= 0, err
	}
	var numbers [5]int64
	for i := range fields {
		n, ok := integer(fields, i)
		if !ok || i >= len(numbers) || n < 0 && i > 0 {
			return got, true, oddReply(r.Value)
		}
		numbers[i] = n
	}
	if len(fields) < 3 {
		return got, true, oddReply(r.Value)
	}
	got.at = time.Duration(numbers[1])*time.Second + time.Duration(numbers[2])*time.Microsecond
	got.handed, got.fence, got.more = len(fields) == 5, uint64(numbers[3]), int(numbers[4])
	return got, numbers[0] >= 0, nil
}

func readRelease(r node.Reply) (answer int64, err error) {
	answer, err = compared(r)
	if r.Resent && errors.Is(err, ErrLost) {
		err = nil // an earlier send, whose reply was lost, may have released it
	}
	return answer, err
}

// compared reads the reply of a script that acts only if the token holds the key. The script answers 0 if it does
// not, which is ErrLost.
func compared(r node.Reply) (answer int64, err error) {
	answer, ok := r.Value.(int64)
	switch {
	case errors.Is(r.Err, node.ErrOtherData):
		return 0, errOverwritten
	case r.Err != nil:
		return 0, r.Err
	case !ok:
		return 0, oddReply(r.Value)
	case answer == 0:
		return 0, errNotOurs
	}
	return answer, nil
}

// Why the token does not hold the key.
var (
	errNotOurs     = fmt.Errorf("%w: the key is gone, or another owner has it", ErrLost)
	errDeleted     = fmt.Errorf("%w: the key is gone", ErrLost)
	errTaken       = fmt.Errorf("%w: another owner has the key", ErrLost)
	errOverwritten = fmt.Errorf("%w: the key holds something else", ErrLost)
)

func inspectCall(script *node.Script, t *target) *node.Call {
	keys := []any{&t.key, &t.queue}
	if t.queue == "" {
		keys = keys[:1]
	}
	c := node.Eval(script, len(keys), keys...)
	c.Timeout = t.timeout
	return c
}

// readInspect reads the replies of inspect.lua and semaphore_inspect.lua.
func readInspect(r node.Reply) (Status, error) {
	if r.Err != nil {
		return Status{}, r.Err
	}
	fields, _ := r.Value.([]any)
	left, ok := integer(fields, 1)
	queued, counted := integer(fields, 2)
	if !ok || !counted {
		return Status{}, oddReply(r.Value)
	}
	holders, _ := integer(fields, 3)
	st := Status{Waiters: int(queued), Holders: int(holders)}
	if token, ok := fields[0].(string); ok && left != -2 {
		st.Held, st.Token, st.TTL = true, token, clock.Milliseconds(left)
		if left < 0 {
			st.TTL = -1
		}
	}
	return st, nil
}

// integer returns the integer at i of a reply, if there is one.
func integer(fields []any, i int) (int64, bool) {
	if i >= len(fields) {
		return 0, false
	}
	n, ok := fields[i].(int64)
	return n, ok
}

// oddReply returns the error for a reply that no script of this package sends. The reply may hold a token.
func oddReply(reply any) error {
	return fmt.Errorf("unexpected reply of type %T", reply)
}
