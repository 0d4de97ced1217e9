package redlatch

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

// The algorithm, as the documentation of SETNX has it ("Design pattern: Locking with SETNX"):
//
//  1. SETNX lock <current Unix time + lock timeout + 1>. If it answers 1, the lock is acquired.
//  2. If it answers 0, GET lock. If the time in it has not passed, the lock is held: wait, then
//     start again.
//  3. If it has passed, GETSET lock <current Unix time + lock timeout + 1>. If that returns the
//     time that had passed, the lock is acquired. If not, another client was faster: start again.
//  4. DEL lock, but only after a check that the own time has not passed: the key may be somebody
//     else's by now.
//
// What the page gets wrong, and what is done about it here:
//   - The loser of step 3 has overwritten the winner's time. With a shorter timeout it makes the
//     winner's lock end under it. Here the ladder is one script, in which a loser writes nothing.
//     Clients in other languages still do it, so a lock that was taken over is looked at again.
//   - Two clients with one timeout write the same value within a second, so the value proves
//     nothing. Here two companions beside the key say who wrote it last (owner), and what (stamp).
//   - Step 4 looks first and deletes then, and another client can come between. Here it is one
//     script, which goes by the companions too.

var (
	//go:embed legacy_setnx.lua
	legacyAcquireSource string
	//go:embed legacy_extend.lua
	legacyExtendSource string
	//go:embed legacy_release.lua
	legacyReleaseSource string
	//go:embed legacy_inspect.lua
	legacyInspectSource string

	legacyAcquireScript = node.NewScript("legacy_setnx.lua", legacyAcquireSource)
	legacyExtendScript  = node.NewScript("legacy_extend.lua", legacyExtendSource)
	legacyReleaseScript = node.NewScript("legacy_release.lua", legacyReleaseSource)
	legacyInspectScript = node.NewScript("legacy_inspect.lua", legacyInspectSource)
)

const (
	// takeoverLook is when a lock that was taken over is looked at again: another client may have
	// seen the same time pass, and step 3 of its ladder then overwrites ours.
	takeoverLook = 400 * time.Millisecond

	// longestBlind is how long a waiter goes without a look, at most: a client of another language
	// tells nobody that it released.
	longestBlind = time.Second - time.Millisecond
)

// NewLegacySetNX returns a Locker that keeps each lock as one key of one Redis, which holds the
// Unix time, in seconds, when the lock ends:
//
//	acquire  SETNX key time, or GETSET key time where the time in it has passed
//	release  DEL key, if it still is ours and its time has not passed
//
// This is the pattern that the documentation of SETNX describes. Use it only beside clients that
// speak it already, which it excludes and which exclude it. Prefer [NewSetNXPX] everywhere else, and
// never use both on one key. It trusts that the clocks of all clients agree to within a second,
// see [WithServerTime], and that other clients do not pause between their commands.
//
// TTLs are rounded up to whole seconds, and a lock that nobody released is free a second or two
// after its TTL. There are no fences: [Lock.Fence] is 0.
//
// client may be of any kind. Its retries and timeouts need no care: every command is bounded by
// [WithOpTimeout]. opts are the Locker's defaults.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewLegacySetNX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new legacysetnx", "", err)
	}
	return newEngine(&legacySetNX{node: node.New(client), kind: kindOf(client)}, opts)
}

// legacySetNX keeps locks on one node.
type legacySetNX struct {
	node *node.Node
	kind kind
}

func (s *legacySetNX) name() string { return "legacysetnx" }

func (s *legacySetNX) check(cfg *config) error {
	if cfg.minHold > 0 {
		return invalid("WithMinHold(%v): %s counts whole seconds", cfg.minHold, s.name())
	}
	cfg.ttl = max(cfg.ttl, time.Duration(wholeSeconds(cfg.ttl))*time.Second)
	return refuseReplicas(s, cfg)
}

func (s *legacySetNX) place(prefix, key string) (place, error) {
	p := place{key: prefix + key}
	if s.kind == cluster {
		return p, checkSlot(p.key)
	}
	return p, nil
}

func (s *legacySetNX) acquire(ctx context.Context, p *acquireParams) (acquireReply, error) {
	c := legacyCall(legacyAcquireScript, &p.target, p.token, wholeSeconds(p.ttl), clock(&p.target))
	if !p.callerToken { // else it may be for a lock of before, which must stay
		c.Late = func(r node.Reply) {
			got, err := readLegacyAcquire(r)
			p.state.late(s.node, r, got, err, func() {
				p.state.undone.Store(true)
				s.node.Post(detached(ctx), legacyReleaseCall(&p.target))
			})
		}
	}
	return readLegacyAcquire(s.node.Do(ctx, c))
}

// readLegacyAcquire reads what legacy_setnx.lua answers.
func readLegacyAcquire(r node.Reply) (acquireReply, error) {
	if r.Err != nil {
		return acquireReply{}, r.Err
	}
	switch reply := r.Value.(type) {
	case int64:
		switch reply {
		case 1:
			return acquireReply{}, nil
		case 2:
			return acquireReply{recheckAfter: takeoverLook}, nil
		case 3: // it may have been taken over by a send whose reply was lost
			return acquireReply{recheckAfter: takeoverLook, alreadyHeld: true}, nil
		}
	case []any:
		if left, ok := integer(reply, 0); ok {
			return acquireReply{left: time.Duration(left) * time.Millisecond, lookWithin: longestBlind}, ErrNotAcquired
		}
	}
	return acquireReply{}, oddReply(r.Value)
}

func (s *legacySetNX) extend(ctx context.Context, p *extendParams) error {
	return s.lengthen(ctx, &p.target, p.ttl)
}

// adopt returns no fence: there are none.
func (s *legacySetNX) adopt(ctx context.Context, p *acquireParams) (uint64, error) {
	return 0, s.lengthen(ctx, &p.target, p.ttl)
}

// lengthen makes the lock last.
func (s *legacySetNX) lengthen(ctx context.Context, t *target, ttl time.Duration) error {
	c := legacyCall(legacyExtendScript, t, t.token, wholeSeconds(ttl), clock(t))
	_, err := compared(s.node.Do(ctx, c))
	return err
}

func (s *legacySetNX) release(ctx context.Context, p *releaseParams) (wanted bool, err error) {
	t := &p.target
	r := s.node.Do(ctx, legacyReleaseCall(t))
	answer, err := compared(r)
	switch {
	case answer < 0:
		return false, ErrLost // an earlier send, whose reply was lost, has not released it either
	case r.Resent && errors.Is(err, ErrLost):
		return false, nil // an earlier send, whose reply was lost, has released it
	}
	return false, err
}

func legacyReleaseCall(t *target) *node.Call {
	return t.persist(legacyCall(legacyReleaseScript, t, t.token, clock(t)), t.callerToken)
}

// inspect reads who holds the lock.
func (s *legacySetNX) inspect(ctx context.Context, t *target) (Status, error) {
	r := s.node.Do(ctx, legacyCall(legacyInspectScript, t, clock(t)))
	if r.Err != nil {
		return Status{}, r.Err
	}
	fields, _ := r.Value.([]any)
	left, ok := integer(fields, 0)
	if !ok || len(fields) != 2 {
		return Status{}, oddReply(r.Value)
	}
	st := Status{Held: left > 0, TTL: time.Duration(left) * time.Millisecond}
	st.Token, _ = fields[1].(string)
	return st, nil
}

// legacyCall calls a script with the lock and its two companions as keys.
func legacyCall(s *node.Script, t *target, args ...any) *node.Call {
	c := node.Eval(s, 3, &t.key, companion("owner", t.key), companion("stamp", t.key))
	c.Append(args...)
	c.Timeout = t.timeout
	return c
}

// clock returns the time by which a lock is judged, or "" for that of Redis. A command that is
// sent again, or travels for long, keeps it: by an earlier time less has passed, and what is
// written ends sooner, though not before the lease, which was counted from before that.
func clock(t *target) string {
	if t.serverTime {
		return ""
	}
	return strconv.FormatInt(time.Now().UnixMilli(), 10)
}

// wholeSeconds returns d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
