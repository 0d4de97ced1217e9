package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

	// patience is the timeout of commands that meet no outage, on a machine that may be busy.
	patience = time.Minute
)

// A Locker is a [redlatch.Locker] on its own Redis, with methods that simulate other owners and
// outages. Its methods may be called from many goroutines.
//
// Another owner stands for another process. It reaches Redis even while the Locker is disconnected,
// and its name in [redlatch.HeldError] and [redlatch.Status] is "somebody else". Keys are named as
// for Lock, without the prefix of [redlatch.WithKeyPrefix].
//
// A method that fails ends the test with Fatalf.
type Locker struct {
	redlatch.Locker

	tb     testing.TB
	nodes  []*Node
	other  redlatch.Locker // of the other owner
	prefix string          // of all keys in Redis
	kind   kind

	mu     sync.Mutex                  // guards the field below
	theirs map[string][]*redlatch.Lock // of the other owner, more than one only with a semaphore
}

// Format prints what fmt prints of the embedded Locker.
func (l *Locker) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), l.Locker)
}

// Unwrap returns the embedded Locker, through which [redlatch.Drain], [redlatch.Forget],
// [redlatch.NewElection] and [redlatch.NewMigration] look.
func (l *Locker) Unwrap() redlatch.Locker { return l.Locker }

// Client returns the client that l uses, for code that makes its own Locker. [Locker.Disconnect]
// and [Locker.Delay] apply to it, and it is closed when the test ends. With [NewRedlock] it is the
// client of the first node.
func (l *Locker) Client() *redis.Client { return l.nodes[0].client }

// Nodes returns the nodes of l: one, or those of [NewRedlock].
func (l *Locker) Nodes() []*Node { return slices.Clone(l.nodes) }

// Hold lets another owner lock key and renew the lock until [Locker.Free]. It fails the test if key
// is held. If the other owner is a reader, it fails only if a writer or the other owner holds key.
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
	if l.kind.several {
		l.theirs[key] = append(l.theirs[key], lock)
		return
	}
	for _, before := range l.theirs[key] {
		if before.Extend(ctx, time.Millisecond) == nil { // it asks Redis
			_ = lock.Unlock(ctx) // Free would unlock only one of the two
			l.tb.Fatalf("Hold(%q): %s holds the key already", key, somebody)
		}
	}
	l.theirs[key] = []*redlatch.Lock{lock}
}

// Free lets the other owner unlock key, so that the first waiter gets it. It fails the test if key
// is not held by [Locker.Hold] or [Locker.Steal].
func (l *Locker) Free(key string) {
	l.tb.Helper()
	locks := l.forget(key, 1)
	if len(locks) == 0 {
		l.tb.Fatalf("Free(%q): somebody else does not hold the key: call Hold or Steal before", key)
	}
	for _, lock := range locks {
		if err := lock.Unlock(context.Background()); err != nil {
			l.tb.Fatalf("Free(%q): %v", key, err)
		}
	}
}

// Steal lets another owner take key from its holder and keep it until [Locker.Free]. The holder's
// lock is lost. The holder notices at its next renewal, Extend or Unlock, or when its Locker is
// refused. Steal fails the test if nobody holds key, or if the other owner already does.
func (l *Locker) Steal(key string) {
	l.tb.Helper()
	owner := l.holder("Steal", key)
	ctx, token := context.Background(), l.kind.mark+somebody+"/"+uuid.NewString() // as WithOwner makes it
	taken, err := owner != somebody, error(nil)
	if l.kind.permits {
		taken, err = l.takePermits(ctx, l.prefix+key, token)
	} else if taken {
		err = l.onAll(func(c *redis.Client) error { return c.Set(ctx, l.prefix+key, token, theirTTL).Err() })
	}
	if !taken && err == nil {
		l.tb.Fatalf("Steal(%q): %s holds the key already", key, somebody)
	}
	var lock *redlatch.Lock
	if err == nil {
		lock, err = l.other.Adopt(ctx, key, redlatch.Token(token))
	}
	if err == nil && l.kind.permits && string(lock.Token()) != token { // a reader has adopted it by a permit of its own
		err = l.nodes[0].direct.ZRem(ctx, l.prefix+key, token).Err()
	}
	if err != nil {
		l.tb.Fatalf("Steal(%q): %v", key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kind.several {
		l.theirs[key] = append(l.theirs[key], lock)
	} else {
		l.theirs[key] = []*redlatch.Lock{lock}
	}
}

// takePermits gives token a permit of a key of Redis in place of the holders, if one of them is not
// the other owner. Where that can have several permits, it keeps them.
func (l *Locker) takePermits(ctx context.Context, key, token string) (taken bool, err error) {
	redisOf := l.nodes[0].direct
	members, err := redisOf.ZRange(ctx, key, 0, -1).Result()
	var leave []any
	for _, member := range members {
		theirs := strings.Contains(member, somebody+"/")
		taken = taken || !theirs
		if !theirs || !l.kind.several {
			leave = append(leave, member)
		}
	}
	if err != nil || !taken {
		return taken, err
	}
	_, err = redisOf.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZRem(ctx, key, leave...)
		pipe.ZAdd(ctx, key, redis.Z{Score: float64(ahead.Now().Add(theirTTL).UnixMicro()), Member: token})
		return pipe.PExpire(ctx, key, theirTTL).Err()
	})
	return true, err
}

// onAll calls do for each node.
func (l *Locker) onAll(do func(direct *redis.Client) error) error {
	for _, n := range l.nodes {
		if err := do(n.direct); err != nil {
			return err
		}
	}
	return nil
}

// Expire deletes key in Redis, as if its TTL had passed. The lock of its holder, which may be the
// other owner, is lost. The holder notices as after [Locker.Steal]. Waiters get no message: as
// after a crash, one of them finds key free within seconds. Expire fails the test if nobody holds
// key.
func (l *Locker) Expire(key string) {
	l.tb.Helper()
	l.holder("Expire", key)
	ctx := context.Background()
	err := l.onAll(func(c *redis.Client) error { return c.Del(ctx, l.prefix+key).Err() })
	if err != nil {
		l.tb.Fatalf("Expire(%q): %v", key, err)
	}
	for _, lock := range l.forget(key, math.MaxInt) {
		_ = lock.Unlock(ctx) // it is lost, and must not be renewed any more
	}
}

// Disconnect cuts l off from Redis until [Locker.Reconnect], as an outage does: commands under way
// get no reply, and connections are refused. Keys still expire. If l is already disconnected, it
// does nothing.
func (l *Locker) Disconnect() {
	for _, n := range l.nodes {
		n.Disconnect()
	}
}

// Reconnect ends the outage of [Locker.Disconnect]. If l is connected, it does nothing.
func (l *Locker) Reconnect() {
	for _, n := range l.nodes {
		n.Reconnect()
	}
}

// Delay makes Redis slow for l: each command takes d longer, until Delay(0). Half of d passes
// before Redis carries the command out, and half before the reply arrives; a message of Redis also
// takes half of d. Commands that are sent together take d once. A new connection costs one more
// command, and so does a script that Redis does not know yet. A call fails with
// [redlatch.ErrUnavailable] if its command takes longer than [redlatch.WithOpTimeout].
//
// If d is shorter than before, a command under way arrives as soon as a new one would.
func (l *Locker) Delay(d time.Duration) {
	for _, n := range l.nodes {
		n.Delay(d)
	}
}

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

// forget returns and removes up to n locks of the other owner on key.
func (l *Locker) forget(key string, n int) (locks []*redlatch.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	locks = l.theirs[key]
	locks = locks[:min(n, len(locks))]
	if l.theirs[key] = l.theirs[key][len(locks):]; len(l.theirs[key]) == 0 {
		delete(l.theirs, key)
	}
	return locks
}

// unlockTheirs releases what the other owner holds.
func (l *Locker) unlockTheirs() {
	l.mu.Lock()
	theirs := slices.Concat(slices.Collect(maps.Values(l.theirs))...)
	l.mu.Unlock()
	for _, lock := range theirs {
		_ = lock.Unlock(context.Background())
	}
}
