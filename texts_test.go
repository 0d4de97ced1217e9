package redlatch

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	core "github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/node"
)

var update = flag.Bool("update", false, "write testdata/texts.golden anew")

// TestTexts: every text that a user can see is in testdata/texts.golden, one line each.
func TestTexts(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer client.Close()
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	ctx := context.Background()
	at := time.Date(2026, 1, 2, 3, 4, 5, 65e5, time.UTC)
	try := func(opts ...Option) error {
		_, err := l.TryLock(ctx, "k", opts...)
		return err
	}
	expired := func(why core.Why, trouble error) error {
		return wrap("unlock", "k", endError(why, clock.MonoOf(at), trouble))
	}
	unavailable := func(err error) error { return wrap("lock", "k", err) }
	quorum := &QuorumError{
		Op: "acquire", Key: "app:k", Need: 2, names: []string{"10.0.0.1:6379", "10.0.0.2:6379", "node 2"},
		Nodes: []error{nil, &node.NoReply{Within: time.Second}, errNotWaitedFor}, err: ErrNoQuorum,
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
	_, unqueued := NewSemaphore(client, 2, WithoutQueue())
	_, _, sideless := NewReadWrite(nil)
	_, _, marked := NewReadWrite(client, WithOwner("!api-7"))
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	_, onRing := NewSemaphore(ring, 2, WithReplicas(1, time.Second))
	_, slowReplicas := NewSemaphore(client, 2, WithReplicas(1, 5*time.Second))
	_, briefLease := NewSemaphore(client, 2, WithReplicas(1, time.Second), WithTTL(time.Second))
	_, noToken := l.Adopt(ctx, "k", "")
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
		{"refused", unavailable(heldBy(reply{err: ErrNotAcquired}))},
		{"refused by a caller of the Locker", unavailable(&HeldError{ours: true, err: ErrNotAcquired})},
		{"refused by a caller of the Locker with a name", unavailable(&HeldError{Owner: "api-7", ours: true, err: ErrNotAcquired})},
		{"refused by an owner", unavailable(heldBy(reply{err: ErrNotAcquired, holder: tokenOf("api-7/pid 12")}))},
		{"refused by a quorum", unavailable(heldBy(reply{err: refused, left: time.Second}))},
		{"a QuorumError of another package", foreign},
		{"refused by a split quorum", unavailable(heldBy(reply{err: split, left: time.Second}))},
		{"refused by the last owner", unavailable(heldBy(reply{err: ErrNotAcquired, holder: "~" + tokenOf("api-7")}))},
		{"gave up, nothing was sent", unavailable(&gaveUp{context.Canceled, nil})},
		{"gave up, held", unavailable(&gaveUp{context.DeadlineExceeded, heldBy(reply{err: ErrNotAcquired, holder: tokenOf("api-7")})})},
		{"gave up, no reply", unavailable(&gaveUp{context.DeadlineExceeded, errors.New("no reply")})},
		{"gave up, trouble", unavailable(&gaveUp{context.DeadlineExceeded, &node.NoReply{Within: time.Second}})},
		{"no reply", unavailable(&node.NoReply{Within: time.Second})},
		{"no reply after trouble", unavailable(&node.NoReply{Within: time.Second, Last: errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")})},
		{"still failing", unavailable(&node.NoReply{Within: time.Second, Last: node.Explain(loading)})},
		{"no quorum", unavailable(quorum)},
		{"too slow", unavailable(errSlow)},
		{"lost, gone", wrap("extend", "k", errDeleted)},
		{"lost, taken", wrap("extend", "k", errTaken)},
		{"lost, gone or taken", wrap("unlock", "k", errNotOurs)},
		{"lost, overwritten", wrap("extend", "k", errOverwritten)},
		{"lost, a fixed lease", expired(core.Fixed, nil)},
		{"lost, trouble", expired(core.Failing, &node.NoReply{Within: time.Second})},
		{"lost, in silence", expired(core.Silent, nil)},
		{"lost, a paused process", expired(core.Late, nil)},
		{"lost, adopted too late", adopted},
		{"max hold", wrap("unlock", "k", ErrMaxHold)},
		{"released before", lock.Unlock(ctx)},
		{"not replicated", unavailable(fmt.Errorf("%w: %d of %d replicas confirmed it within %v", ErrNotReplicated, 0, 1, time.Second))},
		{"an odd reply", unavailable(oddReply("what"))},
		{"TTL", try(WithTTL(0))},
		{"max hold below", try(WithMaxHold(-time.Second))},
		{"op timeout", try(WithOpTimeout(0))},
		{"poll interval", try(WithPollInterval(time.Second, time.Millisecond))},
		{"drift", try(WithDrift(1))},
		{"drift, no number", try(WithDrift(math.NaN()))},
		{"owner on two lines", try(WithOwner("a\nb"))},
		{"owner too long", try(WithOwner(strings.Repeat("x", 201)))},
		{"replicas", try(WithReplicas(0, time.Second))},
		{"replicas, read timeout", try(WithReplicas(1, 5*time.Second))},
		{"no option", try(nil)},
		{"replicas of LegacySetNX", replicas},
		{"no permits", permits},
		{"too many permits", crowded},
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
		{"extension without ctx", lock.Extend(nil, time.Second)}, //nolint:staticcheck // a caller may pass nil
		{"do without a Locker", Do(ctx, nil, "k", func(context.Context, *Lock) error { return nil })},
		{"do nothing", Do(ctx, l, "k", nil)},
		{"try to do nothing", TryDo(ctx, l, "k", nil)},
		{"do all without keys", DoAll(ctx, l, nil, nothing)},
		{"do all with an empty key", DoAll(ctx, l, []string{"k", ""}, nothing)},
		{"try to do all without keys", TryDoAll(ctx, l, nil, nothing)},
		{"lost before all were acquired", firstEnd("do all", []*Lock{lock})},
		{"lead, stopped", Lead(stopped, l, "k", func(context.Context, *Lock) error { return nil })},
		{"lead, fn runs on", overran(errDeleted)},
		{"a line break", wrap("lock", "two\nlines", errors.New("one\ntwo"))},
	} {
		require.Error(t, c.err, c.what)
		require.NotContains(t, c.err.Error(), "\n", c.what)
		fmt.Fprintf(&b, "%s: %s\n", c.what, c.err)
	}
	const golden = "testdata/texts.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "if the change is intended: go test -run TestTexts . -update")
}
