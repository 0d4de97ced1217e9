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

//go:embed release.lua lua
var files embed.FS

// source returns the text of a script. A line "-- include <file>" is replaced by the text of that file. What several
// scripts do is written once in this way, without a function, which would make a lock and unlock 2 to 6 % slower.
func source(file string) string {
	path := "lua/" + file
	if file == "release.lua" {
		path = file
	}
	text, err := files.ReadFile(path)
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
}

func newSingle(client redis.UniversalClient) single {
	return single{node: node.New(client), confirming: node.NewSlow(client), kind: kindOf(client)}
}

func (s *single) clients() []redis.UniversalClient { return []redis.UniversalClient{s.node.Client()} }

func (s *single) trouble(_ string, _ *target, since time.Duration) error {
	return silence(s.node, since)
}

// silence returns why a node has not answered since a time.
func silence(n *node.Node, since time.Duration) error {
	return &node.NoReply{Within: since.Round(time.Millisecond), Last: n.LastTrouble()}
}

// take sends the acquire c.
func (s *single) take(ctx context.Context, p *leaseParams, c *node.Call, done func(acquireReply, error)) {
	c = p.withReplicas(c)
	c.Done = func(r node.Reply) {
		got, err := s.readAcquire(r)
		got.resent = r.Resent
		done(got, p.confirmed(r, err))
	}
	s.send(ctx, &p.target, c)
}

// send posts c.
func (s *single) send(ctx context.Context, t *target, c *node.Call) {
	n := s.node
	if c.Then != nil {
		n = s.confirming
	}
	c.Timeout += t.timeout
	n.Post(ctx, c)
}

// readAcquire reads the replies of acquire.lua, semaphore_acquire.lua and quorum_acquire.lua. The fence is the number that they
// return.
func readAcquire(r node.Reply) (acquireReply, error) {
	if r.Err != nil {
		return acquireReply{}, r.Err
	}
	if fence, granted := r.Value.(int64); granted {
		return acquireReply{fence: uint64(fence)}, nil
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
	a.Fresh, a.First = n[0] == 1, n[1] == 1
	a.At = time.Duration(n[2])*time.Second + time.Duration(n[3])*time.Microsecond
	return a, count == 4
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

// keepMargin is how much longer a key is kept than it must be, so that the second release finds it.
const keepMargin = 100 * time.Millisecond

// released makes c a release, which is sent for longer.
func (p *releaseParams) released(c *node.Call) *node.Call {
	if p.keep > 0 {
		c.Append((p.keep + keepMargin).Milliseconds())
	}
	c.Insists = true
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
func integers(reply any, from int) (all [4]int64, count int) {
	fields, _ := reply.([]any)
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

// oddReply returns the error for a reply that no script of this package sends. The reply may hold a token.
func oddReply(reply any) error {
	return fmt.Errorf("unexpected reply of type %T", reply)
}
