package lease

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Lease decides for one grant. It has a Config at first. Begin is called before all other methods
// but Share.
type Lease struct {
	*Config
	Passes bool // a line may pass the lock on

	phase   phase
	stage   stage
	why     Why
	flight  bool          // a renewal is in flight
	claim   bool          // the lock was handed over, and is to be extended from its claim
	open    bool          // Unlock keeps nobody out: MinHold does not count
	handle  int           // the number of the handle, or of the next one
	granted clock.Instant // when the acquire was sent
	replied clock.Instant // when this process learned of the grant
	start   clock.Instant // when the request was sent that set the end
	length  time.Duration // trusted from start until start + length
	renewed clock.Instant // when the newest renewal was sent, or when a claim began or a renewal failed
	renewAt time.Duration // when to renew or check, counted from renewed; 0: never
	trouble error         // of the newest extension; nil if it succeeded
}

// Begin begins the lease of a request that was sent at start and answered before now. A length that
// is shorter than that of Asked is a claim. The lease is renewed, or checked, after the time check
// at the latest, unless that is 0.
func (l *Lease) Begin(start, now clock.Instant, length, check time.Duration) {
	l.granted, l.start, l.replied = start, start, now
	l.prolong(start, length)
	l.renew(start)
	switch {
	case length < clock.Validity(l.Asked, l.Drift):
		l.claim, l.renewed, l.renewAt = true, now, claimLasts
	case check > 0 && (check < l.renewAt || !l.Renews):
		l.renewAt = check
	}
}

// prolong lets the lease last until start + length. It never shortens the lease and never passes
// MaxHold.
func (l *Lease) prolong(start clock.Instant, length time.Duration) {
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

// renew notes that a renewal was sent at start. However long the lease lasts then, it is renewed
// soon again, so that a deleted key is noticed.
func (l *Lease) renew(start clock.Instant) {
	l.renewed, l.renewAt = start, 0
	if l.Renews {
		l.renewAt = min(l.TTL/3, clock.Validity(l.TTL, l.Drift)/2)
	}
}

// Judge ends the lease if its time has passed. It reports whether the lease goes on.
func (l *Lease) Judge(now clock.Instant) bool {
	if l.phase == held && now.Since(l.start) >= l.length {
		l.phase, l.why = lost, l.expired()
	}
	return l.why == None
}

// expired returns why the lease was not renewed in time.
func (l *Lease) expired() Why {
	switch {
	case l.MaxHold > 0 && l.start.Since(l.granted)+l.length >= l.MaxHold:
		return MaxHold
	case !l.Renews:
		return Fixed
	case l.trouble != nil:
		return Failing
	case l.flight:
		return Silent
	}
	return Late
}

// End ends the lease with err, which the shell knows from elsewhere, unless it or the handle has
// ended.
func (l *Lease) End(handle int, err error) {
	if l.phase == held && handle == l.handle {
		l.phase, l.why, l.trouble = lost, Gone, err
	}
}

// Ended returns why the lease ended, when it was extended last, and the error of Gone and Failing.
func (l *Lease) Ended() (why Why, start clock.Mono, err error) { return l.why, l.start.Mono, l.trouble }

// Holds reports whether a handle is the newest one. It may have ended.
func (l *Lease) Holds(handle int) bool { return handle == l.handle }

// Young reports whether the lease may be passed on.
func (l *Lease) Young() bool { return l.stage == young }

// Settle says that somebody relies on the token, or on the end of the lease.
func (l *Lease) Settle() { l.stage = max(l.stage, settled) }

// Share says that others may know the token.
func (l *Lease) Share() { l.stage = shared }

// DropMinHold lets Unlock keep nobody out.
func (l *Lease) DropMinHold() { l.open = true }

// Left returns what is left of the lease, or 0 if it has ended.
func (l *Lease) Left(now clock.Instant) time.Duration {
	if l.why != None {
		return 0
	}
	return max(l.length-now.Since(l.start), 0)
}

// Until returns the end of the lease.
func (l *Lease) Until() clock.Mono { return l.start.Mono.Add(l.length) }

// Next returns the time until the next Tick: for a renewal or the end of the lease. kept says
// whether the handle is in use. The first Tick comes half-way to the renewal.
func (l *Lease) Next(now clock.Instant, kept bool) time.Duration {
	if l.phase == passing {
		return passLasts
	}
	next := l.length - now.Since(l.start)
	if l.flight || l.renewAt == 0 || !kept {
		return next
	}
	at := l.renewAt
	if l.stage == young {
		at /= 2
	}
	return min(next, at-now.Since(l.renewed))
}

// Tick says that the time of Next has come. It reports whether to send a renewal.
func (l *Lease) Tick(now clock.Instant, kept bool) (renew bool) {
	if l.phase == passing {
		return false
	}
	l.Judge(now)
	l.Settle()
	if l.phase != held || l.flight || l.renewAt == 0 || !kept || now.Since(l.renewed) < l.renewAt {
		return false
	}
	l.flight = true
	return true
}

// Send returns the extension to send at now: that of a caller to ttl, or a renewal if ttl is 0. The
// timeout is a part of what is left, so that several attempts fit. A claim is short, so its
// extension gets all that is left.
func (l *Lease) Send(ttl time.Duration, now clock.Instant) Extension {
	left := l.Left(now)
	x := Extension{Renewal: ttl == 0, Start: now, TTL: ttl, Timeout: min(l.Timeout, max(left/4, patience))}
	switch {
	case !x.Renewal:
	case l.claim:
		x.TTL, x.Timeout = max(l.TTL, l.Asked), max(left, patience)
	case l.Renews:
		x.TTL = l.TTL
	default:
		x.TTL = time.Millisecond // too short to move the end
	}
	if l.MaxHold > 0 {
		x.TTL = min(x.TTL, clock.TTLFor(l.MaxHold-now.Since(l.granted), l.Drift))
	}
	// Else it may come after the end, or another handle has given the lock up.
	if left >= x.Timeout && l.stage != shared {
		x.Restore = max(x.TTL, clock.TTLFor(left, l.Drift))
	}
	return x
}

// Extended notes the outcome of an extension, which came before now: err is nil if it was done, and
// gone is set if the token does not hold the key. Otherwise the outcome is unknown, the lease stays
// as it was, and a renewal is repeated after a pause. random is in [0, 1). Extended reports whether
// the lease goes on.
func (l *Lease) Extended(x *Extension, now clock.Instant, err error, gone bool, random float64) bool {
	if l.why != None {
		return false
	}
	if l.trouble = err; x.Renewal {
		l.flight = false
	}
	switch {
	case !l.Judge(now): // the outcome comes too late
	case err == nil:
		l.prolong(x.Start, clock.Validity(x.TTL, l.Drift))
		l.claim = l.claim && !x.Renewal && x.TTL < l.Asked
		if x.Renewal {
			l.renew(x.Start)
		}
	case gone:
		l.End(l.handle, err)
	case x.Renewal:
		most := min(x.Timeout, l.Timeout)
		l.renewed, l.renewAt = now, most/4+time.Duration(random*float64(most/2))
	}
	return l.why == None
}

// Unlock ends a handle, and says how to go on. Everybody else is kept out for the time after, and
// for the rest of MinHold. That is counted from the reply, which came after the grant, on the
// slower clock. keep is that time in whole milliseconds.
func (l *Lease) Unlock(handle int, now clock.Instant, after time.Duration) (r Release, keep time.Duration) {
	if handle != l.handle {
		return Refuse, 0
	}
	l.Judge(now)
	switch {
	case l.phase == lost && l.stage == shared:
		l.phase = released
		return GiveNothing, 0
	case l.phase == lost:
		l.phase = released
		return GiveIfThere, 0
	case l.phase != held:
		return Refuse, 0
	case l.Passes && l.stage == young && after == 0:
		l.phase = passing
		l.handle++
		return Pass, 0
	}
	l.phase, l.why = released, Unlocked
	if !l.open {
		after = max(after, l.MinHold-now.AtLeast(l.replied))
	}
	return Give, (after + time.Millisecond - 1).Truncate(time.Millisecond)
}

// Serve says that the line has passed the lock on. It returns the number of the next handle, which
// judges the lease itself.
func (l *Lease) Serve() int {
	l.phase = held
	return l.handle
}

// NotPassed says that the line gives the lock back instead of passing it on.
func (l *Lease) NotPassed() { l.phase, l.why = released, Unlocked }
