package redlatch

import (
	"math"

	"github.com/redis/go-redis/v9"
)

// NewSemaphore returns a Locker whose keys have up to limit holders at a time, on one Redis:
//
//	acquire  remove expired permits, then ZADD key expiry token if fewer than limit are held
//	release  ZREM key token, and hand the free permit to the first of the queue
//
// Each permit is a [Lock] with its own lease, renewal, loss, fence and Unlock. The algorithm is
// described in section 6.3 of Redis in Action, by Josiah Carlson: a sorted set of holders, ordered
// by expiry. Here it runs in Lua scripts and uses the clock of Redis instead of the clients'
// clocks. Free permits are granted in the order of arrival, as locks are: see [Locker]. The callers
// of a process wait for permits in up to limit lines, at most 16, so that they are granted side by
// side over a network too. Each limit of a key has its own lines, and costs Redis as much as
// another process. A permit whose holder crashed goes to the first of the queue when its TTL has
// passed. With a limit of 1 it is a lock, but it costs Redis a quarter to a half more than a lock
// of [NewSetNXPX] does.
//
// Each caller brings its own limit: it is granted a permit while fewer than its limit are held. So at
// most as many as the largest limit in use hold the key, and a limit can be changed in a rolling
// deploy. [WithLimit] gives a call another limit, such as the limit of a tenant. Nobody overtakes a
// caller whose limit is reached, unless its process has been silent for 3 s, for each of its lines.
//
// A semaphore has the guarantees and the limits of [NewSetNXPX]. If Redis loses data or fails over, it
// may grant all permits again while earlier holders still work. Fences grow with every grant, but a
// resource cannot refuse older ones, because up to limit holders are valid at a time. There is no
// semaphore on a quorum: each node would count only the permits that it granted itself, so two
// majorities could together grant more than limit.
//
// [Status] and [HeldError] name the holder whose lease ends first, and [Status.Holding] all of them. A
// key is either a lock or a semaphore: other strategies fail on it with WRONGTYPE. They also fail on a
// sorted set whose lowest score is not a time from 1998 to 2223.
//
// client may be of any kind; on a [redis.Ring] waiters poll. opts are the defaults of the Locker. The
// error is [ErrInvalid] for a nil client, a limit below 1 or above [math.MaxInt32], [WithoutQueue], or
// another option that cannot work.
func NewSemaphore(client redis.UniversalClient, limit int, opts ...Option) (Locker, error) {
	err := checkClient(client)
	if err == nil && !validLimit(limit) {
		err = invalid("limit %d: not from 1 to %d", limit, math.MaxInt32)
	}
	if err != nil {
		return nil, wrap("new semaphore", "", err)
	}
	s := newPermits(client, limit)
	s.limits = true
	return newEngine(s, traits{
		name: StrategySemaphore, clients: []redis.UniversalClient{client}, inbox: s.inbox, keeps: true, limit: limit,
	}, opts)
}

func validLimit(n int) bool { return n >= 1 && n <= math.MaxInt32 }

// mostLanes is how many lines of a process may wait for a key. A line asks for one permit in a
// round trip: with a single line, one caller more than there are permits would let all of them but
// a few lie idle.
const mostLanes = 16

// lanes returns how many lines the callers with cfg may have for a key.
func (t *traits) lanes(cfg *config) int {
	if t.permits(cfg) {
		return min(cfg.limit, mostLanes)
	}
	return 1
}

// newPermits returns a strategy whose keys have up to limit holders.
func newPermits(client redis.UniversalClient, limit int) *setNXPX {
	s := newSetNXPX(client, semaphoreScripts, "permits") // with another queue, no release of a lock hands out a permit
	s.limit = limit
	return s
}

var semaphoreScripts = scriptsOf("semaphore_")
