// Package redlatchtest provides a Locker for the tests of code that locks.
//
// The Locker works on a Redis inside the test: it needs no server and no network. Its methods play the part of
// others: somebody else who takes a key, and a network that fails.
//
//	func TestSecondPaymentIsRefused(t *testing.T) {
//		locker := redlatchtest.NewLocker(t)
//		locker.Hold("cart:7") // somebody else pays
//		require.Equal(t, http.StatusConflict, post(handler(locker), "/carts/7/payment"))
//	}
//
// What the code meets with, and how a test brings it about:
//
//	another owner has the key         Hold
//	it waits, and its turn comes      Hold, then Free
//	it waits, and the owner crashes   Hold, then Expire
//	its lock is lost                  Steal or Expire
//	Redis cannot be reached           Disconnect
//	Redis can be reached again        Reconnect
//
// # Time
//
// Keys expire and locks are renewed by the clock of the test. In a bubble of [testing/synctest] an hour takes no
// time. Make the Locker in the bubble. It is closed before the bubble ends and leaves nothing running, so the
// test does not have to sleep at its end. Give what waits for a lock a ctx that ends with the test, such as
// t.Context().
//
// Outside of a bubble, give a test that waits for a loss a short TTL by [redlatch.WithTTL]: a holder learns
// that its lock was taken away at its next renewal, after a third of the TTL.
package redlatchtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

const (
	// somebody is the owner of the locks that Hold and Steal take.
	somebody = "somebody else"

	// theirTTL is the TTL of these locks.
	theirTTL = 10 * time.Second
)

// A Locker is a [redlatch.Locker] on a Redis of its own, with methods that do what others do to its locks. Its
// methods may be called from many goroutines.
//
// Somebody else is another process. It reaches Redis also while the Locker is disconnected, and its locks have
// the owner "somebody else" in a [redlatch.HeldError] and in [redlatch.Status]. Keys are named as for Lock,
// without the prefix of [redlatch.WithKeyPrefix].
//
// A method that cannot do what it says fails the test by Fatalf.
type Locker struct {
	redlatch.Locker

	tb      testing.TB
	server  *miniredis.Miniredis
	network *network
	client  *redis.Client   // of Locker, over network
	direct  *redis.Client   // of somebody else
	other   redlatch.Locker // likewise
	prefix  string          // of all keys, as Redis sees them

	mu     sync.Mutex // guards the field below
	theirs map[string]*redlatch.Lock
}

// NewLocker returns a Locker that [redlatch.NewSetNXPX] makes with opts. It is closed when the test ends. An option
// that cannot work fails the test.
func NewLocker(tb testing.TB, opts ...redlatch.Option) *Locker {
	tb.Helper()
	l := &Locker{tb: tb, server: miniredis.NewMiniRedis(), theirs: make(map[string]*redlatch.Lock)}
	l.server.ClockTTL(true)
	l.network = newNetwork(l.server)
	l.client, l.direct = newClient(l.network), newClient(newNetwork(l.server))
	tb.Cleanup(l.end)

	var err error
	if l.Locker, err = redlatch.NewSetNXPX(l.client, opts...); err == nil {
		l.prefix, err = l.prefixOf(opts)
	}
	if err == nil {
		// It does not get opts: hooks of the test are not to hear of somebody else.
		l.other, err = redlatch.NewSetNXPX(l.direct,
			redlatch.WithKeyPrefix(l.prefix), redlatch.WithOwner(somebody), redlatch.WithTTL(theirTTL))
	}
	if err != nil {
		tb.Fatalf("NewLocker: %v", err)
	}
	return l
}

// prefixOf returns what opts put before a key. An option does not tell, so a Locker with them asks for a key, and
// the server looks at what it is asked for.
func (l *Locker) prefixOf(opts []redlatch.Option) (string, error) {
	ctx := context.Background()
	if err := l.direct.Ping(ctx).Err(); err != nil { // the server starts with its first connection
		return "", err
	}
	locker, err := redlatch.NewSetNXPX(l.direct, append(slices.Clip(opts), redlatch.WithOpTimeout(time.Minute))...)
	if err != nil {
		return "", err
	}
	const name = "k"
	var key string
	l.server.Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
		if strings.HasPrefix(cmd, "EVAL") {
			key = args[2] // after the script and the number of keys
		}
		return false
	})
	defer l.server.Server().SetPreHook(nil)
	_, err = locker.Inspect(ctx, name)
	return strings.TrimSuffix(key, name), err
}

// Client returns the client that l uses, for code that makes a Locker itself. [Locker.Disconnect] cuts it off,
// and it is closed when the test ends.
func (l *Locker) Client() *redis.Client { return l.client }

// Hold has somebody else lock key, and renew the lock until [Locker.Free]. It fails the test if key is held.
func (l *Locker) Hold(key string) {
	l.tb.Helper()
	lock, err := l.other.TryLock(context.Background(), key)
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		l.tb.Fatalf("Hold(%q): the key is held already: %v", key, err)
	case err != nil:
		l.tb.Fatalf("Hold(%q): %v", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.theirs[key] = lock
}

// Free has somebody else unlock key, so that the first who waits for it gets it. It fails the test if nobody else
// holds key by [Locker.Hold] or [Locker.Steal].
func (l *Locker) Free(key string) {
	l.tb.Helper()
	lock := l.forget(key)
	if lock == nil {
		l.tb.Fatalf("Free(%q): somebody else does not hold the key: call Hold or Steal before", key)
		return
	}
	if err := lock.Unlock(context.Background()); err != nil {
		l.tb.Fatalf("Free(%q): %v", key, err)
	}
}

// Steal has somebody else take key away from its holder, and keep it until [Locker.Free]. The holder's lock is
// lost. The holder learns that at its next renewal, or at Extend or Unlock. Steal fails the test if nobody holds
// key, or if somebody else already does.
func (l *Locker) Steal(key string) {
	l.tb.Helper()
	if l.holder("Steal", key) == somebody {
		l.tb.Fatalf("Steal(%q): somebody else holds the key already", key)
	}
	ctx, token := context.Background(), somebody+"/"+uuid.NewString() // as WithOwner makes it
	err := l.direct.Set(ctx, l.prefix+key, token, theirTTL).Err()
	var lock *redlatch.Lock
	if err == nil {
		lock, err = l.other.Adopt(ctx, key, token)
	}
	if err != nil {
		l.tb.Fatalf("Steal(%q): %v", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.theirs[key] = lock
}

// Expire takes key out of Redis, as if its TTL had passed. The lock of its holder, who may be somebody else, is
// lost. The holder learns that as after [Locker.Steal]. Nobody tells those who wait: they look, as after a crash,
// and one of them gets key within seconds. Expire fails the test if nobody holds key.
func (l *Locker) Expire(key string) {
	l.tb.Helper()
	l.holder("Expire", key)
	ctx := context.Background()
	if err := l.direct.Del(ctx, l.prefix+key).Err(); err != nil {
		l.tb.Fatalf("Expire(%q): %v", key, err)
	}
	if lock := l.forget(key); lock != nil {
		_ = lock.Unlock(ctx) // it is lost, and must not be renewed any more
	}
}

// Disconnect cuts l off from Redis until [Locker.Reconnect], as an outage does: what is under way gets no reply,
// and connections are refused. Keys expire all the same. It does nothing where l is cut off already.
func (l *Locker) Disconnect() { l.network.cut() }

// Reconnect ends what [Locker.Disconnect] began. It does nothing where l is not cut off.
func (l *Locker) Reconnect() { l.network.mend() }

// holder returns the owner of the lock on key, for a method that needs one.
func (l *Locker) holder(method, key string) string {
	l.tb.Helper()
	status, err := l.other.Inspect(context.Background(), key)
	switch {
	case err != nil:
		l.tb.Fatalf("%s(%q): %v", method, key, err)
	case !status.Held:
		l.tb.Fatalf("%s(%q): nobody holds the key", method, key)
	}
	return status.Owner
}

// forget returns the lock of somebody else on key, nil where there is none, and forgets it.
func (l *Locker) forget(key string) *redlatch.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.theirs[key]
	delete(l.theirs, key)
	return lock
}

// settling is how long l stays open at the end of a bubble: calls that were cut off end with their timeouts, and a
// subscription some seconds after its last waiter has left.
const settling = time.Minute

// end closes l. In a bubble time must pass before: it stands still from the end of the test on, and what waits for a
// timer then never ends.
func (l *Locker) end() {
	l.Reconnect()
	l.mu.Lock()
	theirs := slices.Collect(maps.Values(l.theirs))
	l.mu.Unlock()
	for _, lock := range theirs {
		_ = lock.Unlock(context.Background())
	}
	if inBubble() {
		time.Sleep(settling)
	}
	_ = l.client.Close()
	_ = l.direct.Close()
	l.server.Close()
}

// inBubble reports whether its caller runs in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait() // it panics elsewhere
	return true
}
