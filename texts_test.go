package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// redisAnswer is an error reply of Redis.
type redisAnswer string

func (r redisAnswer) Error() string { return string(r) }

func (redisAnswer) RedisError() {}

// TestTexts: every text that a user can see is in texts, one line each.
func TestTexts(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer client.Close()
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	ctx := context.Background()
	try := func(opts ...Option) error {
		_, err := l.TryLock(ctx, "k", opts...)
		return err
	}
	unavailable := func(err error) error { return wrap("lock", "k", err) }
	quorum := &QuorumError{
		Op: "acquire", Key: "k", Need: 2, names: []string{"10.0.0.1:6379", "10.0.0.2:6379", "node 2"},
		Nodes: []error{nil, &rediserr.NoReply{Within: time.Second}, errNotWaitedFor}, err: ErrNoQuorum,
	}
	refused := &QuorumError{
		Op: "acquire", Key: "k", Need: 1, names: []string{"10.0.0.1:6379"}, Nodes: []error{ErrNotAcquired}, err: ErrNotAcquired,
	}
	foreign := &QuorumError{Op: "acquire", Key: "k", Need: 1, Nodes: []error{nil}}
	split := &QuorumError{
		Op: "acquire", Key: "k", Need: 2, names: []string{"node 0", "node 1"}, Nodes: []error{ErrNotAcquired, nil}, err: errSplit,
	}
	loading := redisAnswer("LOADING Redis is loading the dataset in memory")
	_, adopted := l.Adopt(ctx, "k", "stranger")
	legacy, err := NewLegacySetNX(client)
	require.NoError(t, err)
	_, redlockless := NewRedlock(nil)
	_, crowd := NewRedlock(make([]redis.UniversalClient, 65))
	_, twice := NewRedlock([]redis.UniversalClient{client, client})
	_, nobody := NewSetNXPX(nil)
	_, alone := NewMigration(l, nil)
	_, one := NewMigration(l, l)
	_, same := NewMigration(l, legacy)
	_, empty := l.Lock(ctx, "")
	_, none := l.Lock(nil, "k") //nolint:staticcheck // a caller may pass nil
	_, register := l.Lock(ctx, "redlatch:fence")
	_, replicas := NewLegacySetNX(client, WithReplicas(1, time.Second))
	_, permits := NewSemaphore(client, 0)
	most := math.MaxInt32
	_, crowded := NewSemaphore(client, most+1)
	_, limited := NewSemaphore(client, 2, WithLimit(2))
	reads, _, _ := NewReadWrite(client)
	_, _, limitedBoth := NewReadWrite(client, WithLimit(most))
	_, limitedReads := reads.TryLock(ctx, "k", WithLimit(most))
	_, unqueued := NewSemaphore(client, 2, WithoutQueue())
	_, _, sideless := NewReadWrite(nil)
	_, _, marked := NewReadWrite(client, WithOwner("!api-7"))
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	_, onRing := NewSemaphore(ring, 2, WithReplicas(1, time.Second))
	_, slowReplicas := NewSemaphore(client, 2, WithReplicas(1, 5*time.Second))
	_, briefLease := NewSemaphore(client, 2, WithReplicas(1, time.Second), WithTTL(time.Second))
	_, noToken := l.Adopt(ctx, "k", "")
	graceful, err := l.TryLock(ctx, "k", WithGrace(time.Second))
	require.NoError(t, err)
	brief := graceful.Extend(ctx, 1500*time.Microsecond)
	require.NoError(t, graceful.Unlock(ctx))
	_, legacyHold := NewLegacySetNX(client, WithMinHold(math.MaxInt64))
	lock, err := l.TryLock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(nil)) //nolint:staticcheck // a caller may pass nil

	nothing := func(context.Context, []*Lock) error { return nil }
	stopped, stop := context.WithCancelCause(ctx)
	stop(errors.New("shutdown"))

	var b strings.Builder
	for _, c := range []struct {
		what string
		err  error
	}{
		{"refused", unavailable(heldBy("k", reply{err: ErrNotAcquired}))},
		{"refused by a caller of the Locker", unavailable(&HeldError{ours: true})},
		{"refused by a caller of the Locker with a name", unavailable(&HeldError{Owner: "api-7", ours: true})},
		{"refused by an owner", unavailable(heldBy("k", reply{err: ErrNotAcquired, holder: tokenOf("api-7/pid 12")}))},
		{"refused by a quorum", unavailable(heldBy("k", reply{err: refused, left: time.Second}))},
		{"a QuorumError of another package", foreign},
		{"refused by a split quorum", unavailable(heldBy("k", reply{err: split, left: time.Second}))},
		{"refused by a min hold", unavailable(heldBy("k", reply{err: ErrNotAcquired, left: 63004 * time.Millisecond, holder: "~" + tokenOf("api-7")}))},
		{"refused by a min hold of unknown length", unavailable(heldBy("k", reply{err: ErrNotAcquired, holder: "~" + tokenOf("api-7")}))},
		{"gave up, nothing was sent", unavailable(&gaveUp{context.Canceled, nil})},
		{"gave up, held", unavailable(&gaveUp{context.DeadlineExceeded, heldBy("k", reply{err: ErrNotAcquired, holder: tokenOf("api-7")})})},
		{"gave up, no reply", unavailable(&gaveUp{context.DeadlineExceeded, errors.New("no reply")})},
		{"gave up, trouble", unavailable(&gaveUp{context.DeadlineExceeded, &rediserr.NoReply{Within: time.Second}})},
		{"no reply", unavailable(&rediserr.NoReply{Within: time.Second})},
		{"no reply after trouble", unavailable(&rediserr.NoReply{Within: time.Second, Last: errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")})},
		{"still failing", unavailable(&rediserr.NoReply{Within: time.Second, Last: rediserr.Explain(loading)})},
		{"no quorum", unavailable(quorum)},
		{"too slow", unavailable(errSlow)},
		{"lost, gone", wrap("extend", "k", errDeleted)},
		{"lost, taken", wrap("extend", "k", errTaken)},
		{"lost, gone or taken", wrap("unlock", "k", errNotOurs)},
		{"lost, overwritten", wrap("extend", "k", errOverwritten)},
		{"lost, adopted too late", adopted},
		{"max hold", wrap("unlock", "k", ErrMaxHold)},
		{"released before", lock.Unlock(ctx)},
		{"not replicated", unavailable(fmt.Errorf("%w: %d of %d replicas confirmed it within %v", ErrNotReplicated, 0, 1, time.Second))},
		{"an odd reply", unavailable(oddReply("what"))},
		{"TTL", try(WithTTL(0))},
		{"max hold below", try(WithMaxHold(-time.Second))},
		{"op timeout", try(WithOpTimeout(0))},
		{"poll interval", try(WithPollInterval(time.Second, time.Millisecond))},
		{"max wait", try(WithMaxWait(-time.Second))},
		{"grace", try(WithGrace(-time.Second))},
		{"grace, nothing left", try(WithTTL(2*time.Second), WithGrace(2*time.Second))},
		{"grace, nothing left of the longest TTL", try(WithTTL(math.MaxInt64), WithGrace(math.MaxInt64))},
		{"min hold, longer than the max hold", try(WithMinHold(math.MaxInt64), WithMaxHold(time.Hour))},
		{"min hold of LegacySetNX", legacyHold},
		{"owner on two lines", try(WithOwner("a\nb"))},
		{"owner that is no text", try(WithOwner("\xff"))},
		{"owner too long", try(WithOwner(strings.Repeat("x", 201)))},
		{"replicas", try(WithReplicas(0, time.Second))},
		{"replicas, read timeout", try(WithReplicas(1, 5*time.Second))},
		{"no option", try(nil)},
		{"replicas of LegacySetNX", replicas},
		{"no permits", permits},
		{"too many permits", crowded},
		{"no limit", try(WithLimit(0))},
		{"too high a limit", try(WithLimit(most + 1))},
		{"limit of a lock", try(WithLimit(3))},
		{"limit of readers", limitedReads},
		{"limit as a default", limited},
		{"limit of both sides", limitedBoth},
		{"a semaphore without a queue", unqueued},
		{"read-write locks without a client", sideless},
		{"read-write locks with the mark of a writer", marked},
		{"replicas of a semaphore on a ring", onRing},
		{"replicas of a semaphore, read timeout", slowReplicas},
		{"replicas of a semaphore, TTL", briefLease},
		{"no key", empty},
		{"no ctx", none},
		{"the register", register},
		{"no clients", redlockless},
		{"too many clients", crowd},
		{"one client twice", twice},
		{"no client", nobody},
		{"no Locker", alone},
		{"one Locker", one},
		{"one place", same},
		{"no token", noToken},
		{"extension", lock.Extend(ctx, 0)},
		{"extension, nothing left of it", brief},
		{"extension without ctx", lock.Extend(nil, time.Second)}, //nolint:staticcheck // a caller may pass nil
		{"do without a Locker", Do(ctx, nil, "k", func(context.Context, *Lock) error { return nil })},
		{"do nothing", Do(ctx, l, "k", nil)},
		{"try to do nothing", TryDo(ctx, l, "k", nil)},
		{"do all without keys", DoAll(ctx, l, nil, nothing)},
		{"do all with an empty key", DoAll(ctx, l, []string{"k", ""}, nothing)},
		{"try to do all without keys", TryDoAll(ctx, l, nil, nothing)},
		{"lost before all were acquired", firstEnd("do all", []*Lock{lock})},
		{"lead, stopped", Lead(stopped, l, "k", func(context.Context, *Lock) error { return nil })},
		{"lead, max wait", Lead(ctx, l, "k", func(context.Context, *Lock) error { return nil }, WithMaxWait(math.MaxInt64))},
		{"a line break", wrap("lock", "two\nlines", errors.New("one\ntwo"))},
	} {
		require.Error(t, c.err, c.what)
		require.NotContains(t, c.err.Error(), "\n", c.what)
		fmt.Fprintf(&b, "%s: %s\n", c.what, c.err)
	}
	require.Equal(t, texts, b.String())
}

const texts = `refused: redlatch: lock "k": held by another owner
refused by a caller of the Locker: redlatch: lock "k": held by another caller of this Locker
refused by a caller of the Locker with a name: redlatch: lock "k": held by "api-7", a caller of this Locker
refused by an owner: redlatch: lock "k": held by "api-7/pid 12"
refused by a quorum: redlatch: lock "k": held by another owner: acquire "k" needs 1 of 1 nodes; 10.0.0.1:6379: held by another owner
a QuorumError of another package: redlatch: no quorum of the nodes answered: acquire "k" needs 1 of 1 nodes; node 0: done
refused by a split quorum: redlatch: lock "k": no owner has a quorum of the nodes: acquire "k" needs 2 of 2 nodes; node 0: held by another owner; node 1: done
refused by a min hold: redlatch: lock "k": nobody holds it, but a min hold keeps others out for another 1m3.004s
refused by a min hold of unknown length: redlatch: lock "k": nobody holds it, but a min hold keeps others out
gave up, nothing was sent: redlatch: lock "k": gave up waiting: context canceled: nothing was sent
gave up, held: redlatch: lock "k": gave up waiting: context deadline exceeded: the last attempt: held by "api-7"
gave up, no reply: redlatch: lock "k": gave up waiting: context deadline exceeded: the last attempt: no reply
gave up, trouble: redlatch: lock "k": gave up waiting: context deadline exceeded: the last attempt: no reply within 1s
no reply: redlatch: lock "k": no reply within 1s
no reply after trouble: redlatch: lock "k": no reply within 1s: dial tcp 10.0.0.1:6379: connect: connection refused
still failing: redlatch: lock "k": still failing after 1s: LOADING Redis is loading the dataset in memory
no quorum: redlatch: lock "k": no quorum of the nodes answered: acquire "k" needs 2 of 3 nodes; 10.0.0.1:6379: done; 10.0.0.2:6379: no reply within 1s; node 2: not waited for
too slow: redlatch: lock "k": lock lost: the grant took longer than the lease lasts
lost, gone: redlatch: extend "k": lock lost: the key is gone: expired, deleted or evicted
lost, taken: redlatch: extend "k": lock lost: another owner has the key
lost, gone or taken: redlatch: unlock "k": lock lost: the key is gone (expired, deleted or evicted), or another owner has it
lost, overwritten: redlatch: extend "k": lock lost: the key holds something else
lost, adopted too late: redlatch: adopt "k": lock lost: the key is gone: expired, deleted or evicted
max hold: redlatch: unlock "k": lock lost: held for as long as WithMaxHold allows
released before: redlatch: unlock "k": lock already released
not replicated: redlatch: lock "k": not replicated: 0 of 1 replicas confirmed it within 1s
an odd reply: redlatch: lock "k": unexpected reply of type string
TTL: redlatch: try lock "k": invalid argument: WithTTL(0s): below 3ms
max hold below: redlatch: try lock "k": invalid argument: WithMaxHold(-1s): below 1ms
op timeout: redlatch: try lock "k": invalid argument: WithOpTimeout(0s): not positive
poll interval: redlatch: try lock "k": invalid argument: WithPollInterval(1s, 1ms): not 1ms <= shortest <= longest
max wait: redlatch: try lock "k": invalid argument: WithMaxWait(-1s): negative
grace: redlatch: try lock "k": invalid argument: WithGrace(-1s): negative
grace, nothing left: redlatch: try lock "k": invalid argument: WithGrace(2s): leaves nothing of a TTL of 2s
grace, nothing left of the longest TTL: redlatch: try lock "k": invalid argument: WithGrace(2562047h47m16.854775807s): leaves nothing of a TTL of 876000h0m0s
min hold, longer than the max hold: redlatch: try lock "k": invalid argument: WithMinHold(2562047h47m16.854775807s): longer than WithMaxHold(1h0m0s)
min hold of LegacySetNX: redlatch: new legacysetnx: invalid argument: WithMinHold(2562047h47m16.854775807s): legacysetnx does not support it
owner on two lines: redlatch: try lock "k": invalid argument: WithOwner("a\nb"): '\n' cannot be printed
owner that is no text: redlatch: try lock "k": invalid argument: WithOwner("\xff"): not valid UTF-8
owner too long: redlatch: try lock "k": invalid argument: WithOwner("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"): longer than 200 bytes
replicas: redlatch: try lock "k": invalid argument: WithReplicas(0, 1s): below one replica or 1ms
replicas, read timeout: redlatch: try lock "k": invalid argument: WithReplicas(1, 5s): not below the client's ReadTimeout, 5s
no option: redlatch: try lock "k": invalid argument: option 0 is nil
replicas of LegacySetNX: redlatch: new legacysetnx: invalid argument: WithReplicas(1, 1s): legacysetnx does not support it
no permits: redlatch: new semaphore: invalid argument: limit 0: not from 1 to 2147483647
too many permits: redlatch: new semaphore: invalid argument: limit 2147483648: not from 1 to 2147483647
no limit: redlatch: try lock "k": invalid argument: WithLimit(0): not from 1 to 2147483647
too high a limit: redlatch: try lock "k": invalid argument: WithLimit(2147483648): not from 1 to 2147483647
limit of a lock: redlatch: try lock "k": invalid argument: WithLimit(3): setnxpx does not support it
limit of readers: redlatch: try lock "k": invalid argument: WithLimit(2147483647): a read-write lock does not support it
limit as a default: redlatch: new semaphore: invalid argument: WithLimit(2): an option of a call, not of its Locker
limit of both sides: redlatch: new read-write: invalid argument: WithLimit(2147483647): a read-write lock does not support it
a semaphore without a queue: redlatch: new semaphore: invalid argument: WithoutQueue: permits are granted in the order of arrival
read-write locks without a client: redlatch: new read-write: invalid argument: client is nil
read-write locks with the mark of a writer: redlatch: new read-write: invalid argument: WithOwner("!api-7"): no name begins with "!"
replicas of a semaphore on a ring: redlatch: new semaphore: invalid argument: WithReplicas(1, 1s): a *redis.Ring cannot send WAIT on the connection of the grant
replicas of a semaphore, read timeout: redlatch: new semaphore: invalid argument: WithReplicas(1, 5s): not below the client's ReadTimeout, 5s
replicas of a semaphore, TTL: redlatch: new semaphore: invalid argument: WithReplicas(1, 1s): not below the 988ms for which a lock with a TTL of 1s is trusted
no key: redlatch: lock: invalid argument: key is empty
no ctx: redlatch: lock "k": invalid argument: ctx is nil
the register: redlatch: lock "redlatch:fence": invalid argument: key "redlatch:fence": the fences of all locks are kept there
no clients: redlatch: new redlock: invalid argument: 0 clients: not from 1 to 64
too many clients: redlatch: new redlock: invalid argument: 65 clients: not from 1 to 64
one client twice: redlatch: new redlock: invalid argument: nodes 0 and 1 are the same server
no client: redlatch: new setnxpx: invalid argument: client is nil
no Locker: redlatch: new migration: invalid argument: to is nil
one Locker: redlatch: new migration: invalid argument: from and to are the same Locker
one place: redlatch: new migration: invalid argument: from and to keep a key in the same place: give one of them a WithKeyPrefix
no token: redlatch: adopt "k": invalid argument: token is empty
extension: redlatch: extend "k": invalid argument: Extend(0s): below 1ms
extension, nothing left of it: redlatch: extend "k": invalid argument: Extend(1.5ms): WithGrace(1s) leaves nothing of it
extension without ctx: redlatch: extend "k": invalid argument: ctx is nil
do without a Locker: redlatch: do "k": invalid argument: the Locker is nil
do nothing: redlatch: do "k": invalid argument: fn is nil
try to do nothing: redlatch: try do "k": invalid argument: fn is nil
do all without keys: redlatch: do all: invalid argument: there are no keys
do all with an empty key: redlatch: do all: invalid argument: a key is empty
try to do all without keys: redlatch: try do all: invalid argument: there are no keys
lost before all were acquired: redlatch: do all "k": lock already released, before all locks were acquired
lead, stopped: redlatch: lead "k": context canceled: shutdown
lead, max wait: redlatch: lead "k": invalid argument: WithMaxWait(2562047h47m16.854775807s): a follower waits until ctx ends
a line break: redlatch: lock "two\nlines": one two
`

// tokenOf returns a token of an owner.
func tokenOf(owner string) string {
	token, _ := wire.NewMint().Token(owner, wire.Queueing, 0)
	return token
}
