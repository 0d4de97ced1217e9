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

// ErrNotLeader is what every error of [Elector.IsLeader] matches.
var ErrNotLeader = errors.New("redlatchgocron: not the leader")

var errClosed = errors.New("the Elector is closed")

const (
	// again is the pause after an error that retrying cannot fix. Somebody may fix it meanwhile.
	again = 15 * time.Second

	// remembered is how long IsLeader reports an error. It is longer than again, and than the pause between two attempts
	// of Lead, so that an outage is reported for as long as it lasts.
	remembered = 20 * time.Second
)

// An Elector is a gocron.Elector, for gocron.WithDistributedElector: of all Electors with one key, one is the leader. Its
// methods may be called from many goroutines.
type Elector struct {
	cancel context.CancelFunc // ends the campaign
	ended  chan struct{}      // closed when the campaign has ended

	mu      sync.Mutex     // guards the fields below
	closed  bool           // no more leader from here on
	lock    *redlatch.Lock // of this term; nil: there is none
	cause   error          // why there is none, as far as known
	at      time.Time      // when cause was met with
	release error          // of the term that Close ended
}

// NewElector returns an Elector that campaigns by a lock of l on key until [Elector.Close]. The caller must call Close.
// opts apply to the lock.
//
// While it leads, the lock is renewed. If the leader crashes, another one leads once the TTL has passed. An Elector that
// loses the lock campaigns again after a pause, as [redlatch.Lead] does, and goes on through outages of Redis.
//
// The error is [redlatch.ErrInvalidOption] where l is nil, key is empty, or l cannot work with opts, which must not
// have [redlatch.WithToken]. Nothing is sent then. NewElector does not wait for the first election.
func NewElector(l redlatch.Locker, key string, opts ...redlatch.Option) (*Elector, error) {
	if err := check(l, key, opts); err != nil {
		return nil, fmt.Errorf("redlatchgocron: new elector: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{cancel: cancel, ended: make(chan struct{})}
	go e.campaign(ctx, l, key, opts) // ends with ctx; Close waits for it
	return e, nil
}

// IsLeader returns nil while this instance leads. It judges by the clocks at each call, as [redlatch.Lock.Err] does,
// and asks nobody. So it returns at once, and an instance that is cut off from Redis stops leading before another one
// can start.
//
// Otherwise the error matches [ErrNotLeader]. It also matches the error that the campaign met with in the last 20 s, if
// there was one, such as [redlatch.ErrUnavailable] in an outage, or [redlatch.ErrLost] after this instance lost the
// lead. gocron drops the error and skips the run. A health check can call IsLeader to report it.
//
// A job that runs when the lead ends goes on, and may overlap with a run of the next leader.
func (e *Elector) IsLeader(context.Context) error {
	lock, cause := e.state()
	if lock != nil {
		cause = lock.Err()
		if cause == nil {
			return nil
		}
	}
	if cause == nil {
		return ErrNotLeader
	}
	return fmt.Errorf("%w: %w", ErrNotLeader, cause)
}

// Close ends the campaign and gives the lead back, so that the next instance leads at once. From then on IsLeader
// returns an error. Shut the scheduler down first, so that its jobs have ended.
//
// Close waits for Redis to confirm, for as long as [redlatch.WithOpTimeout] allows. The error is that of
// [redlatch.Lock.Unlock] where this instance led: the next one leads when the TTL has passed, at the latest. Another call
// returns the same.
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

// state returns the lock of this term, or why there is none. It does not judge the lock: that may call hooks, which must
// not run under the mutex.
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
func (e *Elector) campaign(ctx context.Context, l redlatch.Locker, key string, opts []redlatch.Option) {
	defer close(e.ended)
	opts = append(slices.Clip(opts), redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(redlatch.Event) { e.note(nil) }, // another instance leads
		Trouble: func(event redlatch.Event) { e.note(event.Err) },
	}))
	for {
		err := redlatch.Lead(ctx, candidate{Locker: l, elector: e}, key, e.term, opts...)
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

// term leads until lock has ended or Close is called, and gives the lock back.
func (e *Elector) term(ctx context.Context, lock *redlatch.Lock) error {
	e.mu.Lock()
	e.lock = lock
	e.mu.Unlock()
	<-ctx.Done()
	err := lock.Unlock(ctx) // of a lock that was lost, this says how
	e.note(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lock = nil
	if e.closed {
		e.release = err
	}
	return nil
}

// note keeps the last error that the campaign met with.
func (e *Elector) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause, e.at = err, time.Now()
}

// candidate notes each error with which Lock returns. Trouble alone would miss those that another caller of the Locker
// met with in the same second.
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
