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

// fenceMemory is how long, in milliseconds, a fence counter outlives its last use: 24 hours.
var fenceMemory = (24 * time.Hour).Milliseconds()

// NewSetNXPX returns a Locker that keeps each lock as one key of one Redis:
//
//	acquire  SET key token NX PX ttl, in a script that mints a fence beside it
//	release  DEL key, if it still holds the token
//
// This is the pattern that the documentation of SET describes. It excludes as long as that Redis
// neither forgets nor fails over; [Lock.Fence] tells a resource which of two grants is the newer.
//
// client may be of any kind, also one made by AutoPipeline. Its retries and timeouts need no
// care: every command is bounded by [WithOpTimeout]. opts are the Locker's defaults.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewSetNXPX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new setnxpx", "", err)
	}
	_, cluster := client.(*redis.ClusterClient)
	return newEngine(&setNXPX{node: newNode(client, mostJobs), cluster: cluster}, opts)
}

// setNXPX keeps locks on one node.
type setNXPX struct {
	node    *node
	cluster bool
}

func (s *setNXPX) name() string { return "setnxpx" }

func (s *setNXPX) check(cfg *config) error {
	if cfg.serverTime {
		return invalid("WithServerTime: SetNXPX keeps no timestamps")
	}
	return nil
}

func (s *setNXPX) checkKey(key string, cfg *config) error {
	if s.cluster && cfg.fenced && !hasCompanions(key) {
		return invalid("key %q: a } without a hash tag leaves no room for its fence in its cluster slot", key)
	}
	return nil
}

func (s *setNXPX) acquire(ctx context.Context, c *claim) (grant, error) {
	return s.node.do(ctx, acquire, c, form{undo: c.undo()})
}

func (s *setNXPX) extend(ctx context.Context, c *claim) error {
	_, err := s.node.do(ctx, extend, c, form{})
	return err
}

func (s *setNXPX) release(ctx context.Context, c *claim) error {
	_, err := s.node.do(ctx, release, c, form{last: true})
	return err
}

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
	if c.fenced {
		fence := companion("fence", c.key)
		return askToAcquire(ctx, n, acquireScript.call(2, &c.key, &fence, &c.token, &ttl, &fenceMemory, max(c.grain, 1)))
	}
	reply, _, err := send(ctx, n, nil, []any{"set", &c.key, &c.token, "nx", "px", &ttl})
	if err != nil || reply != nil {
		return grant{}, err
	}
	// The key is taken, perhaps by this very token: the script tells.
	g, err := askToAcquire(ctx, n, acquireScript.call(1, &c.key, &c.token, &ttl))
	g.fence = 0
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
		if left, ok := integer(reply, 0); ok {
			return grant{held: time.Duration(max(left, 0)) * time.Millisecond}, ErrNotAcquired
		}
	}
	return grant{}, oddReply("acquire.lua", reply)
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
	_, err := compared(ctx, n, "extend.lua", extendScript, extendScript.call(1, &c.key, &c.token, &ttl))
	return grant{}, err
}

// release deletes the lock.
func release(ctx context.Context, n *node, c *claim) (grant, error) {
	resent, err := compared(ctx, n, "release.lua", releaseScript, releaseScript.call(1, &c.key, &c.token))
	if resent && errors.Is(err, ErrLost) {
		err = nil // the send whose reply was lost has deleted it
	}
	return grant{}, err
}

// compared runs a script that acts where the token holds the key and answers 1, or 0 elsewhere,
// which is ErrLost. It reports whether an earlier send may have been carried out.
func compared(ctx context.Context, n *node, name string, s *script, words []any) (resent bool, err error) {
	reply, resent, err := send(ctx, n, s, words)
	switch {
	case wrongType(err):
		return resent, ErrLost
	case err != nil:
		return resent, err
	case reply == int64(1):
		return resent, nil
	case reply == int64(0):
		return resent, ErrLost
	}
	return resent, oddReply(name, reply)
}

// inspect reads who holds the lock.
func inspect(ctx context.Context, n *node, c *claim) (grant, error) {
	words := inspectScript.call(1, &c.key)
	if c.fenced {
		words = inspectScript.call(2, &c.key, companion("fence", c.key))
	}
	reply, _, err := send(ctx, n, inspectScript, words)
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
	if !ok || len(fields) != 3 {
		return Status{}, oddReply("inspect.lua", reply)
	}
	var st Status
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
