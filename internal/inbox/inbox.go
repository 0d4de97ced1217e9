// Package inbox receives the locks that Redis hands to a process, and says whether messages come.
//
// A line has the callers of one process that wait for one key. It queues with an entry, by the same
// script that tries to acquire the lock or that releases it. A release grants the lock to the first
// entry in the queue, for the claim in that entry, and publishes the grant to the [Inbox] of its
// process. The new owner extends its claim to the TTL. A process that cannot do so costs the others
// a claim. No line depends on a message: see internal/line.
//
// The caller sends all commands but SUBSCRIBE and PING. The goroutine of Join receives grants, and
// ends within two seconds after the last user, or when a dial has ended. Nobody waits for it. Only
// this goroutine, and that of Missed, use the subscription: go-redis dials under its mutex, for as
// long as the dialer takes. Other methods of an Inbox wait for nothing.
package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

const (
	// wakeEvery is how often a silent inbox looks whether it still has users, and closes if it has
	// none.
	wakeEvery = time.Second

	// pingAfter is after how many silent wakes there is a PING, and then how many more the reply
	// may take before the connection is replaced: go-redis does not notice a dead connection.
	pingAfter = 3

	// firstReconnect and lastReconnect bound the pause after a failure of the subscription. It
	// doubles until SUBSCRIBE is confirmed; half of it is random.
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = 3 * time.Second

	// lateAfter is after how long without a wake the connection counts as broken. When one breaks,
	// go-redis dials before it says so.
	lateAfter = 2 * wakeEvery

	// mostHungUp is how often in a row a connection may be closed before SUBSCRIBE is confirmed,
	// while commands work. A proxy that does not know SUBSCRIBE closes it.
	mostHungUp = 3

	// muteFor is how long PUBLISH counts as refused. Nothing says when Redis allows it again.
	muteFor = time.Minute
)

// An Inbox is the channel on which the process of a Locker is handed locks. It is opened for the
// first line that waits, and closed about a second after the last one is empty.
type Inbox struct {
	Channel string
	Spread  bool // PUBSUB NUMSUB on one server does not count all subscribers

	// Set before the first use. Goroutines of the inbox call them; RefusePublish also calls
	// Degraded, which must not block.
	Deliver  func(wire.HandOver)         // a lock was handed to this process
	Changed  func(returned bool)         // messages may be lost, or come again; returned: after the connection broke
	Degraded func(error)                 // Redis refuses SUBSCRIBE or PUBLISH
	Served   func(since clock.Mono) bool // Redis has carried out a command of this client since then

	client client     // nil: none that can subscribe
	slots  node.Slots // for the goroutine only

	mute atomic.Int64 // until then, a clock.Mono, PUBLISH counts as refused; 0: it never was. Written under mu

	mu      sync.Mutex // guards the fields below
	users   int
	running bool
	up      clock.Mono    // when SUBSCRIBE was confirmed; 0: it is not
	refused bool          // SUBSCRIBE is known to be refused
	current *redis.PubSub // the newest
	replace bool          // it is about to be replaced by another one, although it has not broken
	broke   bool          // a connection broke, and no other one is confirmed yet
}

// New returns the inbox of one Locker. If c is nil, no message comes, and lines poll.
func New(c client) *Inbox {
	return &Inbox{client: c, slots: node.SlotsOf(c), Channel: newChannel(c)}
}

// Join opens the inbox unless it is open. The caller must call Leave.
func (b *Inbox) Join() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
	if !b.running && b.client != nil {
		b.running = true
		go b.run()
	}
}

// Leave ends one use of the inbox.
func (b *Inbox) Leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
}

// Listens reports whether messages come.
func (b *Inbox) Listens() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.up != 0 && !b.Mute()
}

// Mute reports whether Redis refuses PUBLISH, so that this process cannot tell others that they were
// handed a lock.
func (b *Inbox) Mute() bool {
	until := clock.Mono(b.mute.Load())
	return until != 0 && clock.MonoNow() < until
}

func (b *Inbox) isUp() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.up != 0
}

// RefusePublish notes that Redis refuses PUBLISH with err.
func (b *Inbox) RefusePublish(err error) {
	b.mu.Lock()
	now := clock.MonoNow()
	first := !b.Mute()
	b.mute.Store(int64(now.Add(muteFor)))
	b.mu.Unlock()
	if first {
		b.Degraded(err)
	}
}

// refuse notes that Redis refuses SUBSCRIBE with err.
func (b *Inbox) refuse(err error) {
	b.mu.Lock()
	first := !b.refused
	b.refused = true
	b.mu.Unlock()
	if first {
		b.Degraded(err)
	}
}

// run receives until the inbox has no users.
func (b *Inbox) run() {
	last := clock.MonoNow()
	for failed, hungUp := 0, 0; ; failed++ { // connections in a row
		confirmed, err := b.receive()
		if err == nil {
			return
		}
		b.ended()
		if !rediserr.Answered(err) {
			b.slots.Reload()
		}
		before := last
		last = clock.MonoNow()
		switch {
		case confirmed:
			failed, hungUp = 0, 0
		case passing(err) || !b.Served(before): // an outage
		case rediserr.Answered(err):
			hungUp = mostHungUp
		default:
			hungUp++
		}
		pause := reconnectPause(failed)
		if hungUp == mostHungUp {
			b.refuse(rediserr.Explain(err))
			pause, hungUp = lastReconnect, 0
		}
		for ; pause > 0; pause -= wakeEvery {
			if b.stop() {
				return
			}
			<-time.After(min(pause, wakeEvery))
		}
	}
}

// reconnectPause returns the pause after so many failures before this one.
func reconnectPause(failed int) time.Duration {
	pause := min(firstReconnect<<min(failed, 8), lastReconnect)
	return pause - rand.N(pause/2)
}

// passing reports whether a connection that failed with err says nothing about SUBSCRIBE.
func passing(err error) bool {
	return rediserr.Silence(err) || rediserr.Unreachable(err) || errors.Is(err, redis.ErrClosed) ||
		rediserr.Answered(err) && rediserr.Unavailable(err)
}

var errReplaced = errors.New("the subscription is replaced")

// receive handles the messages of a new connection, until it fails or the inbox has no users: err
// is nil then. It reports whether SUBSCRIBE was confirmed.
func (b *Inbox) receive() (confirmed bool, err error) {
	ctx, noDials := context.WithCancel(context.Background())
	defer noDials()
	var ps *redis.PubSub
	if err := rediserr.Shield(func() error { ps = b.client.Subscribe(ctx, b.Channel); return nil }); err != nil {
		return false, err
	}
	defer func() {
		if !rediserr.Panicked(err) { // then it may be locked for ever, and has no connection
			_ = ps.Close()
		}
	}()
	b.mu.Lock()
	b.current = ps
	b.mu.Unlock()
	// late ends with receive, which need not wait for it.
	late := time.AfterFunc(lateAfter, func() { b.setSubscribed(false) })
	defer late.Stop()
	for silent := 0; ; { // wakes in a row
		var message any
		err := rediserr.Shield(func() (err error) { message, err = ps.ReceiveTimeout(ctx, wakeEvery); return err })
		late.Reset(lateAfter)
		switch {
		case err == nil:
			silent = 0
			if b.received(message) {
				confirmed = true
				noDials() // if the connection breaks, dialers that heed ctx fail at once
			}
		case !rediserr.Silence(err):
			return confirmed, err
		case b.stop():
			return confirmed, nil
		default:
			silent++
			if silent == 2*pingAfter {
				return confirmed, err
			}
			if silent == pingAfter {
				if err := rediserr.Shield(func() error { return ps.Ping(ctx) }); err != nil {
					return confirmed, err
				}
			}
		}
		if confirmed && !b.isUp() { // it was late, or missed a message
			return confirmed, errReplaced
		}
	}
}

// received handles a message. It reports whether that confirms SUBSCRIBE.
func (b *Inbox) received(message any) (confirms bool) {
	switch message := message.(type) {
	case *redis.Subscription:
		b.setSubscribed(true)
		return true
	case *redis.Message:
		if g, ok := wire.ParseHandOver(message.Payload); ok {
			b.Deliver(g)
		}
	}
	return false
}

// Missed has the connection replaced, since a message was lost on it after since. It does nothing
// if SUBSCRIBE was confirmed since then. Until it is confirmed again, no messages come.
func (b *Inbox) Missed(since clock.Mono) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.up == 0 || b.up > since {
		return
	}
	b.up, b.replace = 0, true
	go b.closes(b.current) // ends when go-redis dials no more; nobody waits for it
}

// closes closes a subscription, so that run opens another one.
func (b *Inbox) closes(ps *redis.PubSub) {
	b.Changed(false)
	_ = ps.Close() // receive notices
}

// ended notes that a connection has ended. Unless that was wanted, the server may be another one when the next is confirmed.
func (b *Inbox) ended() {
	b.mu.Lock()
	b.broke, b.replace = b.broke || !b.replace, false
	b.mu.Unlock()
	b.setSubscribed(false)
}

// setSubscribed notes that SUBSCRIBE is confirmed, or not any more.
func (b *Inbox) setSubscribed(is bool) {
	b.mu.Lock()
	was, returned := b.up != 0, is && b.broke
	b.up, b.refused = 0, b.refused && !is
	if is {
		b.up, b.broke = clock.MonoNow(), false
	}
	b.mu.Unlock()
	if is || was {
		b.Changed(returned)
	}
}

// stop ends the inbox if it has no users. It reports whether it did.
func (b *Inbox) stop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users > 0 {
		return false
	}
	b.running, b.up = false, 0
	return true
}
