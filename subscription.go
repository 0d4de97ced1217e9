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

// A handover is what release.lua tells the process of the waiter that it handed a lock to.
type handover struct {
	key   string
	entry string        // the waiter's place in the queue
	ttl   time.Duration // how long Redis keeps the key for it
	fence uint64
	at    time.Duration // what the clock of Redis showed
}

// parseHandover reads what release.lua publishes. Whatever else was published is not ok.
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
	// pingEvery is how long a subscription may be silent before it is asked for a sign of life,
	// and then until it is replaced: go-redis does not notice one that nothing comes through. One
	// that nobody used for so long is closed.
	pingEvery = 3 * time.Second

	// reconnectPause is what passes after a failure of the subscription.
	reconnectPause = 50 * time.Millisecond
)

// A subscription is the one channel on which a Locker's process is handed locks. It is opened when
// the first waiter comes, and closed a few seconds after the last one left.
type subscription struct {
	client     redis.UniversalClient
	channel    string
	impossible bool // the client cannot have one: waiters poll

	// Set before the first use. They are called by the one goroutine of the subscription.
	deliver  func(handover) // a lock was handed to this process
	changed  func()         // Redis listens, or no longer does; what was published before may be lost
	degraded func(error)    // waiting has to do without

	mu             sync.Mutex // guards the fields below
	users          int
	used           bool // since the last silence
	running        bool
	ready          chan struct{} // closed while the subscription stands
	refused        error         // why it cannot be had, as Redis said last; nil: it can, as far as is known
	publishRefused error         // why it is of no use: what is published does not come; nil likewise
	current        *redis.PubSub // nil: none is open
}

func newSubscription(client redis.UniversalClient) *subscription {
	return &subscription{client: client, channel: "redlatch:" + uuid.NewString(), ready: make(chan struct{})}
}

// join opens the subscription unless it is open. leave must follow. ready is closed once Redis
// listens.
func (s *subscription) join() (ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.used = true
	if !s.running && !s.impossible {
		s.running = true
		go s.run() // ends a while after the last user left
	}
	return s.ready
}

func (s *subscription) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// isReady reports whether Redis listens and can tell this process of its turn.
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

// isDegraded reports whether waiters have to do without.
func (s *subscription) isDegraded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.impossible || s.refused != nil || s.publishRefused != nil
}

// degrade notes at why that waiters have to do without, and says so once.
func (s *subscription) degrade(why *error, err error) {
	s.mu.Lock()
	first := *why == nil
	*why = err
	s.mu.Unlock()
	if first {
		s.degraded(err)
	}
}

// run receives until nobody uses the subscription. It alone touches the connection.
func (s *subscription) run() {
	ctx := context.Background()
	ps := s.open(ctx)
	asked := false // for a sign of life
	for {
		message, err := ps.ReceiveTimeout(ctx, pingEvery)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
			s.received(message)
		case errors.As(err, &timeout) && timeout.Timeout() && s.stop():
			_ = ps.Close()
			return
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = ps.Ping(ctx) == nil
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
			ps, asked = s.open(ctx), false
		}
	}
}

// open subscribes anew.
func (s *subscription) open(ctx context.Context) *redis.PubSub {
	ps := s.client.Subscribe(ctx, s.channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = ps
	return ps
}

// replace has run open another connection, since what was published did not come through this one.
func (s *subscription) replace() {
	s.mu.Lock()
	ps := s.current
	s.current = nil
	s.mu.Unlock()
	if ps != nil {
		_ = ps.Close() // run notices
	}
}

// received passes on what came through the subscription.
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

// markDown notes that the subscription does not stand any more, and reports whether it did.
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

// stop ends the subscription if nobody has used it since it was last asked to, and reports whether
// it did.
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
