package redlatch

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
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

	legacyAcquireScript = newScript(legacyAcquireSource)
	legacyExtendScript  = newScript(legacyExtendSource)
	legacyReleaseScript = newScript(legacyReleaseSource)
	legacyInspectScript = newScript(legacyInspectSource)
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
// client may be of any kind, also one made by AutoPipeline. Its retries and timeouts need no
// care: every command is bounded by [WithOpTimeout]. opts are the Locker's defaults.
//
// The error is ErrInvalidOption for a nil client or an option that cannot work.
func NewLegacySetNX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new legacysetnx", "", err)
	}
	s := &legacySetNX{node: newNode(client, mostJobs), cluster: spread(client)}
	s.node.near = nearBy(client)
	return newEngine(s, opts)
}

// legacySetNX keeps locks on one node.
type legacySetNX struct {
	node    *node
	cluster bool // a key has its place in one of several nodes
}

func (s *legacySetNX) name() string { return "legacysetnx" }

func (s *legacySetNX) serves() special { return special{serverTime: true} }

func (s *legacySetNX) check(cfg *config) error {
	cfg.ttl = max(cfg.ttl, time.Duration(wholeSeconds(cfg.ttl))*time.Second)
	cfg.fenced = false
	return nil
}

func (s *legacySetNX) place(key string) (place, error) {
	return place{key: key}, checkSlot(key, s.cluster)
}

func (s *legacySetNX) acquire(ctx context.Context, c *claim) (grant, error) {
	undo := operation(legacyRelease)
	if c.chosen { // perhaps for a lock of before, which must stay
		undo = nil
	}
	return s.node.do(ctx, legacyAcquire, c, form{undo: undo})
}

func (s *legacySetNX) extend(ctx context.Context, c *claim) error {
	_, err := s.node.do(ctx, legacyExtend, c, form{})
	return err
}

func (s *legacySetNX) release(ctx context.Context, c *claim) error {
	_, err := s.node.do(ctx, legacyRelease, c, form{last: true})
	return err
}

func (s *legacySetNX) inspect(ctx context.Context, c *claim) (Status, error) {
	g, err := s.node.do(ctx, legacyInspect, c, form{})
	if err != nil {
		return Status{}, err
	}
	return *g.status, nil
}

// legacyAcquire climbs the ladder.
func legacyAcquire(j *job, c *claim) (grant, error) {
	words := legacyAcquireScript.legacyCall(j, c, c.token, wholeSeconds(c.ttl), clock(c))
	reply, _, err := j.send(legacyAcquireScript, words)
	if err != nil {
		return grant{}, err
	}
	switch reply := reply.(type) {
	case int64:
		switch reply {
		case 1:
			return grant{}, nil
		case 2:
			return grant{lookAt: takeoverLook}, nil
		case 3: // perhaps what was taken over when its reply was lost
			return grant{lookAt: takeoverLook, found: true}, nil
		}
	case []any:
		if left, ok := integer(reply, 0); ok {
			return grant{left: min(time.Duration(left)*time.Millisecond, longestBlind)}, ErrNotAcquired
		}
	}
	return grant{}, oddReply("legacy_setnx.lua", reply)
}

// legacyExtend makes the lock last.
func legacyExtend(j *job, c *claim) (grant, error) {
	words := legacyExtendScript.legacyCall(j, c, c.token, wholeSeconds(c.ttl), clock(c))
	_, _, err := compared(j, "legacy_extend.lua", legacyExtendScript, words)
	return grant{}, err
}

// legacyRelease deletes the lock.
func legacyRelease(j *job, c *claim) (grant, error) {
	words := legacyReleaseScript.legacyCall(j, c, c.token, clock(c))
	answer, resent, err := compared(j, "legacy_release.lua", legacyReleaseScript, words)
	switch {
	case answer < 0:
		err = ErrLost // the send whose reply was lost has not released it either
	case resent && errors.Is(err, ErrLost):
		err = nil // the send whose reply was lost has released it
	}
	return grant{}, err
}

// legacyInspect reads who holds the lock.
func legacyInspect(j *job, c *claim) (grant, error) {
	reply, _, err := j.send(legacyInspectScript, legacyInspectScript.legacyCall(j, c, clock(c)))
	if err != nil {
		return grant{}, err
	}
	fields, _ := reply.([]any)
	left, ok := integer(fields, 0)
	if !ok || len(fields) != 2 {
		return grant{}, oddReply("legacy_inspect.lua", reply)
	}
	st := Status{Held: left > 0, TTL: time.Duration(left) * time.Millisecond}
	st.Token, _ = fields[1].(string)
	return grant{status: &st}, nil
}

// legacyCall returns the words of an EVALSHA with the lock and its two companions as keys.
func (s *script) legacyCall(j *job, c *claim, args ...any) []any {
	return append(s.call(j, 3, &c.key, companion("owner", c.key), companion("stamp", c.key)), args...)
}

// clock returns the time by which a lock is judged, or "" for that of Redis. A command that is
// sent again, or travels for long, keeps it: by an earlier time less has passed, and what is
// written ends sooner, though not before the lease, which was counted from before that.
func clock(c *claim) string {
	if c.serverTime {
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
