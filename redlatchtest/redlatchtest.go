// Package redlatchtest provides a Locker for tests of code that locks.
//
// The Locker works on a Redis inside the test: it needs no server and no network. Its methods
// simulate another owner that takes a key, and a network that fails.
//
//	func TestSecondPaymentIsRefused(t *testing.T) {
//		locker := redlatchtest.NewLocker(t)
//		locker.Hold("cart:7") // somebody else pays
//		require.Equal(t, http.StatusConflict, post(handler(locker), "/carts/7/payment"))
//	}
//
// To simulate an event, call:
//
//	another owner has the key         Hold
//	a wait ends with the lock         Hold, then Free
//	the owner crashes during a wait   Hold, then Expire
//	the lock of the code is lost      Steal or Expire
//	Redis cannot be reached           Disconnect
//	Redis can be reached again        Reconnect
//
// # Fakes
//
// A fake that decides itself what to answer embeds a [*Locker]: that grants locks which are held, and
// loses them. A zero [redlatch.Lock] counts as released. To refuse, return an error such as
// &redlatch.HeldError{Owner: "bob"}, which matches [redlatch.ErrNotAcquired].
//
// # Time
//
// Keys expire and locks are renewed by the clock of the test. In a bubble of [testing/synctest] an
// hour takes no time. Create the Locker inside the bubble. It is closed before the bubble ends and
// leaves nothing running, so the test need not sleep at its end. The Redis is 27 years ahead of the
// bubble, which begins in 2000, since fences count the time since 2026. Code that waits for a lock needs a
// ctx that ends with the test, such as t.Context().
//
// Outside a bubble, set a short TTL with [redlatch.WithTTL] in a test that waits for a loss: a
// holder notices at its next renewal, after a third of the TTL, that its lock was taken away. With
// a TTL below 10 s also set [redlatch.WithOpTimeout] to some seconds: its default is a tenth of the
// TTL, which a busy machine may not meet.
//
// # Leaks
//
// A bubble fails a test that leaves a goroutine running. Outside, a check such as that of
// go.uber.org/goleak must run after the Locker is closed. So register it before:
//
//	t.Cleanup(func() { goleak.VerifyNone(t) }) // runs last
//	locker := redlatchtest.NewLocker(t)
//
// # Miniredis
//
// The Redis is [miniredis], which needs a 64-bit platform for the numbers in the scripts. A test
// that starts a miniredis of its own and makes a Locker on it moves two clocks: FastForward lets
// keys expire, and SetTime sets what TIME answers, which stands still from then on. Neither moves
// the clock of the holder, so a lock that has expired in Redis is trusted until its next renewal or
// its own end. A step of the clock of Redis is both.
//
// [miniredis]: https://github.com/alicebob/miniredis
package redlatchtest

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/redlatch/redlatch/internal/testing/ahead"
)

const (
	// somebody is the owner of the locks of Hold and Steal.
	somebody = "somebody else"

	// theirTTL is the TTL of these locks.
	theirTTL = 10 * time.Second
)

// A Locker is a [redlatch.Locker] on a Redis of its own, with methods that simulate other owners
// and outages. Its methods may be called from many goroutines.
//
// Another owner stands for another process. It reaches Redis even while the Locker is disconnected,
// and its name in [redlatch.HeldError] and [redlatch.Status] is "somebody else". Keys are named as
// for Lock, without the prefix of [redlatch.WithKeyPrefix].
//
// A method that fails ends the test by Fatalf.
type Locker struct {
	redlatch.Locker

	tb      testing.TB
	server  *miniredis.Miniredis
	network *network
	client  *redis.Client   // of Locker, over network
	direct  *redis.Client   // of the other owner
	other   redlatch.Locker // of the other owner
	prefix  string          // of all keys in Redis
	permits bool            // a key is a sorted set, as NewReadWrite makes it
	mark    string          // before the other owner's token: that of a writer

	mu     sync.Mutex // guards the field below
	theirs map[string]*redlatch.Lock
}

// NewLocker returns a Locker that [redlatch.NewSetNXPX] makes with opts. It is closed when the test
// ends. An option that cannot work fails the test.
func NewLocker(tb testing.TB, opts ...redlatch.Option) *Locker {
	tb.Helper()
	l := open(tb)
	var err error
	if l.Locker, err = redlatch.NewSetNXPX(l.client, opts...); err == nil {
		l.prefix, err = l.prefixOf(opts)
	}
	if err == nil {
		l.other, err = redlatch.NewSetNXPX(l.direct, l.theirOptions()...)
	}
	if err != nil {
		tb.Fatalf("NewLocker: %v", err)
	}
	return l
}

// NewReadWrite returns the two Lockers that [redlatch.NewReadWrite] makes with opts, on one Redis.
// They are closed when the test ends. The other owner of read is a reader, and that of write is a
// writer. Steal and Expire take the key from all of its holders. Disconnect and Reconnect are those
// of both Lockers. An option that cannot work fails the test.
func NewReadWrite(tb testing.TB, opts ...redlatch.Option) (read, write *Locker) {
	tb.Helper()
	read = open(tb)
	write = &Locker{
		tb: tb, server: read.server, network: read.network, client: read.client, direct: read.direct, mark: "!",
		theirs: make(map[string]*redlatch.Lock),
	}
	tb.Cleanup(write.unlockTheirs) // before the end of read
	read.permits, write.permits = true, true
	var err error
	if read.Locker, write.Locker, err = redlatch.NewReadWrite(read.client, opts...); err == nil {
		read.prefix, err = read.prefixOf(opts)
		write.prefix = read.prefix
	}
	if err == nil {
		read.other, write.other, err = redlatch.NewReadWrite(read.direct, read.theirOptions()...)
	}
	if err != nil {
		tb.Fatalf("NewReadWrite: %v", err)
	}
	return read, write
}

// Format prints what fmt prints of the embedded Locker.
func (l *Locker) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), l.Locker)
}

// open returns a Locker without its Lockers, which ends with tb.
func open(tb testing.TB) *Locker {
	l := &Locker{tb: tb, server: ahead.New(), theirs: make(map[string]*redlatch.Lock)}
	l.network = newNetwork(l.server)
	l.client, l.direct = newClient(l.network), newClient(newNetwork(l.server))
	tb.Cleanup(l.end)
	return l
}

// theirOptions are those of the other owner. Hooks of the test must not report it, so those of l
// are not among them.
func (l *Locker) theirOptions() []redlatch.Option {
	return []redlatch.Option{redlatch.WithKeyPrefix(l.prefix), redlatch.WithOwner(somebody), redlatch.WithTTL(theirTTL)}
}

// prefixOf returns the key prefix that opts set. An Option cannot be read, so a Locker with opts
// inspects a key, and the server sees the name with the prefix.
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

// Unwrap returns the embedded Locker, for [redlatch.NewMigration] and [redlatch.Forget].
func (l *Locker) Unwrap() redlatch.Locker { return l.Locker }

// Client returns the client that l uses, for code that makes its own Locker. [Locker.Disconnect]
// disconnects it, and it is closed when the test ends.
func (l *Locker) Client() *redis.Client { return l.client }

// Hold lets another owner lock key and renew the lock until [Locker.Free]. It fails the test if key
// is held, but a reader only if a writer or the other owner holds key.
func (l *Locker) Hold(key string) {
	l.tb.Helper()
	ctx := context.Background()
	lock, err := l.other.TryLock(ctx, key)
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		l.tb.Fatalf("Hold(%q): the key is held already: %v", key, err)
	case err != nil:
		l.tb.Fatalf("Hold(%q): %v", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.theirs[key]; before != nil && before.Extend(ctx, time.Millisecond) == nil { // it asks Redis
		_ = lock.Unlock(ctx) // Free would unlock only one of the two
		l.tb.Fatalf("Hold(%q): %s holds the key already", key, somebody)
	}
	l.theirs[key] = lock
}

// Free lets the other owner unlock key, so that the first waiter gets it. It fails the test if key
// is not held by [Locker.Hold] or [Locker.Steal].
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

// Steal lets another owner take key from its holder and keep it until [Locker.Free]. The holder's
// lock is lost. The holder notices at its next renewal, Extend or Unlock. Steal fails the test if
// nobody holds key, or if the other owner already does.
func (l *Locker) Steal(key string) {
	l.tb.Helper()
	if l.holder("Steal", key) == somebody {
		l.tb.Fatalf("Steal(%q): %s holds the key already", key, somebody)
	}
	ctx, token := context.Background(), l.mark+somebody+"/"+uuid.NewString() // as WithOwner makes it
	err := l.put(ctx, l.prefix+key, token)
	var lock *redlatch.Lock
	if err == nil {
		lock, err = l.other.Adopt(ctx, key, redlatch.Token(token))
	}
	if err == nil && l.permits && string(lock.Token()) != token { // a reader has adopted it by a permit of its own
		err = l.direct.ZRem(ctx, l.prefix+key, token).Err()
	}
	if err != nil {
		l.tb.Fatalf("Steal(%q): %v", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.theirs[key] = lock
}

// put gives a key of Redis to a token in place of its holders.
func (l *Locker) put(ctx context.Context, key, token string) error {
	if !l.permits {
		return l.direct.Set(ctx, key, token, theirTTL).Err()
	}
	_, err := l.direct.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Del(ctx, key)
		pipe.ZAdd(ctx, key, redis.Z{Score: float64(ahead.Now().Add(theirTTL).UnixMicro()), Member: token})
		return pipe.PExpire(ctx, key, theirTTL).Err()
	})
	return err
}

// Expire deletes key in Redis, as if its TTL had passed. The lock of its holder, which may be the
// other owner, is lost. The holder notices as after [Locker.Steal]. Waiters get no message: as
// after a crash, one of them finds key free within seconds. Expire fails the test if nobody holds
// key.
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

// Disconnect cuts l off from Redis until [Locker.Reconnect], as an outage does: commands under way
// get no reply, and connections are refused. Keys still expire. If l is already disconnected, it
// does nothing.
func (l *Locker) Disconnect() { l.network.cut() }

// Reconnect ends the outage of [Locker.Disconnect]. If l is connected, it does nothing.
func (l *Locker) Reconnect() { l.network.restore() }

// holder returns the owner of the lock on key. It fails the test of method if there is none.
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

// forget returns and removes the lock of the other owner on key, nil if there is none.
func (l *Locker) forget(key string) *redlatch.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.theirs[key]
	delete(l.theirs, key)
	return lock
}

// settling is how long l stays open at the end of a bubble. By then calls that were cut off have
// timed out, and the subscription, which ends within two seconds after its last waiter, is closed.
const settling = time.Minute

// end closes l. In a bubble it lets time pass first: the clock stops when the test ends, and
// goroutines that wait for a timer would never end.
func (l *Locker) end() {
	l.Reconnect()
	l.unlockTheirs()
	if inBubble() {
		time.Sleep(settling)
	}
	_ = l.client.Close()
	_ = l.direct.Close()
	l.server.Close()
}

// unlockTheirs releases what the other owner holds.
func (l *Locker) unlockTheirs() {
	l.mu.Lock()
	theirs := slices.Collect(maps.Values(l.theirs))
	l.mu.Unlock()
	for _, lock := range theirs {
		_ = lock.Unlock(context.Background())
	}
}

// inBubble reports whether its caller runs in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait() // panics outside a bubble
	return true
}
