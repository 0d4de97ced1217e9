package redlatch

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/wire"
)

// The algorithm, as the documentation of SETNX describes it ("Design pattern: Locking with SETNX"):
//
//  1. SETNX lock <current Unix time + lock timeout + 1>. If it answers 1, the lock is acquired.
//  2. If it answers 0, GET lock. If the time in it has not passed, the lock is held: wait, then
//     start again.
//  3. If it has passed, GETSET lock <current Unix time + lock timeout + 1>. If that returns the
//     time that had passed, the lock is acquired. If not, another client was faster: start again.
//  4. DEL lock, but only if the own time has not passed: the key may be another owner's by then.
//
// The page has three errors, which this strategy works around:
//
//  - The loser of step 3 has overwritten the winner's time. With a shorter timeout it makes the
//    winner's lock end early. Here the steps are one script, in which a loser writes nothing.
//    Clients in other languages still write, so a lock that was taken over is checked again.
//  - Two clients with the same timeout write the same value within a second, so the value proves
//    nothing. Here two companion keys say who wrote it last (owner), and what (stamp).
//  - Step 4 is a check and then a delete, and another client can acquire in between. Here it is one
//    script, which also checks the companions.

var legacyScripts = scriptsOf("legacy_")

// takeoverLook is when a lock that was taken over is checked again: another client may have seen
// the same time pass, and its step 3 then overwrites ours.
const takeoverLook = 400 * time.Millisecond

// NewLegacySetNX returns a Locker that keeps each lock as one key of one Redis. The key holds the
// Unix time, in seconds, when the lock ends:
//
//	acquire  SETNX key time, or GETSET key time if the time in it has passed
//	release  DEL key, if it is still ours and its time has not passed
//
// This is the pattern that the documentation of SETNX describes. Use it only alongside clients that
// already follow that pattern: it excludes them, and they exclude it. Prefer [NewSetNXPX] everywhere
// else, and never use both on one key.
//
// The time comes from Redis, the one clock of all redlatch clients. Clients of other libraries use
// their own clocks, which must be within a second of Redis's clock. NewLegacySetNX also trusts that
// they do not pause between their commands.
//
// It differs from the other strategies. TTLs are rounded up to whole seconds, and a lock that nobody
// released is free a second or two after its TTL. The key has no TTL in Redis: it stays when its time
// has passed. There are no fences: [Lock.Fence] is 0. Inspect names the holder only if it is a redlatch
// client. [HeldError] has an Owner only if the holder is a caller of this Locker. A process that waits
// polls at the intervals of [WithPollInterval], and when the time of the holder has passed, so
// [WithoutQueue] changes nothing. NewLegacySetNX returns [ErrInvalid] for [WithMinHold] and
// [WithReplicas].
//
// client may be of any kind. [WithOpTimeout] bounds every command. opts are the defaults of the
// Locker. The error is [ErrInvalid] for a nil client or an option that cannot work.
func NewLegacySetNX(client redis.UniversalClient, opts ...Option) (Locker, error) {
	if err := checkClient(client); err != nil {
		return nil, wrap("new legacysetnx", "", err)
	}
	s := &legacySetNX{newSingle(client)}
	s.command = legacyCommand
	return newEngine(s, traits{name: StrategyLegacySetNX, clients: []redis.UniversalClient{client}}, opts)
}

type legacySetNX struct{ single }

func (s *legacySetNX) adapt(cfg *config) error {
	if cfg.minHold > 0 {
		return invalid("WithMinHold(%v): legacysetnx does not support it", cfg.minHold)
	}
	cfg.ttl = max(cfg.ttl, time.Duration(wholeSeconds(cfg.ttl))*time.Second)
	return refuseBoth("legacysetnx", cfg)
}

func (s *legacySetNX) keyOf(prefix, key string) (string, error) {
	return prefix + key, s.kind.check(prefix, key)
}

func (*legacySetNX) wordsOf(_, name string) words { return words{key: name} }

// legacyCommand calls a script with the lock and its two companions as keys.
func legacyCommand(op op, p *params) (*node.Call, parse) {
	call := func(s *node.Script) *node.Call {
		return node.Eval(s, 3, p.at.key, wire.Companion("owner", p.lock), wire.Companion("stamp", p.lock))
	}
	var c *node.Call
	switch op {
	case toAcquire:
		c = call(legacyScripts.acquire)
		c.Append(&p.token, wholeSeconds(p.ttl))
		c.AppendLatest()
		return c, readLegacyAcquire
	case toExtend, toAdopt:
		c = call(legacyScripts.extend)
		c.Append(&p.token, wholeSeconds(p.ttl))
		return c, readLegacyExtend
	case toRelease:
		c = call(legacyScripts.release)
		c.Append(&p.token)
		return c, readLegacyRelease
	}
	return call(legacyScripts.inspect), readInspect
}

func readLegacyAcquire(r node.Reply) reply {
	got := readAcquire(r)
	if got.tick == 2 { // or an earlier send, whose reply was lost, may have taken it over
		got.recheckAfter = takeoverLook
	}
	got.tick = 0 // the number is none
	return got
}

func readLegacyExtend(r node.Reply) reply {
	_, err := compared(r)
	return reply{err: err}
}

func readLegacyRelease(r node.Reply) reply {
	answer, err := readRelease(r)
	if answer < 0 {
		err = ErrLost // no earlier send has released it
	}
	return reply{err: err}
}

// wholeSeconds returns d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
