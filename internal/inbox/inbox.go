package handoff

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/node"
)

const (
	// wakeEvery is how often a silent subscription looks whether it still has users. It is closed within two of these.
	wakeEvery = time.Second

	// pingAfter is after how many silent wakes there is a PING, and then how many more the reply may take before the
	// connection is replaced: go-redis does not notice a dead connection.
	pingAfter = 3

	// firstReconnect and lastReconnect bound the pause after a failure of the subscription. It doubles until SUBSCRIBE is
	// confirmed; half of it is random.
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = 3 * time.Second

	// mostHungUp is how often in a row a connection may be closed before SUBSCRIBE is confirmed. A proxy does that which does not
	// know the command.
	mostHungUp = 3

	// muteFor is how long PUBLISH counts as refused. Nothing says when Redis allows it again.
	muteFor = time.Minute
)

// A Subscription is the channel on which the process of a Locker is handed locks. It is opened for the first line that
// waits, and closed within two seconds after the last one is empty.
type Subscription struct {
	Channel string
	Spread  bool // PUBSUB NUMSUB on one server does not count all subscribers

	// Set before the first use. The goroutine of the subscription calls them; RefusePublish also calls Degraded, which must not block.
	Deliver  func(Grant) // a lock was handed to this process
	Changed  func()      // SUBSCRIBE was confirmed, or the connection broke; earlier messages may be lost
	Degraded func(error) // Redis refuses SUBSCRIBE or PUBLISH

	client     redis.UniversalClient
	impossible bool // the client cannot subscribe

	mu      sync.Mutex // guards the fields below
	users   int
	used    bool // since the last call of stop
	running bool
	up      bool          // SUBSCRIBE is confirmed
	changed time.Time     // when up was last set or cleared
	refused error         // the answer to SUBSCRIBE; nil: it is not known to be refused
	mute    time.Time     // until then PUBLISH counts as refused
	current *redis.PubSub // nil: none is open
}

// NewSubscription returns the subscription of one Locker. If impossible is set, the client cannot subscribe, and lines
// poll.
func NewSubscription(client redis.UniversalClient, impossible bool) *Subscription {
	return &Subscription{client: client, Channel: "redlatch:" + uuid.NewString(), impossible: impossible}
}

// Join opens the subscription unless it is open. The caller must call Leave.
func (s *Subscription) Join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.used = true
	if !s.running && !s.impossible {
		s.running, s.changed = true, time.Now()
		time.AfterFunc(0, s.run) // a goroutine that ends within two seconds after the last user has left
	}
}

// Leave ends one use of the subscription.
func (s *Subscription) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// State says whether messages come. A Subscription that is not open yet is opened by the first line that joins.
func (s *Subscription) State() line.Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.impossible, s.refused != nil, s.mutedLocked():
		return line.Closed
	case s.up:
		return line.Open
	case !s.running, time.Since(s.changed) < line.Patience:
		return line.Opening
	}
	return line.Closed
}

func (s *Subscription) mutedLocked() bool { return time.Now().Before(s.mute) }

// RefusePublish notes that Redis refuses PUBLISH with err.
func (s *Subscription) RefusePublish(err error) {
	s.mu.Lock()
	first := !s.mutedLocked()
	s.mute = time.Now().Add(muteFor)
	s.mu.Unlock()
	if first {
		s.Degraded(err)
	}
}

// refuse notes that Redis refuses SUBSCRIBE with err.
func (s *Subscription) refuse(err error) {
	s.mu.Lock()
	first := s.refused == nil
	s.refused = err
	s.mu.Unlock()
	if first {
		s.Degraded(err)
		s.Changed()
	}
}

// run receives until the subscription has no users. Only run and Missed touch the connection.
func (s *Subscription) run() {
	ctx := context.Background()
	ps := s.open(ctx)
	silent, failed, hungUp := 0, 0, 0 // wakes, and connections in a row
	for {
		message, err := ps.ReceiveTimeout(ctx, wakeEvery)
		var timeout net.Error
		late := errors.As(err, &timeout) && timeout.Timeout()
		if late && !node.Unreachable(err) {
			if s.stop() {
				_ = ps.Close()
				return
			}
			if silent++; silent < 2*pingAfter && (silent != pingAfter || ps.Ping(ctx) == nil) {
				continue
			}
		}
		if err == nil {
			silent = 0
			if _, confirmed := message.(*redis.Subscription); confirmed {
				failed, hungUp = 0, 0
			}
			s.received(message)
			continue
		}
		if s.markDown() {
			s.Changed()
		}
		_ = ps.Close()
		pause := reconnectPause(failed)
		failed++
		if !late && !node.Unreachable(err) && !errors.Is(err, redis.ErrClosed) {
			hungUp++
		}
		if node.Answered(err) || hungUp == mostHungUp {
			s.refuse(node.Explain(err))
			pause, hungUp = lastReconnect, 0
		}
		if s.stop() {
			return
		}
		<-time.After(pause)
		ps, silent = s.open(ctx), 0
	}
}

// reconnectPause returns the pause after so many failures before this one.
func reconnectPause(failed int) time.Duration {
	pause := min(firstReconnect<<min(failed, 8), lastReconnect)
	return pause - rand.N(pause/2)
}

// open sends SUBSCRIBE on a new connection.
func (s *Subscription) open(ctx context.Context) *redis.PubSub {
	ps := s.client.Subscribe(ctx, s.Channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = ps
	return ps
}

// Missed closes the connection, since a message was lost on it after since, so that run opens another one. It does nothing
// if SUBSCRIBE was confirmed since then.
func (s *Subscription) Missed(since time.Time) {
	s.mu.Lock()
	ps := s.current
	if !s.up || s.changed.After(since) {
		ps = nil
	} else {
		s.current = nil
	}
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
		s.refused, s.up, s.changed = nil, true, time.Now()
		s.mu.Unlock()
		s.Changed()
	case *redis.Message:
		if g, ok := parseGrant(message.Payload); ok {
			s.Deliver(g)
		}
	}
}

// markDown notes that the connection broke. It reports whether SUBSCRIBE was confirmed before.
func (s *Subscription) markDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.up
	if was {
		s.up, s.changed = false, time.Now()
	}
	return was
}

// stop ends the subscription if nobody has used it since the last call of stop. It reports whether it did.
func (s *Subscription) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || s.used {
		s.used = false
		return false
	}
	s.running, s.current, s.up = false, nil, false
	return true
}
