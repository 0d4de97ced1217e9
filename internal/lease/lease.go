package lease

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Lease is a lock that was granted, with all of its handles. Unlock may pass the lock on within the
// process: that ends one handle and begins another. Readers share a lease: each has a seat.
//
// Its methods may be called from many goroutines. Only Init, and before Begin also Reveal and Expect,
// may not.
type Lease struct {
	home    Home
	running sync.WaitGroup // extensions in flight; none starts once the lease has ended

	mu     sync.Mutex // guards the fields below
	core   core
	first  seat        // of the handle, or of the first reader
	joined []*seat     // of other readers
	timer  *time.Timer // runs renew; stopped when the lease ends
	err    error       // why the lease ended, nil before
}

// Init prepares a lease for its grant. passable says that a line may pass the lock on.
func (l *Lease) Init(home Home, cfg *Config, passable bool) {
	l.home, l.core.Config, l.core.passable = home, cfg, passable
}

// Reveal says that others know the token.
func (l *Lease) Reveal() { l.core.reveal() }

// Expect says, before Begin, that one more handle will share the lease: see Seat.
func (l *Lease) Expect() { l.core.expect() }

// Begin begins the lease of a request that was sent at start, and known to be granted at now. It makes
// h the handle of a call with the Config by and with ctx. core.begin says what length and check are.
func (l *Lease) Begin(
	ctx context.Context, h *Handle, by *Config, start, now clock.Instant, length, check time.Duration,
) {
	s := &l.first
	*h = Handle{lease: l, seat: s}
	_ = l.change(caller{s, ctx}, func() {
		l.core.begin(start, now, length, check)
		l.timer = time.AfterFunc(l.core.next(now, true), l.renew) // Unlock waits for what it sends
		s.take(h, by, start)
	})
}

// Pass passes the lock on at now, and makes h the handle of another call.
func (l *Lease) Pass(ctx context.Context, h *Handle, by *Config, now clock.Instant) {
	s := &l.first
	*h = Handle{lease: l, seat: s}
	_ = l.change(caller{s, ctx}, func() {
		h.number = l.core.serve(&s.core)
		s.take(h, by, now)
	})
}

// Join makes h a handle that shares the lease. It reports false if nobody may join it any more.
func (l *Lease) Join(ctx context.Context, h *Handle, by *Config, now clock.Instant) bool {
	return l.share(ctx, h, by, now, true)
}

// Seat makes h a handle that was expected.
func (l *Lease) Seat(ctx context.Context, h *Handle, by *Config, now clock.Instant) {
	l.share(ctx, h, by, now, false)
}

func (l *Lease) share(ctx context.Context, h *Handle, by *Config, now clock.Instant, joins bool) (shares bool) {
	s := new(seat)
	*h = Handle{lease: l, seat: s}
	var ended error // of a lease that had ended before
	_ = l.change(caller{s, ctx}, func() {
		if joins && !l.core.join(now) {
			return
		}
		shares = true
		s.take(h, by, now)
		l.joined = append(l.joined, s)
		if !l.core.isYoung() {
			s.weaken()
		}
		if ended = l.err; ended != nil {
			s.end(ended)
		}
	})
	if ended != nil {
		l.reportLost(ctx, *s, ended)
	}
	return shares
}

// Doubt says that a command which was sent at asked has shown another holder. Then a renewal, which
// compares the token, is due at once. It does nothing before Begin.
func (l *Lease) Doubt(asked clock.Mono) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && l.core.doubt(asked) {
		l.timer.Reset(0)
	}
}

// Left returns for how long the lease keeps others out.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.core.timeLeft(clock.Now())
	if left > 0 {
		left += l.core.Grace // others have to wait for that, too
	}
	return left
}

// NotPassed says that a release was sent instead of passing the lock on.
func (l *Lease) NotPassed() { _ = l.change(nobody, l.core.notPassed) }

// weakenLocked keeps only weak pointers to the handles: the lease is not young any more.
func (l *Lease) weakenLocked() {
	for s := range l.seatsLocked {
		s.weaken()
	}
}

// inUseLocked reports whether a caller has a handle.
func (l *Lease) inUseLocked() bool {
	for s := range l.seatsLocked {
		if s.inUse() {
			return true
		}
	}
	return false
}

// seatsLocked yields the seats of the handles that have not left.
func (l *Lease) seatsLocked(yield func(*seat) bool) {
	if !l.first.core.hasLeft() && !yield(&l.first) {
		return
	}
	for _, s := range l.joined {
		if !s.core.hasLeft() && !yield(s) {
			return
		}
	}
}

// change calls f with mu locked, and returns why the lease has ended. If f has ended it, change ends
// what the handles have given out. After a loss it also reports the loss of each handle: in this
// goroutine for the caller's.
func (l *Lease) change(by caller, f func()) error {
	l.mu.Lock()
	f()
	why, start, trouble := l.core.ended()
	if err := l.err; err != nil || why == endNone {
		l.mu.Unlock()
		return err
	}
	err := endError(why, start, trouble)
	l.err = err
	l.timer.Stop()
	var lost []seat
	var mine seat
	for s := range l.seatsLocked {
		s.end(err)
		switch {
		case why == endUnlocked:
		case s == by.seat:
			mine = *s
		default:
			lost = append(lost, *s)
		}
	}
	l.mu.Unlock()
	l.home.Ended(why != endUnlocked)
	if why == endUnlocked {
		return err
	}
	for _, s := range lost {
		if by.seat == nil && len(lost) == 1 {
			l.reportLost(nobody.context(), s, err)
		} else {
			go l.reportLost(nobody.context(), s, err) // ends with the hook
		}
	}
	l.reportLost(by.context(), mine, err)
	return err
}

// reportLost reports that the handle of a seat was lost, unless the seat is empty.
func (l *Lease) reportLost(ctx context.Context, s seat, err error) {
	if s.by != nil {
		l.home.Report(ctx, Report{By: s.by, Number: s.core.number(), Elapsed: clock.Now().Since(s.since), Err: err})
	}
}
