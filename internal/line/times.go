package line

import "time"

const (
	// queuesAfter is how long a line polls before it queues if its process gets no messages: a lock
	// that is handed to it stays unused until the next poll, and its channel may open soon.
	queuesAfter = time.Second

	// turnLasts and turnShare bound the age at which a turn may still pass the lock on: a time, and
	// a part of the TTL.
	turnLasts = 5 * time.Millisecond
	turnShare = 100

	// hurry is how many times longer than the delay of a command somebody must be able to wait, for
	// the line to queue.
	hurry = 10
)

// A line in the queue looks at these intervals, which double: the first of the queue more often
// than the others.
const (
	shortestLook = 250 * time.Millisecond
	longestLook  = time.Second // of the first; the others look half as often, from longestLook on

	headStart = 100 * time.Millisecond // of the first, when a lease can have ended
)

// pause returns the time until the next look of a line in the queue, after a number of looks. left
// is what is left of the holder's lease, or 0 if that is unknown. The first of the queue looks when
// that can have ended, the others soon after it:
//
//	first:  min(250 ms · 2^looks, 1 s) + jitter, at most left + 1 ms
//	others: min(1 s · 2^looks, 2 s) + jitter, at most left + 100 ms, but 250 ms at least
//
// jitter is up to a quarter.
func pause(first bool, left time.Duration, looks int, random float64) time.Duration {
	shortest, longest, until := longestLook, 2*longestLook, max(left+headStart, shortestLook)
	if first {
		shortest, longest, until = shortestLook, longestLook, left+time.Millisecond
	}
	every := doubling(shortest, longest, looks)
	every += time.Duration(random * float64(every/4))
	if left > 0 {
		return min(every, until)
	}
	return every
}

// poll returns the time until the next attempt of a line that polls, after a number of attempts:
//
//	min(shortest · 2^(attempts−1), longest), of which half is random, at most left + 1 ms
func poll(attempts int, shortest, longest, left time.Duration, random float64) time.Duration {
	d := halfRandom(doubling(shortest, longest, attempts-1), random)
	if left > 0 {
		return min(d, left+time.Millisecond)
	}
	return d
}

// eager returns the longest pause of a line without a queue. It polls sooner if it has seen the key
// change hands more often, so that every process is served in the end. While a key stays with one
// holder, the pauses grow:
//
//	longest / (1 + moves/4) · 2^(stays / 16), at least shortest
func eager(moves, stays int, shortest, longest time.Duration) time.Duration {
	return min(max(4*(longest/(4+time.Duration(moves))), shortest)<<min(stays/16, 4), longest)
}

// doubled returns the next pause of a polling line that found the key taken. Such a line pauses after
// a turn, before it asks again. eased returns the next pause of one that found the key free.
func doubled(rest, shortest, longest time.Duration) time.Duration {
	return min(max(2*rest, shortest), longest)
}

func eased(rest, shortest time.Duration) time.Duration { return max(rest/2, shortest/2) }

// hurried reports whether the callers of a line are likely to leave before the queue serves them,
// so that the lock would be handed to nobody:
//
//	delay = took − idle
//	hurried if the line is not empty for less than 10 · delay, and all callers leave within 10 · delay
//
// took is how long an acquire takes at present, idle how long it takes when Redis is idle. The
// difference grows with the load, but not with the distance. A line that has not been empty for
// longer is likely to have new callers by then.
func hurried(filled, patience, took, idle time.Duration) bool {
	delay := hurry * (took - idle)
	return filled < delay && patience < delay
}

// doubling returns shortest · 2^times, at most longest.
func doubling(shortest, longest time.Duration, times int) time.Duration {
	for ; times > 0 && shortest < longest; times-- {
		shortest *= 2
	}
	return min(shortest, longest)
}

// halfRandom returns d less up to a half of it.
func halfRandom(d time.Duration, random float64) time.Duration {
	return d - time.Duration(random*float64(d/2))
}
