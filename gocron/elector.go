package redlatchgocron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// ErrNotLeader is matched by every error of [Elector.IsLeader].
var ErrNotLeader = errors.New("redlatchgocron: not the leader")

var errClosed = errors.New("the Elector is closed")

const (
	// again is the pause after an error that retrying cannot fix. Somebody may fix its cause during
	// the pause.
	again = 15 * time.Second

	// remembered is how long IsLeader reports an error. It is longer than again and longer than the
	// pause between two attempts of Lead. So an outage is reported for as long as it lasts.
	remembered = 20 * time.Second
)

// An Elector is a [gocron.Elector] for [gocron.WithDistributedElector]. Of all Electors with the same
// key, one leads. Its methods may be called by several goroutines at once.
type Elector struct {
	election *redlatch.Election
	cancel   context.CancelFunc // ends the campaign
	ended    chan struct{}      // closed when the campaign has ended

	mu      sync.Mutex     // guards the fields below
	closed  bool           // Close was called: this Elector never leads again
	lock    *redlatch.Lock // of the current term, or of one whose end was not noted yet; nil if there is none
	cause   error          // why there is no term; nil if unknown
	at      time.Time      // when cause was noted
	release error          // the error of Unlock in the term that Close ended
}

// NewElector returns an Elector that leads while it holds the lock of l on key. It tries to lead
// until [Elector.Close]. The caller must call Close. opts apply to the lock. NewElector does not
// wait for the first election.
//
// The leader renews the lock. If the leader crashes, another Elector leads once the TTL has passed.
// An Elector that loses the lock tries again after a pause, as [redlatch.Lead] does. It also
// retries through outages of Redis.
//
// The error matches [redlatch.ErrInvalid] if l is nil, if key is empty, or if l cannot work
// with opts. In case of an error nothing is sent to Redis.
func NewElector(l redlatch.Locker, key string, opts ...redlatch.Option) (*Elector, error) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{cancel: cancel, ended: make(chan struct{})}
	noting := redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(context.Context, redlatch.Event) { e.note(nil) }, // another instance leads
		Trouble: func(_ context.Context, event redlatch.Event) { e.note(event.Err) },
	})
	err := check(l, key, opts)
	if err == nil {
		e.election, err = redlatch.NewElection(candidate{Locker: l, elector: e}, key, append(slices.Clip(opts), noting)...)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("redlatchgocron: new elector: %w", err)
	}
	go e.campaign(ctx) // ends with ctx; Close waits for it
	return e, nil
}

// IsLeader returns nil while this instance leads. Each call checks the clocks, as
// [redlatch.Lock.Err] does, and sends nothing. So IsLeader returns at once, and an instance that is
// cut off from Redis stops leading before another one can start.
//
// Otherwise the error matches [ErrNotLeader]. If the Elector had another error in the last 20 s, it
// also matches that error, such as [redlatch.ErrUnavailable] in an outage, or [redlatch.ErrLost] after
// this instance lost the lead. gocron drops the error and skips the run. A health check can call
// IsLeader to report it.
//
// A job that is running when the lead ends continues. It may overlap with a run of the next leader.
func (e *Elector) IsLeader(context.Context) error {
	lock, cause := e.state()
	switch {
	case lock != nil && e.election.Leading():
		return nil
	case lock != nil:
		cause = lock.Err()
	}
	if cause == nil {
		return ErrNotLeader
	}
	return fmt.Errorf("%w: %w", ErrNotLeader, cause)
}

// Format prints whether this instance leads, and if not, the error of IsLeader, whatever the verb is.
func (e *Elector) Format(f fmt.State, verb rune) {
	text := "leader"
	if err := e.IsLeader(context.Background()); err != nil {
		text = err.Error()
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// Close stops the Elector and releases its lock, so that the next instance leads at once. From then
// on IsLeader returns an error. Shut the scheduler down first, so that its jobs have ended.
//
// Close waits until Redis confirms the release, for as long as [redlatch.WithOpTimeout] allows. If this
// instance led, it returns the error of [redlatch.Lock.Unlock]. After an error the next instance leads
// when the TTL has passed, at the latest. Further calls return the same error.
func (e *Elector) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	<-e.ended
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.release
}

// state returns the lock of this term, or why there is none. It does not check the lock with Err,
// which may call hooks: they must not run under the mutex.
func (e *Elector) state() (*redlatch.Lock, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, errClosed
	case e.lock != nil:
		return e.lock, nil
	case time.Since(e.at) > remembered:
		return nil, nil
	}
	return nil, e.cause
}

// campaign leads again and again until ctx ends.
func (e *Elector) campaign(ctx context.Context) {
	defer close(e.ended)
	for {
		err := e.election.Run(ctx, e.term)
		if ctx.Err() != nil {
			return
		}
		e.note(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// term leads until lock has ended or Close is called, and releases the lock.
func (e *Elector) term(ctx context.Context, lock *redlatch.Lock) error {
	e.mu.Lock()
	e.lock = lock
	e.mu.Unlock()
	<-ctx.Done()
	err := lock.Unlock(ctx) // if the lock was lost, err says how
	e.note(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lock = nil
	if e.closed {
		e.release = err
	}
	return nil
}

// note keeps err as the last error of the campaign.
func (e *Elector) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause, e.at = err, time.Now()
}

// candidate notes each error that Lock returns. Trouble alone is not enough: it reports nothing if
// another caller of the Locker had the same error within a second.
type candidate struct {
	redlatch.Locker
	elector *Elector
}

func (c candidate) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	lock, err := c.Locker.Lock(ctx, key, opts...)
	if err != nil {
		c.elector.note(err)
	}
	return lock, err
}
