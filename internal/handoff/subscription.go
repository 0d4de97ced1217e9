package handoff

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

const (
	// pingEvery is how long a subscription may be silent before a PING, and how long the reply may take before the
	// connection is replaced: go-redis does not notice a dead connection. A subscription without users is closed
	// after that time.
	pingEvery = 3 * time.Second

	// reconnectPause is the pause after a failure of the subscription.
	reconnectPause = 50 * time.Millisecond

	// confirmation is how long a waiter waits for the subscription before it queues without it.
	confirmation = time.Second

	// muteFor is how long PUBLISH counts as refused. Nothing says when Redis allows it again.
	muteFor = time.Minute
)

// A Subscription is the channel on which the process of a Locker is handed locks. It is opened for the first waiter,
// and closed a few seconds after the last one has left.
type Subscription struct {
	client     redis.UniversalClient
	channel    string
	impossible bool // the client cannot subscribe, so waiters poll

	// Set before the first use. The goroutine of the subscription calls them; RefusePublish also calls degraded.
	deliver  func(Handover) // a lock was handed to this process
	changed  func()         // SUBSCRIBE was confirmed, or the connection broke; earlier messages may be lost
	degraded func(error)    // Redis refuses SUBSCRIBE or PUBLISH

	mu      sync.Mutex // guards the fields below
	users   int
	used    bool // since the last call of stop
	running bool
	ready   chan struct{} // closed while SUBSCRIBE is confirmed
	refused error         // the answer to SUBSCRIBE; nil: it is not known to be refused
	mute    time.Time     // until then PUBLISH counts as refused
	current *redis.PubSub // nil: none is open
}

// NewSubscription returns a subscription for one Waitlist. If impossible is set, the client cannot subscribe, and waiters
// poll.
func NewSubscription(client redis.UniversalClient, impossible bool) *Subscription {
	return &Subscription{
		client: client, channel: "redlatch:" + uuid.NewString(), impossible: impossible, ready: make(chan struct{}),
	}
}

// Join opens the subscription unless it is open. The caller must call Leave.
func (s *Subscription) Join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.used = true
	if !s.running && !s.impossible {
		s.running = true
		go s.run() // ends seconds after the last user has left
	}
}

// Await waits until handovers reach this process: for a while, and unless waiters must poll.
func (s *Subscription) Await(ctx context.Context) {
	if s.IsDegraded() {
		return
	}
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, confirmation)
	defer cancel()
	select {
	case <-ready:
	case <-ctx.Done():
	}
}

// Leave ends one use of the subscription.
func (s *Subscription) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// IsReady reports whether handovers reach this process.
func (s *Subscription) IsReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ready:
		return !s.mutedLocked()
	default:
		return false
	}
}

// IsDegraded reports whether waiters must poll.
func (s *Subscription) IsDegraded() bool {
	degraded, _ := s.state()
	return degraded
}

// state reports whether waiters must poll, and whether that is since Redis refuses SUBSCRIBE, or the client cannot send it.
func (s *Subscription) state() (degraded, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deaf = s.impossible || s.refused != nil
	return deaf || s.mutedLocked(), deaf
}

func (s *Subscription) mutedLocked() bool { return time.Now().Before(s.mute) }

// RefusePublish notes that Redis refuses PUBLISH with err.
func (s *Subscription) RefusePublish(err error) {
	s.mu.Lock()
	first := !s.mutedLocked()
	s.mute = time.Now().Add(muteFor)
	s.mu.Unlock()
	if first {
		s.degraded(err)
	}
}

// refuse notes that Redis refuses SUBSCRIBE with err.
func (s *Subscription) refuse(err error) {
	s.mu.Lock()
	first := s.refused == nil
	s.refused = err
	s.mu.Unlock()
	if first {
		s.degraded(err)
	}
}

// run receives until the subscription has no users. Only run and replace touch the connection.
func (s *Subscription) run() {
	ctx := context.Background()
	ps := s.open(ctx)
	pinged := false
	for {
		message, err := ps.ReceiveTimeout(ctx, pingEvery)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
			s.received(message)
		case errors.As(err, &timeout) && timeout.Timeout() && s.stop():
			_ = ps.Close()
			return
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = ps.Ping(ctx) == nil
		default:
			if s.markDown() {
				s.changed()
			}
			_ = ps.Close()
			pause := reconnectPause
			if node.Answered(err) {
				s.refuse(node.Explain(err))
				pause = pingEvery
			}
			if s.stop() {
				return
			}
			<-time.After(pause)
			ps, pinged = s.open(ctx), false
		}
	}
}

// open sends SUBSCRIBE on a new connection.
func (s *Subscription) open(ctx context.Context) *redis.PubSub {
	ps := s.client.Subscribe(ctx, s.channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = ps
	return ps
}

// replace closes the connection, since messages were lost on it, so that run opens another one.
func (s *Subscription) replace() {
	s.mu.Lock()
	ps := s.current
	s.current = nil
	s.mu.Unlock()
	if ps != nil {
		_ = ps.Close() // run notices
	}
}

// received handles a message of the connection.
func (s *Subscription) received(message any) {
	switch message := message.(type) {
	case *redis.Subscription:
		s.mu.Lock()
		s.refused = nil
		select {
		case <-s.ready:
		default:
			close(s.ready)
		}
		s.mu.Unlock()
		s.changed()
	case *redis.Message:
		if h, ok := parseHandover(message.Payload); ok {
			s.deliver(h)
		}
	}
}

// markDown notes that the connection broke. It reports whether SUBSCRIBE was confirmed before.
func (s *Subscription) markDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ready:
		s.ready = make(chan struct{})
		return true
	default:
		return false
	}
}

// stop ends the subscription if nobody has used it since the last call of stop. It reports whether it did.
func (s *Subscription) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || s.used {
		s.used = false
		return false
	}
	s.running, s.current = false, nil
	select {
	case <-s.ready:
		s.ready = make(chan struct{})
	default:
	}
	return true
}
