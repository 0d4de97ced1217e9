package redlatch

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
)

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

// A single is a strategy on one Redis. SetNXPX, Semaphore and LegacySetNX are singles with scripts of their own.
type single struct {
	node       *node.Node
	confirming *node.Node // for commands that wait for replicas
	kind       kind
	limit      int // of a semaphore; else 0

	readAcquire func(r node.Reply) (acquireReply, error)
	undoCall    func(p *releaseParams) *node.Call // the release of a late acquire
}

func newSingle(client redis.UniversalClient) single {
	return single{node: node.New(client), confirming: node.NewSlow(client), kind: kindOf(client)}
}

func (s *single) clients() []redis.UniversalClient { return []redis.UniversalClient{s.node.Client()} }

// take sends the acquire c.
func (s *single) take(ctx context.Context, p *leaseParams, c *node.Call) (acquireReply, error) {
	c.Late = func(r node.Reply) { s.late(ctx, p, r) }
	r := s.send(ctx, &p.target, p.withReplicas(c))
	got, err := s.readAcquire(r)
	got.Shared, got.resent = s.limit > 0, r.Resent
	return got, p.confirmed(r, err)
}

// late handles an acquire that was carried out late: the state of the attempt decides whether the lock is released or
// handed on, or whether only its entry leaves the queue.
func (s *single) late(ctx context.Context, p *leaseParams, r node.Reply) {
	got, err := s.readAcquire(r)
	if p.entry != "" && errors.Is(err, ErrNotAcquired) {
		err = errQueued
	}
	p.late(s.node, r, got, err, func() {
		release := &releaseParams{target: &p.target, entry: p.entry}
		if errors.Is(err, errQueued) && (p.state.is(held) || p.state.is(lost) || p.state.is(kept)) {
			release.target = p.withoutToken() // it holds the key, may have been adopted, or keeps the key: only the entry goes
		} else {
			p.state.undone.Store(true)
		}
		c := s.undoCall(release)
		c.Timeout = p.timeout
		s.node.Post(detached(ctx), c)
	})
}

// errQueued is the outcome of an acquire that was refused but has left an entry in the queue.
var errQueued = errors.New("queued")

// send runs c. The answer that others use the key with another limit becomes ErrInvalidOption.
func (s *single) send(ctx context.Context, t *target, c *node.Call) node.Reply {
	n := s.node
	if c.Then != nil {
		n = s.confirming
	}
	c.Timeout += t.timeout
	r := n.Do(ctx, c)
	if s.limit > 0 && node.Answered(r.Err) {
		if theirs, other := strings.CutPrefix(r.Err.Error(), "LIMIT "); other {
			r.Err = invalid("limit %d: the holders of %q have limit %s", s.limit, t.key, theirs)
		}
	}
	return r
}

// readAcquire reads the replies of acquire.lua, quorum_acquire.lua and semaphore_acquire.lua.
func readAcquire(r node.Reply) (acquireReply, error) {
	if r.Err != nil {
		return acquireReply{}, r.Err
	}
	n, count := integers(r.Value, 0)
	if fence, alone := r.Value.(int64); alone {
		n[0], count = fence, 2
	}
	if count == 2 && n[1] >= 0 {
		return acquireReply{fence: uint64(max(n[0], -n[0])), more: int(n[1]), alreadyHeld: n[0] < 0}, nil
	}
	if refusal, ok := readRefusal(r.Value); ok {
		return refusal, ErrNotAcquired
	}
	return acquireReply{}, oddReply(r.Value)
}

// readRefusal reads the reply for a key that is held, or has expired while the script ran: miniredis does that.
func readRefusal(reply any) (a acquireReply, ok bool) {
	fields, _ := reply.([]any)
	if len(fields) == 0 {
		return a, false
	}
	left, ok := fields[0].(int64)
	if left != -1 { // -1: it has no TTL; -2: it is gone
		a.Left = max(clock.Milliseconds(left), time.Millisecond)
	}
	if ok && len(fields) > 1 && fields[1] != nil {
		a.Holder, ok = fields[1].(string)
	}
	if !ok || len(fields) <= 2 {
		return a, ok
	}
	n, count := integers(reply, 2)
	a.Fresh, a.First, a.Handed = n[0] == 1, n[1] == 1, n[4] == 1
	a.At = time.Duration(n[2])*time.Second + time.Duration(n[3])*time.Microsecond
	a.Kept = isKeeper(a.Holder)
	a.Foreign = !a.Kept && !minted(a.Holder)
	return a, count >= 4
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
	c.OutlivesCaller, c.NoResend = true, p.callerToken
	return c
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

// inspectCall reads who holds the lock, on the node of SetNXPX or on one of Redlock.
func inspectCall(t *target) *node.Call {
	keys := []any{&t.key, &t.queue}
	if t.queue == "" {
		keys = keys[:1]
	}
	return node.Eval(lockScripts.inspect, len(keys), keys...)
}

// readInspect reads the replies of inspect.lua and semaphore_inspect.lua.
func readInspect(r node.Reply) (Status, error) {
	if r.Err != nil {
		return Status{}, r.Err
	}
	n, count := integers(r.Value, 1)
	if count < 2 {
		return Status{}, oddReply(r.Value)
	}
	left := n[0]
	st := Status{Waiters: int(n[1]), Holders: int(n[2])}
	if token, ok := r.Value.([]any)[0].(string); ok && left != -2 {
		st.Held, st.Token, st.TTL = true, token, clock.Milliseconds(left)
		if left < 0 {
			st.TTL = -1
		}
	}
	return st, nil
}

// integers returns the fields of a reply from one on, and how many they are; none if there is anything but integers.
func integers(reply any, from int) (all [5]int64, count int) {
	fields, _ := reply.([]any)
	for i := from; i < len(fields); i++ {
		n, ok := fields[i].(int64)
		if !ok || i-from >= len(all) {
			return [5]int64{}, 0
		}
		all[i-from] = n
		count++
	}
	return all, count
}

// oddReply returns the error for a reply that no script of this package sends. The reply may hold a token.
func oddReply(reply any) error {
	return fmt.Errorf("unexpected reply of type %T", reply)
}
