package lease

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A core decides for one grant. It has a Config at first. Begin is called before all other methods
// but Reveal.
type core struct {
	*Config
	Passable bool // a line may pass the lock on

	phase   phase
	stage   stage
	why     Why
	flight  bool          // a renewal is in flight
	dropped bool          // nobody had a handle at the newest Tick
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

// Begin begins the lease of a request that was sent at start and answered before now. If length is
// shorter than Asked makes it, it is a claim. Unless check is 0, the lease is renewed or checked after
// that time at the latest.
func (l *core) Begin(start, now clock.Instant, length, check time.Duration) {
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

// Judge ends the lease if its time has passed. It reports whether the lease goes on.
func (l *core) Judge(now clock.Instant) bool {
	if l.phase == held && now.Since(l.start) >= l.length {
		l.phase, l.why = lost, l.expired()
	}
	return l.why == None
}

// expired returns why the lease was not renewed in time.
func (l *core) expired() Why {
	switch {
	case l.MaxHold > 0 && l.start.Since(l.granted)+l.length >= l.MaxHold:
		return MaxHold
	case !l.Renews:
		return Fixed
	case l.trouble != nil:
		return Failing
	case l.flight:
		return Silent
	case l.dropped:
		return Dropped
	}
	return Late
}

// End ends the lease with err, which the shell knows from elsewhere, unless it or the handle has
// ended.
func (l *core) End(s *Seat, handle int, err error) {
	if s.Holds(handle) {
		l.end(err)
	}
}

func (l *core) end(err error) {
	if l.phase == held {
		l.phase, l.why, l.trouble = lost, Gone, err
	}
}

// Ended returns why the lease ended, when it was extended last, and the error of Gone and Failing.
func (l *core) Ended() (why Why, start clock.Mono, err error) { return l.why, l.start.Mono, l.trouble }

// Young reports whether the lease may be passed on.
func (l *core) Young() bool { return l.stage == young }

// Settle says that somebody relies on the token, or on the end of the lease.
func (l *core) Settle() { l.stage = max(l.stage, settled) }

// Reveal says that others may know the token.
func (l *core) Reveal() { l.stage = shared }

// Left returns what is left of the lease, or 0 if it has ended.
func (l *core) Left(now clock.Instant) time.Duration {
	if l.why != None {
		return 0
	}
	return max(l.length-now.Since(l.start), 0)
}

// Until returns the end of the lease.
func (l *core) Until() clock.Mono { return l.start.Mono.Add(l.length) }

// Next returns the time until the next Tick: for a renewal or the end of the lease. inUse says that
// a handle is in use. The first Tick comes half-way to the renewal.
func (l *core) Next(now clock.Instant, inUse bool) time.Duration {
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

// Tick says that the time of Next has come. It reports whether to send a renewal.
func (l *core) Tick(now clock.Instant, inUse bool) (renew bool) {
	if l.phase == passing {
		return false
	}
	l.dropped = !inUse
	l.Judge(now)
	l.Settle()
	if l.phase != held || l.flight || !inUse || !l.due(now) {
		return false
	}
	l.flight = true
	return true
}

// Send returns the extension to send at now: that of a caller to ttl, or of one who leaves and keeps
// others out for keep, even beyond MaxHold. If both are 0, it is a renewal. The timeout is a part of
// what is left, so that several attempts fit. A claim is short, so its extension gets the rest of the
// claim, even if a caller has extended the lease meanwhile: Unlock waits for it.
func (l *core) Send(ttl, keep time.Duration, now clock.Instant) Extension {
	left := l.Left(now)
	x := Extension{Renewal: ttl == 0 && keep == 0, Start: now, TTL: ttl, Timeout: min(l.Timeout, max(left/4, leastTimeout))}
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

// Extended notes the outcome of an extension, which came before now. err is nil if it was done. gone
// says that the token does not hold the key. Otherwise the outcome is unknown, the lease stays as it
// was, and a renewal is repeated after a pause. random is in [0, 1). Extended reports whether the
// lease goes on.
func (l *core) Extended(x *Extension, now clock.Instant, err error, gone bool, random float64) bool {
	if l.why != None {
		return false
	}
	x.Again = l.trouble != nil
	if l.trouble = err; x.Renewal {
		l.flight = false
	}
	switch {
	case !l.Judge(now): // the outcome comes too late
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
	return l.why == None
}

// Expect says, before Begin, that one more handle will share the lease.
func (l *core) Expect() { l.seats++ }

// Join lets another handle share the lease, which must not be passed on. It reports false if the
// lease has ended, or has lasted for
//
//	min(5 ms, Asked / 100)
func (l *core) Join(now clock.Instant) bool {
	if now.Since(l.opened) >= min(joinLasts, l.Asked/joinShare) || !l.Judge(now) {
		return false
	}
	l.served = now
	l.seats++
	return true
}

// Unlock ends the handle of a seat, and says how to go on. Others are kept out for the time after,
// and for the rest of MinHold, which counts from the newest grant that this process has learned of,
// on the slower clock. keep is that time in whole milliseconds.
//
// The key is given back once: by the last handle to leave a lease that is held, or by the first
// after a loss. What keeps others out then is what any handle has asked for. So a handle that leaves
// before has nothing to send if the lease lasts until then.
func (l *core) Unlock(s *Seat, handle int, now clock.Instant, after time.Duration) (r Release, keep time.Duration) {
	if !s.Holds(handle) || s.state == unlocked {
		return Refuse, 0
	}
	if !l.Judge(now) {
		s.state = unlocked
		return l.give(now)
	}
	if !s.DropsMinHold {
		after = max(after, l.MinHold-now.AtLeast(l.served))
	}
	if after = wholeMilliseconds(after); after > 0 {
		l.keep = max(l.keep, now.Mono.Add(after))
	}
	switch {
	case l.seats > 0 && after > l.Left(now):
		s.state = left
		return Keep, after
	case l.seats > 0:
		s.state = left
		return l.Leave(now)
	case l.Passable && l.stage == young && after == 0:
		l.phase = passing
		s.handle++
		return Pass, 0
	}
	s.state = unlocked
	return l.give(now)
}

// Leave says that a handle has left the lease, after the extension that Keep asked for.
func (l *core) Leave(now clock.Instant) (Release, time.Duration) {
	if l.seats > 0 {
		l.seats--
		return Stay, 0
	}
	return l.give(now)
}

// give gives the key back.
func (l *core) give(now clock.Instant) (Release, time.Duration) {
	keep := wholeMilliseconds(l.keep.Sub(now.Mono))
	r := Give
	switch {
	case l.Judge(now):
		l.why = Unlocked
	case l.phase != lost, l.stage == shared:
		r, keep = GiveNothing, 0
	default:
		r = GiveIfThere
	}
	l.phase = released
	return r, keep
}

func wholeMilliseconds(d time.Duration) time.Duration {
	return max(d+time.Millisecond-1, 0).Truncate(time.Millisecond)
}

// Serve says that the line has passed the lock on. It returns the number of the next handle of a
// seat, which judges the lease itself.
func (l *core) Serve(s *Seat) int {
	l.phase = held
	return int(s.handle)
}

// NotPassed says that the line gives the lock back instead of passing it on.
func (l *core) NotPassed() { l.phase, l.why = released, Unlocked }
