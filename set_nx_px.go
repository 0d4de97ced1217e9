package redlatch

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// claimTime is how long a waiter that was handed a lock has to claim its full TTL, as release.lua
// has it.
const claimTime = time.Second

// NewSetNXPX returns a Locker that keeps each lock as one key of one Redis:
//
//	acquire  SET key token NX PX ttl, in a script that mints a fence beside it
//	release  DEL key, if it still holds the token
//
// This is the pattern that the documentation of SET describes. It excludes as long as that Redis
// neither forgets nor fails over; [Lock.Fence] tells a resource which of two grants is the newer.
//
// client may be of any kind, also one made by AutoPipeline. Its retries and timeouts need no
// care: every command is bounded by [WithOpTimeout]. One whose ReadTimeout and WriteTimeout are not
// above that, or with ContextTimeoutEnabled, takes a third less time for a lock and its unlock,
// since most calls then need no goroutine. opts are the Locker's defaults.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	s := &setNXPX{node: newNode(client, mostJobs), cluster: spread(client)}
	s.pass = s.passOn
	if _, ring := client.(*redis.Ring); !ring { // its channels and its keys are on different nodes
		s.handover = newSubscription(client)
	}
	s.node.near = nearBy(client)
	return newEngine(s, opts)
}

// setNXPX keeps locks on one node.
type setNXPX struct {
	node     *node
	cluster  bool          // a key has its place in one of several nodes
	handover *subscription // nil: waiters poll
	pass     operation     // passOn
}

func (s *setNXPX) name() string { return "setnxpx" }

func (s *setNXPX) subscription() *subscription { return s.handover }

func (s *setNXPX) check(cfg *config) error {
	if cfg.serverTime {
		return invalid("WithServerTime: SetNXPX keeps no timestamps")
	}
	return s.checkReplicas(cfg)
}

func (s *setNXPX) checkKey(key string, _ *config) error {
	if s.cluster && !hasCompanions(key) {
		return invalid("key %q: a } without a hash tag leaves no room for its queue in its cluster slot", key)
	}
	return nil
}

func (s *setNXPX) acquire(ctx context.Context, c *claim) (grant, error) {
	undo := s.pass
	if c.chosen { // perhaps for a lock of before, which must stay
		undo = s.leave
	}
	if c.replicas > 0 {
		return s.node.start(ctx, confirmed(acquire), c.patient(), form{undo: undo}).wait(ctx)
	}
	return s.node.do(ctx, acquire, c, form{undo: undo})
}

func (s *setNXPX) extend(ctx context.Context, c *claim) error {
	if c.replicas > 0 {
		_, err := s.node.start(ctx, confirmed(extend), c.patient(), form{}).wait(ctx)
		return err
	}
	_, err := s.node.do(ctx, extend, c, form{})
	return err
}

func (s *setNXPX) release(ctx context.Context, c *claim) error {
	_, err := s.node.do(ctx, s.pass, c, form{last: true})
	return err
}

// passOn releases the lock to the next waiter, or deletes it.
func (s *setNXPX) passOn(ctx context.Context, n *node, c *claim) (grant, error) {
	if s.handover == nil {
		return release(ctx, n, c)
	}
	words := releaseScript.call(ctx, 3, &c.key, &c.fences, &c.queue, &c.token)
	switch {
	case s.cluster:
		words = append(words, &c.entry, "cluster")
	case c.entry != "":
		words = append(words, &c.entry)
	}
	answer, err := released(ctx, n, words)
	if answer < 0 {
		s.handover.degrade(&s.handover.unheard, errNoPublish)
	}
	return grant{}, err
}

// leave gives up a place in the queue, and nothing else.
func (s *setNXPX) leave(ctx context.Context, n *node, c *claim) (grant, error) {
	if c.entry == "" {
		return grant{}, nil
	}
	place := *c
	place.token = ""
	return s.passOn(ctx, n, &place)
}

var errNoPublish = errors.New("a waiter could not be told of its turn: PUBLISH is forbidden")

func (s *setNXPX) inspect(ctx context.Context, c *claim) (Status, error) {
	g, err := s.node.do(ctx, inspect, c, form{})
	if err != nil {
		return Status{}, err
	}
	return *g.status, nil
}

// acquire takes the lock in one round trip, unless it is taken and no fence is asked for.
func acquire(ctx context.Context, n *node, c *claim) (grant, error) {
	ttl := c.ttl.Milliseconds()
	if !c.fenced && !c.placed && c.replicas == 0 {
		reply, _, err := send(ctx, n, nil, append(blank(ctx), "set", &c.key, &c.token, "nx", "px", &ttl))
		if err != nil || reply != nil {
			return grant{}, err
		}
		// The key is taken, perhaps by this very token: the script tells.
	}
	var words []any
	switch {
	case c.entry != "":
		words = acquireScript.call(ctx, 3, &c.key, &c.fences, &c.queue, &c.token, &ttl, 1, &c.entry)
	case !c.fenced:
		words = acquireScript.call(ctx, 1, &c.key, &c.token, &ttl)
	case c.grain > 1:
		words = acquireScript.call(ctx, 2, &c.key, &c.fences, &c.token, &ttl, c.grain)
	default:
		words = acquireScript.call(ctx, 2, &c.key, &c.fences, &c.token, &ttl)
	}
	g, err := askToAcquire(ctx, n, words)
	if !c.fenced {
		g.fence = 0
	}
	return g, err
}

// askToAcquire sends acquire.lua and reads what it answers.
func askToAcquire(ctx context.Context, n *node, words []any) (grant, error) {
	reply, _, err := send(ctx, n, acquireScript, words)
	if err != nil {
		return grant{}, err
	}
	switch reply := reply.(type) {
	case int64:
		return grant{fence: uint64(reply)}, nil
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
		g.held = max(time.Duration(left)*time.Millisecond, time.Millisecond)
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

// undo returns what takes back an acquire of c: nothing where the caller chose the token, which
// may be that of the very lock it wants to recover.
func (c *claim) undo() operation {
	if c.chosen {
		return nil
	}
	return release
}

// extend makes the lock last.
func extend(ctx context.Context, n *node, c *claim) (grant, error) {
	ttl := c.ttl.Milliseconds()
	words := extendScript.call(ctx, 1, &c.key, &c.token, &ttl)
	if c.fenced {
		words = extendScript.call(ctx, 2, &c.key, &c.fences, &c.token, &ttl)
	}
	_, _, err := compared(ctx, n, "extend.lua", extendScript, words)
	return grant{}, err
}

// release deletes the lock, wherever no queue is kept.
func release(ctx context.Context, n *node, c *claim) (grant, error) {
	_, err := released(ctx, n, releaseScript.call(ctx, 1, &c.key, &c.token))
	return grant{}, err
}

// released sends release.lua and returns what it answers.
func released(ctx context.Context, n *node, words []any) (answer int64, err error) {
	answer, resent, err := compared(ctx, n, "release.lua", releaseScript, words)
	if resent && errors.Is(err, ErrLost) {
		err = nil // the send whose reply was lost has released it
	}
	return answer, err
}

// compared runs a script that acts where the token holds the key, and answers 0 elsewhere, which
// is ErrLost. It reports whether an earlier send may have been carried out.
func compared(ctx context.Context, n *node, name string, s *script, words []any) (answer int64, resent bool, err error) {
	reply, resent, err := send(ctx, n, s, words)
	answer, ok := reply.(int64)
	switch {
	case wrongType(err):
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
func inspect(ctx context.Context, n *node, c *claim) (grant, error) {
	reply, _, err := send(ctx, n, inspectScript, inspectScript.call(ctx, 3, &c.key, &c.fences, &c.queue))
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
		st.Held, st.Token, st.TTL = true, token, time.Duration(left)*time.Millisecond
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

// oddReply is the error for a reply that a script of ours cannot have given.
func oddReply(script string, reply any) error {
	return fmt.Errorf("%s: cannot read the reply %v", script, reply)
}
