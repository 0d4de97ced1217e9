package node

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

const (
	firstPause  = 4 * time.Millisecond   // before a resend; doubles, with jitter
	callPause   = 64 * time.Millisecond  // the longest before a resend of a call that somebody waits for
	waitedPause = 100 * time.Millisecond // the longest between rounds while somebody waits for a call, at first
	lastPause   = time.Second            // the longest of all

	slowsDown = 5 // the longest pause grows to the age of the illness divided by this

	atOnce = 10 * time.Millisecond // a connection that is refused within this costs the server little or nothing

	recently = time.Second   // for so long a call that gets through shows that others of its kind do
	goesOn   = 2 * lastPause // failures that are less than this apart are of one illness

	roundMost  = 16                   // calls that leave in one round, while the server is well
	roundEvery = 4 * time.Millisecond // for each of them, until the next round: at most 250 resends a second
	followers  = 4                    // parked calls that leave when one was carried out
)

// An illness decides when calls are sent to a server that fails. It reads no clock, and knows no
// call.
//
// A call that has failed is parked, and leaves in a round. If the failure is about the whole
// server, the server is ill: few calls leave in each round, and the pause between rounds doubles. The
// longest pause grows with the illness, to a second. So one that lasts gets few attempts, and those who wait
// are served within a second of its end. A call that comes after its end has the next round leave in time.
// While the client refuses calls itself, the pause stays short: go-redis looks once a second whether it can connect,
// and refuses calls until then without a connection. A long pause would come on top of that second.
// New calls are parked, too, unless a call of their kind was carried out since the server fell ill,
// and recently. So reads go on while writes are refused, and keys behind a proxy go on while one of
// its servers is away.
//
// A server is well again when it carries out a call that it has refused, or if nothing is parked.
// If it fails again soon, the illness goes on as it was.
type illness struct {
	ill     bool
	since   clock.Mono        // when it began
	failed  clock.Mono        // the newest failure that was about the whole server
	through [kinds]clock.Mono // when a call of each kind was last carried out
	free    bool              // the client refused that call itself, see atOnce
	pause   time.Duration     // before the next round
	last    clock.Mono        // when the newest round left
	round   clock.Mono        // when the next one may leave
}

// A kind is what a call does with a lock.
type kind int

const (
	keeps kind = iota // it extends a lease
	gives             // it gives a lock back
	asks              // anything else
	kinds
)

// jitter returns d, or up to a half more or less. random is from 0 to 1.
func jitter(d time.Duration, random float64) time.Duration {
	return d/2 + time.Duration(random*float64(d))
}

// fail notes a failure that is about the whole server. free says that no connection could be made, and that this was
// known at once.
func (i *illness) fail(free bool, now clock.Mono, random float64) {
	i.free = free
	if now.Sub(i.failed) > goesOn {
		i.since, i.pause = now, firstPause
	}
	i.failed = now
	if !i.ill {
		i.ill, i.last, i.round = true, now, now.Add(jitter(i.pause, random))
	}
}

// pass notes that a call of a kind was carried out, or that its answer was not about the whole
// server. refused says that the newest answer before was.
func (i *illness) pass(k kind, refused bool, now clock.Mono) {
	i.through[k] = now
	i.ill = i.ill && !refused
}

// hope brings the next rounds forward: a call that was parked has come through, so all may.
func (i *illness) hope(now clock.Mono) {
	i.pause, i.round = firstPause, min(i.round, now.Add(firstPause))
}

// parks reports whether a new call of a kind is parked.
func (i *illness) parks(k kind, now clock.Mono) bool {
	return i.ill && (i.through[k] <= i.since || now.Sub(i.through[k]) > recently)
}

// most returns the longest pause while somebody waits for a call.
func (i *illness) most(now clock.Mono) time.Duration {
	if i.free {
		return waitedPause
	}
	return min(max(waitedPause, now.Sub(i.since)/slowsDown), lastPause)
}

// hasten brings the next round forward: a call was parked that somebody waits for, or a new renewal, for which a
// second may be too long.
func (i *illness) hasten(renews bool, now clock.Mono) {
	most := i.most(now)
	if renews {
		most = waitedPause
	}
	if i.ill {
		i.round = min(i.round, i.last.Add(most))
	}
}

// hurry brings the next round forward for a call that was posted at a time, of which half has passed: if no round has
// left since, the server may be well again.
func (i *illness) hurry(posted, now clock.Mono) {
	if i.ill && i.last <= posted {
		i.round = min(i.round, max(now, i.last.Add(i.most(now)/2)))
	}
}

// leaves reports whether a call of a rank leaves in a round, in which some calls have left, and some
// of that rank. While the server is ill, all renewals leave that were not sent yet, and one new call
// of each other kind: it may get through. One that has failed leaves if there are none of these.
func (i *illness) leaves(rank, ofRank, all int) bool {
	switch {
	case !i.ill:
		return all < roundMost
	case rank == newKeeps:
		return true
	case rank < failedKeeps:
		return ofRank == 0
	}
	return all == 0
}

// left notes that a round has left, with a number of calls. waited says that somebody waits for one
// of them, or for one that is still parked.
func (i *illness) left(calls int, waited bool, now clock.Mono, random float64) {
	switch most := lastPause; {
	case calls == 0:
		i.ill, i.round = false, now
	case i.ill:
		if waited {
			most = i.most(now)
		}
		i.pause, i.last = min(2*i.pause, most), now
		i.round = now.Add(min(jitter(i.pause, random), lastPause))
	default:
		i.round = now.Add(time.Duration(calls) * roundEvery)
	}
}
