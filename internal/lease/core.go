package lease

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A core decides for one grant. It has a Config at first. begin is called before all other methods
// but reveal and expect.
type core struct {
	*Config
	passable bool // a line may pass the lock on

	phase   phase
	stage   stage
	why     ending
	flight  bool          // a renewal is in flight
	dropped bool          // nobody had a handle at the newest tick
	claim   time.Duration // of a lock that was handed over and not extended yet; else 0
	seats   int           // whose handles have not left, beside the first
	keep    clock.Mono    // until when others are kept out, as handles that unlocked asked
	granted clock.Instant // when the acquire was sent
	opened  clock.Instant // when this process learned of the grant
	served  clock.Instant // when the newest handle got the lock
	start   clock.Instant // when the request was sent that set the end
	length  time.Duration // trusted from start until start + length
	renewed clock.Instant // when the newest renewal was sent, or when a claim began or a renewal failed
	renewAt time.Duration // when to renew or check, counted from renewed; 0: never
	doubted clock.Mono    // when the newest command was sent that has shown another holder; 0: none has
	trouble error         // of the newest extension; nil if it succeeded
}

// begin begins the lease of a request that was sent at start and answered before now. If length is
// shorter than Asked makes it, it is a claim. Unless check is 0, the lease is renewed or checked after
// that time at the latest.
func (l *core) begin(start, now clock.Instant, length, check time.Duration) {
	l.granted, l.start, l.opened, l.served = start, start, now, now
	l.prolong(start, length)
	l.renew(start)
	switch {
	case length < clock.Validity(l.Asked, l.Grace):
		l.claim, l.renewed, l.renewAt = length, now, claimLasts
	case check > 0 && (check < l.renewAt || !l.Renews):
		l.renewAt = check
	}
}

// prolong lets the lease last until start + length. It never shortens the lease and never passes
// MaxHold.
func (l *core) prolong(start clock.Instant, length time.Duration) {
	if l.MaxHold > 0 {
		length = min(length, l.MaxHold-start.Since(l.granted))
	}
	later := start.Since(l.start)
	if start.Mono.Before(l.start.Mono) { // the wall clock may have been set back since
		later = -l.start.Since(start)
	}
	if later+length > l.length {
		l.start, l.length = start, length
	}
}

// renew notes that a renewal was sent at start. However long the lease lasts, the next renewal comes
// soon, so that a deleted key is noticed.
func (l *core) renew(start clock.Instant) {
	l.renewed, l.renewAt = start, 0
	if l.Renews {
		l.renewAt = min(l.TTL/3, clock.Validity(l.TTL, l.Grace)/2)
	}
}

// judge ends the lease if its time has passed. It reports whether the lease goes on.
func (l *core) judge(now clock.Instant) bool {
	if l.phase == held && now.Since(l.start) >= l.length {
		l.phase, l.why = lost, l.expired()
	}
	return l.why == endNone
}

// expired returns why the lease was not renewed in time.
func (l *core) expired() ending {
	switch {
	case l.MaxHold > 0 && l.start.Since(l.granted)+l.length >= l.MaxHold:
		return endMaxHold
	case !l.Renews:
		return endFixed
	case l.trouble != nil:
		return endFailing
	case l.flight:
		return endSilent
	case l.dropped:
		return endDropped
	}
	return endLate
}

// endBy ends the lease with err, which the shell knows from elsewhere, unless it or the handle has
// ended.
func (l *core) endBy(s *seatCore, handle int, err error) {
	if s.holds(handle) {
		l.end(err)
	}
}

func (l *core) end(err error) {
	if l.phase == held {
		l.phase, l.why, l.trouble = lost, endGone, err
	}
}

// ended returns why the lease ended, when it was extended last, and the error of endGone and endFailing.
func (l *core) ended() (why ending, start clock.Mono, err error) {
	return l.why, l.start.Mono, l.trouble
}

// isYoung reports whether the lease may be passed on.
func (l *core) isYoung() bool { return l.stage == young }

// settle says that somebody relies on the token, or on the end of the lease.
func (l *core) settle() { l.stage = max(l.stage, settled) }

// reveal says that others may know the token.
func (l *core) reveal() { l.stage = shared }

// timeLeft returns what is left of the lease, or 0 if it has ended.
func (l *core) timeLeft(now clock.Instant) time.Duration {
	if l.why != endNone {
		return 0
	}
	return max(l.length-now.Since(l.start), 0)
}

// until returns the end of the lease.
func (l *core) until() clock.Mono { return l.start.Mono.Add(l.length) }

// next returns the time until the next tick: for a renewal or the end of the lease. inUse says that
// a handle is in use. The first tick comes half-way to the renewal.
func (l *core) next(now clock.Instant, inUse bool) time.Duration {
	if l.phase == passing {
		return passLasts
	}
	next := l.length - now.Since(l.start)
	switch {
	case l.flight, !inUse:
		return next
	case l.inDoubt():
		return 0
	case l.renewAt == 0:
		return next
	}
	at := l.renewAt
	if l.stage == young {
		at /= 2
	}
	return min(next, at-now.Since(l.renewed))
}

// tick says that the time of next has come. It reports whether to send a renewal.
func (l *core) tick(now clock.Instant, inUse bool) (renew bool) {
	if l.phase == passing {
		return false
	}
	l.dropped = !inUse
	l.judge(now)
	l.settle()
	if l.phase != held || l.flight || !inUse || !l.due(now) {
		return false
	}
	l.flight = true
	return true
}

// send returns the extension to send at now: that of a caller to ttl, or of one who leaves and keeps
// others out for keep, even beyond MaxHold. If both are 0, it is a renewal. The timeout is a part of
// what is left, so that several attempts fit. A claim is short, so its extension gets the rest of the
// claim, even if a caller has extended the lease meanwhile: Unlock waits for it.
func (l *core) send(ttl, keep time.Duration, now clock.Instant) Extension {
	left := l.timeLeft(now)
	x := Extension{
		Renewal: ttl == 0 && keep == 0, Start: now, TTL: ttl, Timeout: min(l.Timeout, max(left/4, leastTimeout)),
	}
	switch {
	case !x.Renewal:
	case l.claim > 0:
		x.TTL, x.Timeout = max(l.TTL, l.Asked), max(min(left, l.claim), leastTimeout)
	case l.Renews:
		x.TTL = l.TTL
	default:
		x.TTL = time.Millisecond // too short to move the end
	}
	if l.MaxHold > 0 {
		x.TTL = min(x.TTL, clock.TTLFor(l.MaxHold-now.Since(l.granted), l.Grace))
	}
	if keep > 0 {
		x.TTL = keep
	}
	// Else it may come after the end, or another handle has given the lock up.
	if left >= x.Timeout && l.stage != shared {
		x.Restore = max(x.TTL, clock.TTLFor(left, l.Grace))
	}
	return x
}

// extended notes the outcome of an extension, which came before now. err is nil if it was done. gone
// says that the token does not hold the key. Otherwise the outcome is unknown, the lease stays as it
// was, and a renewal is repeated after a pause. random is in [0, 1). It reports whether the
// lease goes on.
func (l *core) extended(x *Extension, now clock.Instant, err error, gone bool, random float64) bool {
	if l.why != endNone {
		return false
	}
	x.Again = l.trouble != nil
	if l.trouble = err; x.Renewal {
		l.flight = false
	}
	switch {
	case !l.judge(now): // the outcome comes too late
	case err == nil:
		l.prolong(x.Start, clock.Validity(x.TTL, l.Grace))
		if x.Renewal || x.TTL >= l.Asked {
			l.claim = 0
		}
		if x.Renewal {
			l.renew(x.Start)
		}
	case gone:
		l.end(err)
	case x.Renewal:
		most := min(x.Timeout, l.Timeout)
		l.renewed, l.renewAt = now, most/4+time.Duration(random*float64(most/2))
	}
	return l.why == endNone
}

// expect says, before begin, that one more handle will share the lease.
func (l *core) expect() { l.seats++ }

// join lets another handle share the lease, which must not be passed on. It reports false if the
// lease has ended, or has lasted for
//
//	min(5 ms, Asked / 100)
func (l *core) join(now clock.Instant) bool {
	if now.Since(l.opened) >= min(joinLasts, l.Asked/joinShare) || !l.judge(now) {
		return false
	}
	l.served = now
	l.seats++
	return true
}

// unlock ends the handle of a seat, and says how to go on. Others are kept out for the time after,
// and for the rest of MinHold, which counts from the newest grant that this process has learned of,
// on the slower clock. keep is that time in whole milliseconds.
//
// The key is given back once: by the last handle to leave a lease that is held, or by the first
// after a loss, unless others have a grace then. What keeps others out then is what any handle has asked for. So a handle that leaves
// before has nothing to send if the lease lasts until then.
func (l *core) unlock(s *seatCore, handle int, now clock.Instant, after time.Duration) (r release, keep time.Duration) {
	if !s.holds(handle) || s.state == unlocked {
		return refuse, 0
	}
	if !l.judge(now) {
		s.state = unlocked
		if l.phase == lost && l.seats > 0 && l.Grace > 0 { // others have the grace to stop
			l.seats--
			return stay, 0
		}
		return l.give(now)
	}
	if !s.dropsMinHold {
		after = max(after, l.MinHold-now.AtLeast(l.served))
	}
	if after = wholeMilliseconds(after); after > 0 {
		l.keep = max(l.keep, now.Mono.Add(after))
	}
	switch {
	case l.seats > 0 && after > l.timeLeft(now):
		s.state = left
		return keepOut, after
	case l.seats > 0:
		s.state = left
		return l.leave(now)
	case l.passable && l.stage == young && after == 0:
		l.phase = passing
		s.handle++
		return passOn, 0
	}
	s.state = unlocked
	return l.give(now)
}

// leave says that a handle has left the lease, after the extension that keepOut asked for.
func (l *core) leave(now clock.Instant) (release, time.Duration) {
	if l.seats > 0 {
		l.seats--
		return stay, 0
	}
	return l.give(now)
}

// give gives the key back.
func (l *core) give(now clock.Instant) (release, time.Duration) {
	keep := wholeMilliseconds(l.keep.Sub(now.Mono))
	r := giveBack
	switch {
	case l.judge(now):
		l.why = endUnlocked
	case l.phase != lost, l.stage == shared:
		r, keep = giveNothing, 0
	default:
		r = giveIfThere
	}
	l.phase = released
	return r, keep
}

func wholeMilliseconds(d time.Duration) time.Duration {
	return max(d+time.Millisecond-1, 0).Truncate(time.Millisecond)
}

// serve says that the line has passed the lock on. It returns the number of the next handle of a
// seat, which judges the lease itself.
func (l *core) serve(s *seatCore) int {
	l.phase = held
	return int(s.handle)
}

// notPassed says that the line gives the lock back instead of passing it on.
func (l *core) notPassed() { l.phase, l.why = released, endUnlocked }
