package redlatch

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/node"
)

// A handover is the message of release.lua to the process of the waiter that was handed a lock.
type handover struct {
	key   string
	entry string        // of the waiter in the queue
	ttl   time.Duration // how long Redis keeps the key for it
	fence uint64
	at    time.Duration // the time of the clock of Redis
}

// parseHandover reads a message of release.lua. ok is false for any other message.
func parseHandover(message string) (h handover, ok bool) {
	fields := strings.SplitN(message, " ", 5)
	if len(fields) != 5 {
		return h, false
	}
	var numbers [4]uint64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 53)
		if err != nil {
			return h, false
		}
		numbers[i] = n
	}
	seconds, micros, fence, length := numbers[0], numbers[1], numbers[2], numbers[3]
	rest := fields[4]
	if seconds > 1<<33 || micros > 999_999 || length > uint64(len(rest)) {
		return h, false
	}
	h = handover{
		key: rest[length:], entry: rest[:length], fence: fence,
		at: time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond,
	}
	ms, _, _ := strings.Cut(h.entry, " ")
	ttl, err := strconv.ParseUint(ms, 10, 53)
	h.ttl = milliseconds(int64(ttl))
	return h, err == nil && ttl > 0
}

const (
	// pingEvery is how long a subscription may be silent before a PING, and how long the reply may take before the
	// connection is replaced: go-redis does not notice a dead connection. A subscription without users is closed
	// after that time.
	pingEvery = 3 * time.Second

	// reconnectPause is the pause after a failure of the subscription.
	reconnectPause = 50 * time.Millisecond
)

// A subscription is the channel on which the process of a Locker is handed locks. It is opened for the first waiter,
// and closed a few seconds after the last one has left.
type subscription struct {
	client     redis.UniversalClient
	channel    string
	impossible bool // the client cannot subscribe, so waiters poll

	// Set before the first use. The goroutine of the subscription calls them; degraded also runs in Unlock.
	deliver  func(handover) // a lock was handed to this process
	changed  func()         // SUBSCRIBE was confirmed, or the connection broke; earlier messages may be lost
	degraded func(error)    // Redis refuses SUBSCRIBE or PUBLISH

	mu             sync.Mutex // guards the fields below
	users          int
	used           bool // since the last call of stop
	running        bool
	ready          chan struct{} // closed while SUBSCRIBE is confirmed
	refused        error         // the answer to SUBSCRIBE; nil: it is not known to be refused
	publishRefused error         // the answer to PUBLISH; nil likewise
	current        *redis.PubSub // nil: none is open
}

func newSubscription(client redis.UniversalClient) *subscription {
	return &subscription{client: client, channel: "redlatch:" + uuid.NewString(), ready: make(chan struct{})}
}

// join opens the subscription unless it is open. The caller must leave. ready is closed once SUBSCRIBE is confirmed.
func (s *subscription) join() (ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.used = true
	if !s.running && !s.impossible {
		s.running = true
		go s.run() // ends seconds after the last user has left
	}
	return s.ready
}

func (s *subscription) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// isReady reports whether handovers reach this process.
func (s *subscription) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ready:
		return s.publishRefused == nil
	default:
		return false
	}
}

// isDegraded reports whether waiters must poll.
func (s *subscription) isDegraded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.impossible || s.refused != nil || s.publishRefused != nil
}

// degrade sets *why, which is refused or publishRefused, to err. It calls degraded if that was nil.
func (s *subscription) degrade(why *error, err error) {
	s.mu.Lock()
	first := *why == nil
	*why = err
	s.mu.Unlock()
	if first {
		s.degraded(err)
	}
}

// run receives until the subscription has no users. Only run and replace touch the connection.
func (s *subscription) run() {
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
				s.degrade(&s.refused, node.Explain(err))
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
func (s *subscription) open(ctx context.Context) *redis.PubSub {
	ps := s.client.Subscribe(ctx, s.channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = ps
	return ps
}

// replace closes the connection, since messages were lost on it, so that run opens another one.
func (s *subscription) replace() {
	s.mu.Lock()
	ps := s.current
	s.current = nil
	s.mu.Unlock()
	if ps != nil {
		_ = ps.Close() // run notices
	}
}

// received handles a message of the connection.
func (s *subscription) received(message any) {
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
func (s *subscription) markDown() bool {
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
func (s *subscription) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || s.used {
		s.used = false
		return false
	}
	s.running, s.current = false, nil
	s.refused, s.publishRefused = nil, nil
	select {
	case <-s.ready:
		s.ready = make(chan struct{})
	default:
	}
	return true
}
