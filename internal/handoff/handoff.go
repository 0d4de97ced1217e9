// Package handoff knows the entry of a line in the queue of Redis, and the locks that Redis hands to this process.
//
// A line has the callers of one process that wait for one key. It queues by the same script that tries to acquire the
// lock, or that releases it. A release grants the lock to the first entry in the queue, for the TTL in that entry, and
// publishes the grant to the [Subscription] of its process.
//
// No line depends on a message. A [Watch] says when to look at Redis: from time to time, and when the holder's lease may
// have ended. A look is the acquire again. It finds a free lock, keeps the place in the queue, and detects lost messages
// and a lost queue. A line whose process gets no messages polls.
//
// The caller sends all commands but SUBSCRIBE and PING, and guards a Watch by a mutex of its own. Of commands the package
// sees only the [Refusal] of an acquire. No command runs under the mutex of a Subscription.
//
// The only goroutine is that of Subscription.Join. It receives grants, and ends seconds after the last user. Nobody waits
// for it.
package handoff

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Refusal is what a refused acquire says about the key.
type Refusal struct {
	Left   time.Duration // what is left of the holder's lease; 0 when unknown
	Holder string        // the token that has the key; empty when unknown

	// Of an acquire with an entry for the queue.
	Fresh   bool          // the entry is new
	First   bool          // the entry is the first
	Handed  bool          // the holder was handed the lock by the queue
	Foreign bool          // the holder may be a client that does not hand the lock on
	Kept    bool          // nobody holds the key: it was released, and is kept for some time
	Shared  bool          // Holder is one of several, and nobody can overtake the queue
	At      time.Duration // the clock of Redis; 0: unknown
}

// Entry returns the queue entry of a line: the TTL that it wants, its process, and its token. A dash before the process
// says that it polls.
func Entry(ttl time.Duration, polls bool, channel, token string) string {
	if polls {
		channel = "-" + channel
	}
	return strconv.FormatInt(ttl.Milliseconds(), 10) + " " + channel + " " + token
}

// A Grant is a lock that a release has handed to a line of this process.
type Grant struct {
	Token string
	Fence uint64
	More  int           // how many fences follow
	At    time.Duration // of the release, by the clock of Redis

	Arrived clock.Instant // when this process learned of it
}

// parseGrant reads a message of a release. ok is false for any other message.
func parseGrant(message string) (g Grant, ok bool) {
	fields := strings.SplitN(message, " ", 6)
	if len(fields) != 6 {
		return g, false
	}
	var numbers [5]uint64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 53)
		if err != nil {
			return g, false
		}
		numbers[i] = n
	}
	seconds, micros, fence, more, length := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	rest := fields[5]
	if seconds > 1<<33 || micros > 999_999 || more > mostFences || length > uint64(len(rest)) {
		return g, false
	}
	entry := strings.SplitN(rest[:length], " ", 3)
	if len(entry) != 3 {
		return g, false
	}
	at := time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
	return Grant{Token: entry[2], Fence: fence, More: int(more), At: at}, true
}

// mostFences is more than any release mints.
const mostFences = 1 << 16

// handedAt returns when a lease began that Redis granted at the time at of its own clock. The message arrived at
// arrived. Another command, sent at asked, returned the time redis of that clock. So Redis read that clock after asked,
// and the message took no longer than the time since asked here, less the time since redis there:
//
//	age = (arrived − asked) − (at − redis) × (1 − drift), at least 0
//	start = arrived − age
//
// If the other command was carried out later than the release, at − redis is negative, and counts × (1 + drift).
//
// Only the rates of the two clocks matter, not their settings. If no command returned the time (redis is 0), the
// lease begins at asked, which is before the line queued.
func handedAt(arrived, asked clock.Instant, redis, at time.Duration, drift float64) clock.Instant {
	age := arrived.Since(asked)
	if redis != 0 {
		there := float64(at - redis)
		if there > 0 {
			there *= 1 - drift
		} else {
			there *= 1 + drift
		}
		age -= time.Duration(there)
	}
	age = max(age, 0)
	return clock.Instant{Mono: arrived.Mono.Add(-age), Wall: arrived.Wall - age}
}
