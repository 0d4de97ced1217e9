// Package handoff knows the entry of a line in the queue of Redis, and the locks that Redis hands to this process.
//
// A line has the callers of one process that wait for one key. It queues by the same script that tries to acquire the
// lock, or that releases it. A release grants the lock to the first entry in the queue, for the claim in that entry, and
// publishes the grant to the [Subscription] of its process. The new owner extends its claim to the TTL. A process that
// cannot do so costs the others a claim.
//
// No line depends on a message: see internal/line.
//
// The caller sends all commands but SUBSCRIBE and PING, and guards a Watch by a mutex of its own. Of commands the package
// sees only the [Refusal] of an acquire. No command runs under the mutex of a Subscription.
//
// The only goroutine is that of Subscription.Join. It receives grants, and ends within two seconds after the last user. Nobody waits
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
	Fresh bool          // the entry is new
	First bool          // the entry is the first
	At    time.Duration // the clock of Redis; 0: unknown
}

// These bound a claim: how long a lock that was handed over lasts unless its new owner extends it. It is shorter for an entry
// with a dash, since its process may be gone.
const (
	longestClaim  = 2 * time.Second
	uncertainLong = time.Second
)

// Claim returns the claim of an entry.
func Claim(dash bool) time.Duration {
	if dash {
		return uncertainLong
	}
	return longestClaim
}

// Entry returns the queue entry of a line: the claim that it wants, its process, and its token. A dash before the process
// says that PUBSUB NUMSUB does not say whether it listens.
func Entry(claim time.Duration, dash bool, channel, token string) string {
	if dash {
		channel = "-" + channel
	}
	return strconv.FormatInt(claim.Milliseconds(), 10) + " " + channel + " " + token
}

// A Grant is a lock that a release has handed to a line of this process.
type Grant struct {
	Token string
	Tick  uint64        // of its fences
	At    time.Duration // of the release, by the clock of Redis

	Arrived clock.Instant // when this process learned of it
}

// parseGrant reads a message of a release. ok is false for any other message.
func parseGrant(message string) (g Grant, ok bool) {
	fields := strings.SplitN(message, " ", 5)
	if len(fields) != 5 {
		return g, false
	}
	var numbers [4]uint64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 53)
		if err != nil {
			return g, false
		}
		numbers[i] = n
	}
	seconds, micros, tick, length := numbers[0], numbers[1], numbers[2], numbers[3]
	rest := fields[4]
	if seconds > 1<<33 || micros > 999_999 || tick >= 1<<47 || length > uint64(len(rest)) {
		return g, false
	}
	entry := strings.SplitN(rest[:length], " ", 3)
	if len(entry) != 3 {
		return g, false
	}
	at := time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
	return Grant{Token: entry[2], Tick: tick, At: at}, true
}

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
