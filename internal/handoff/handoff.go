// Package handoff knows who in this process waits for which key, and which locks Redis hands to this process.
//
// A process here is one Locker of it: two Lockers share neither queue nor turns.
//
// A [Waitlist] has the waiters that queue in Redis. A waiter queues by the same script that tries to acquire the lock. A
// release grants the lock to the first waiter in the queue, for the TTL in its entry, and publishes that to the
// [Subscription] of its process.
//
// No waiter depends on a message. The first waiter of a process for a key looks at Redis from time to time, for all of
// them, and when the holder's lease may have ended. A look is the acquire again. It finds a free lock, keeps the place
// in the queue, and detects lost messages and a lost queue.
//
// A process without a subscription gets no messages, so its waiters poll. After a while they queue too, and their polls
// find the lock that was handed to them. [Turns] has waiters that poll and never queue, one at a time.
//
// The caller sends all commands but SUBSCRIBE and PING. Of commands the package sees only the [Refusal] of an acquire.
//
// Mutexes: Waitlist.mu before those of Subscription and departures. No command runs under one.
//
// Goroutines and timers:
//
//	started by         to                                ends                             awaited by
//	Subscription.Join  receive handovers                 seconds after the last waiter    nobody
//	Waitlist.deliver   give back a lock nobody wants     with the giving back             nobody
//	Waitlist.Found     check for a lost message (timer)  after messageDelay               nobody
//	Waitlist.Sleep     pause (timer)                     with the pause or ctx            its caller
//	Turns.Released     forget a key (timer)              after the pause                  nobody
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
	Foreign bool          // the holder may be a client that does not hand the lock on
	Kept    bool          // nobody holds the key: it was released, and is kept for some time
	At      time.Duration // the clock of Redis; 0: unknown

	// Of an acquire with an entry for the queue of a semaphore.
	Shared bool     // Holder is one of several, and nobody can overtake waiters
	Handed []string // tokens of this process that were handed permits
}

// entry returns the queue entry of a waiter: the TTL it wants, its process, a random number, and its token. A dash
// before the process says that it polls. The number distinguishes waiters with the same token, and keeps clients that
// cannot read the queue from forging a handover.
func entry(ttl time.Duration, polls bool, channel string, number uint64, token string) string {
	if polls {
		channel = "-" + channel
	}
	return strconv.FormatInt(ttl.Milliseconds(), 10) + " " + channel + " " + strconv.FormatUint(number, 10) + " " + token
}

// A Handover is the message of a release to the process of the waiter that was handed the lock.
type Handover struct {
	Fence uint64

	key     string
	entry   string        // of the waiter in the queue
	at      time.Duration // of the release, by the clock of Redis
	arrived clock.Instant // of the message
}

// parseHandover reads a message of a release. ok is false for any other message.
func parseHandover(message string) (h Handover, ok bool) {
	fields := strings.SplitN(message, " ", 5)
	if len(fields) != 5 {
		return h, false
	}
	var numbers [4]uint64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 53)
		if err != nil {
			return h, false
		}
		numbers[i] = n
	}
	seconds, micros, fence, length := numbers[0], numbers[1], numbers[2], numbers[3]
	rest := fields[4]
	if seconds > 1<<33 || micros > 999_999 || length > uint64(len(rest)) {
		return h, false
	}
	h = Handover{
		key: rest[length:], entry: rest[:length], Fence: fence,
		at: time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond,
	}
	return h, true
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
// lease begins at asked, which is before the waiter queued.
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
