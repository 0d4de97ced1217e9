package redlatch

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/tokens"
)

// A cohort has the readers of a process that share a permit: those who were in line when Redis
// granted it, and those who come
//
//	within min(5 ms, TTL / 100) of the grant
//
// So a writer that waits is overtaken for that long at most. Each reader has a lease of its own
// with the token of the permit: it is renewed, ends and is lost by itself. The last one to end
// gives the permit back. All have the fence of the grant: it is higher than that of any earlier
// writer, since the permit is held until then.
type cohort struct {
	granted *attempt // the permit. Its lease is that of the first reader
	grant   grant
	opened  clock.Instant // when the grant was known

	// cohorts.mu guards these.
	readers   int        // whose locks have not ended
	given     bool       // somebody gives the permit back, or has
	keepUntil clock.Mono // nobody may write until then, see Lock.UnlockAfter
}

// cohorts has the newest cohort of each key, which may admit readers.
type cohorts struct {
	mu     sync.Mutex // guards newest, and what is said of cohort
	newest map[string]*cohort
}

const (
	cohortLasts = 5 * time.Millisecond // a cohort admits readers for this time at most
	cohortShare = 100                  // and for this part of the TTL
)

// admitLocked counts a reader of a line, the first or another one. lines.mu is locked, and nobody
// else knows the cohort yet.
func (a *attempt) admitLocked(pass int) {
	if pass == 0 {
		a.cohort = &cohort{granted: a}
	}
	a.cohort.readers++
}

// serveReader serves a reader of a line who was counted.
func (a *attempt) serveReader(r *request, g grant, now clock.Instant, pass int) *Lock {
	if pass > 0 {
		return a.cohort.serve(r, now)
	}
	a.cohort.open(g, now)
	return a.lease.serve(r, g, now, 0)
}

// admit opens a cohort for the reader of a call, if it is one.
func (a *attempt) admit(g grant, now clock.Instant) {
	if a.reads {
		a.cohort = &cohort{granted: a, readers: 1}
		a.cohort.open(g, now)
	}
}

// open admits others from now on, unless the reader has options of its own.
func (c *cohort) open(g grant, now clock.Instant) {
	a := c.granted
	if c.grant, c.opened = g, now; a.r.cfg.settings == a.cfg.settings {
		a.cohorts.mu.Lock()
		a.cohorts.newest[a.key] = c
		a.cohorts.mu.Unlock()
	}
}

// serve begins the lease of another reader, who was counted.
func (c *cohort) serve(r *request, now clock.Instant) *Lock {
	a := c.granted.newAttempt(r, c.granted.line, c.granted.token)
	a.cohort = c
	return a.lease.serve(r, c.grant, now, 0)
}

// joinReaders returns a lock that a reader of this process shares with r, without a command, or
// nil.
func (e *engine) joinReaders(r *request) *Lock {
	if !e.reads || r.cfg.settings != e.cfg.settings {
		return nil
	}
	now := clock.Now()
	e.cohorts.mu.Lock()
	c := e.cohorts.newest[r.redisKeys.key]
	admitted := c != nil && now.Since(c.opened) < min(cohortLasts, r.cfg.asked/cohortShare) && !c.grant.over(now)
	if admitted {
		c.readers++
	}
	e.cohorts.mu.Unlock()
	if !admitted {
		return nil
	}
	return c.serve(r, now)
}

// lost notes that the lease of a has ended by itself: its holder may never call Unlock. The cohort
// admits nobody any more.
func (c *cohort) lost(a *attempt) {
	if c != nil {
		a.cohorts.mu.Lock()
		defer a.cohorts.mu.Unlock()
		c.discountLocked(a)
		c.closeLocked()
	}
}

// discountLocked notes, once, that the lock of a has ended.
func (c *cohort) discountLocked(a *attempt) {
	if !a.discounted {
		a.discounted = true
		c.readers--
	}
}

func (c *cohort) closeLocked() {
	if newest := c.granted.cohorts.newest; newest[c.granted.key] == c {
		delete(newest, c.granted.key)
	}
}

// leave ends the use of the permit by a, which asks to keep writers out for a time after now. It
// returns the attempt to give back and that time, or nil if other readers use the permit or one of
// them gives it back. Without a cohort it is a.
func (c *cohort) leave(a *attempt, now clock.Instant, keep time.Duration) (*attempt, time.Duration) {
	if c == nil {
		return a, keep
	}
	a.cohorts.mu.Lock()
	defer a.cohorts.mu.Unlock()
	c.keepUntil = max(c.keepUntil, now.Mono.Add(keep))
	if c.discountLocked(a); c.readers > 0 || c.given {
		return nil, 0
	}
	c.given = true
	c.closeLocked()
	return c.granted, max(c.keepUntil.Sub(now.Mono).Truncate(time.Millisecond), keep)
}

// adoptReader acquires a permit for r if token holds one: so no reader ends the lock of another.
func (e *engine) adoptReader(ctx context.Context, r *request, token string) (*Lock, error) {
	a := e.newAttempt(r, nil, tokens.New(r.cfg.owner))
	a.acquire.queueing = &queueing{beside: token}
	lock, _, err := a.make(ctx)
	return lock, err
}
