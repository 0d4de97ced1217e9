package redlatchrueidis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchrueidis "github.com/redlatch/redlatch/clients/rueidis"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestRepliesAreThoseOfRedis: go-redis reads the same over rueidis as from Redis.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	over, direct := redlatchrueidis.New(connect(t, s)), s.Client(t)
	for _, script := range []string{
		"return 7", "return 'a\\r\\nb'", "return ''", "return false", "return {1, 'x', false, {2, {}}}", "return {ok='fine'}",
		"return redis.error_reply('WRONG type')", "return redis.call('lpop', 'a', 'b', 'c')", "error('boom')", "return redis.call('nothing')",
		"redis.setresp(3); return {double=1.5}", "redis.setresp(3); return true", "redis.setresp(3); return {map={a=1}}",
	} {
		want, wantErr := direct.Eval(t.Context(), script, nil).Result()
		got, err := over.Eval(t.Context(), script, nil).Result()
		require.Equal(t, want, got, script)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), script)
	}
	_, err := over.Do(t.Context(), "set", "k").Result()
	require.ErrorContains(t, err, "ERR wrong number of arguments")
	require.Equal(t, "master", over.(*redis.Client).InfoMap(t.Context(), "replication").Item("Replication", "role"))
}

// TestWhatChangesAConnectionFails: others share it. No part of a transaction is carried out.
func TestWhatChangesAConnectionFails(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := redlatchrueidis.New(connect(t, s))
	_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { return p.Set(t.Context(), "k", 1, 0).Err() })
	require.ErrorContains(t, err, "redlatch: a client of rueidis carries no MULTI")
	require.ErrorContains(t, c.Watch(t.Context(), func(*redis.Tx) error { return nil }, "k"), "carries no WATCH")
	require.ErrorContains(t, c.Do(t.Context(), "").Err(), "carries no command without a name")
	_, err = c.PSubscribe(t.Context(), "*").Receive(t.Context())
	require.ErrorContains(t, err, "carries no PSUBSCRIBE")
	require.Zero(t, s.Client(t).DBSize(t.Context()).Val())
	require.Nil(t, redlatchrueidis.New(nil))
	_, err = redlatch.NewSetNXPX(redlatchrueidis.New(nil))
	require.ErrorIs(t, err, redlatch.ErrInvalid)
}

// TestQuorumNoticesTheSameServer: two clients of it are two nodes with one address.
func TestQuorumNoticesTheSameServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := redlatchrueidis.New(connect(t, s)), redlatchrueidis.New(connect(t, s))
	_, err := redlatch.NewRedlock([]redis.UniversalClient{one, other, redlatchrueidis.New(connect(t, redistest.Start(t)))})
	require.ErrorIs(t, err, redlatch.ErrInvalid)
	require.ErrorContains(t, err, "nodes 0 and 1 are the same server")
	require.Equal(t, 3, redlatchrueidis.NewInDatabase(connect(t, s), 3).(*redis.Client).Options().DB)
}

// TestSilentServerHoldsFewGoroutines: calls end with their timeouts. What rueidis still waits for is
// bounded, and ends when the server answers again.
func TestSilentServerHoldsFewGoroutines(t *testing.T) {
	s := redistest.Start(t)
	l, err := redlatch.NewSetNXPX(redlatchrueidis.New(connect(t, s)), redlatch.WithOpTimeout(500*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
	s.Pause()
	before := runtime.NumGoroutine()
	for range 3 {
		var calls sync.WaitGroup
		for i := range 500 {
			calls.Go(func() { _, _ = l.TryLock(t.Context(), fmt.Sprint("k", i)) })
		}
		calls.Wait()
		require.Less(t, runtime.NumGoroutine()-before, 250)
	}
	s.Resume()
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
}

// TestKilledConnectionsAndRestartsAreSurvived by those who hold and those who wait.
func TestKilledConnectionsAndRestartsAreSurvived(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t, "--appendonly", "yes", "--appendfsync", "always")
	c := connect(t, s)
	l := locktest.SetNXPX(t, redlatchrueidis.New(c), locktest.LongTTL)
	lock := locktest.MustLock(t, l, "k")
	next := locktest.WaitInLine(t, l, "k")
	for _, kind := range []string{"normal", "pubsub"} {
		require.NoError(t, s.Client(t).Do(t.Context(), "client", "kill", "type", kind).Err())
	}
	require.NoError(t, lock.Unlock(t.Context()))
	lock = <-next
	s.Restart(t)
	locktest.Eventually(t, "it is released", func() bool { return lock.Unlock(t.Context()) == nil })
}

// TestClosedClientSaysSo at once: a call that may have been sent before is unknown, and later ones fail.
func TestClosedClientSaysSo(t *testing.T) {
	t.Parallel()
	c := connect(t, redistest.Start(t))
	l := locktest.SetNXPX(t, redlatchrueidis.New(c))
	require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	c.Close()
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redis.ErrClosed)
}

// TestReplicasAreAskedOnTheConnectionOfTheGrant: WAIT on any other one would count nothing.
func TestReplicasAreAskedOnTheConnectionOfTheGrant(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t)
	redistest.StartReplica(t, primary)
	l := locktest.SetNXPX(t, redlatchrueidis.New(connect(t, primary)), redlatch.WithReplicas(1, 3*time.Second))
	require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	few := locktest.SetNXPX(t, redlatchrueidis.New(connect(t, primary)), redlatch.WithReplicas(2, 50*time.Millisecond))
	_, err := few.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotReplicated)
}

// TestEveryServerOfAClusterServes every strategy.
func TestEveryServerOfAClusterServes(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range redistest.StartCluster(t) {
		addrs = append(addrs, s.Addr())
	}
	for name, open := range locktest.Strategies {
		holder := made(t, open, rueidis.ClientOption{InitAddress: addrs[:1]})
		other := made(t, open, rueidis.ClientOption{InitAddress: addrs[1:]})
		for i := range 20 {
			requireHandOver(t, holder, other, fmt.Sprint(name, i))
		}
	}
}

// requireHandOver checks that one Locker excludes another one, which gets the key after it.
func requireHandOver(t *testing.T, holder, other redlatch.Locker, key string) {
	t.Helper()
	lock := locktest.MustLock(t, holder, key)
	_, err := other.TryLock(t.Context(), key)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	next := locktest.Locking(t, other, key)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, (<-next).Unlock(t.Context()))
}

// made returns a Locker with a client of its own.
func made(t *testing.T, strategy func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error), o rueidis.ClientOption) redlatch.Locker {
	t.Helper()
	l, err := strategy(redlatchrueidis.New(open(t, o)), locktest.Patience)
	require.NoError(t, err)
	return l
}

// TestClusterWhoseSlotsMoveHasOneOwner of a key, and fences in order. Calls fail while their slot moves,
// and go on when it has moved.
func TestClusterWhoseSlotsMoveHasOneOwner(t *testing.T) {
	t.Parallel()
	var masters []*redis.Client
	var addrs []string
	for _, s := range redistest.StartCluster(t) {
		masters, addrs = append(masters, s.Client(t)), append(addrs, s.Addr())
	}
	keys := []string{"bar", "c", "foo"} // of all masters
	locks := make([]contended, len(keys))
	ctx, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 3 {
		l := made(t, locktest.Strategies["SetNXPX"], rueidis.ClientOption{InitAddress: addrs})
		for i := range 4 * len(keys) {
			callers.Go(func() { locks[i%len(keys)].take(ctx, t, l, keys[i%len(keys)]) })
		}
	}
	goOn := func() {
		for i := range locks {
			enough := locks[i].grants.Load() + 20
			locktest.Eventually(t, "callers get "+keys[i], func() bool { return locks[i].grants.Load() >= enough })
		}
	}
	moves := []*redistest.Move{redistest.MoveOf(t, masters, "bar"), redistest.MoveOf(t, masters, "foo")}
	for range 2 {
		for _, step := range []func(*redistest.Move){
			func(*redistest.Move) { goOn() },
			func(m *redistest.Move) { m.Announce(t) },
			func(m *redistest.Move) { m.Keys(t) },
			func(m *redistest.Move) { m.Finish(t) },
		} {
			for _, m := range moves {
				step(m)
			}
		}
		for i, m := range moves {
			moves[i] = m.Onward(t)
		}
	}
	goOn()
	end()
	callers.Wait()
}

// A contended is a lock that many take, each for a moment.
type contended struct {
	owners, grants atomic.Int64
	fence          atomic.Uint64 // of the last grant
}

// take takes the lock until ctx ends.
func (c *contended) take(ctx context.Context, t *testing.T, l redlatch.Locker, key string) {
	for ctx.Err() == nil {
		lock, err := l.Lock(ctx, key, locktest.LongTTL)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, redlatch.ErrUnavailable) {
				t.Error(key, err)
			}
			continue
		}
		if c.owners.Add(1) > 1 {
			t.Error("two owners of ", key)
		}
		if before := c.fence.Swap(lock.Fence()); before >= lock.Fence() {
			t.Errorf("%s: fence %d after %d", key, lock.Fence(), before)
		}
		c.grants.Add(1)
		c.owners.Add(-1)
		if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, redlatch.ErrUnavailable) {
			t.Error(key, err)
		}
	}
}

// TestEncryptedConnectionsServe every strategy, with those for messages. If rueidis does not trust the
// server, the error says why.
func TestEncryptedConnectionsServe(t *testing.T) {
	t.Parallel()
	s, authorities := redistest.StartTLS(t)
	o := rueidis.ClientOption{InitAddress: []string{s.Addr()}, TLSConfig: &tls.Config{RootCAs: authorities}}
	for name, open := range locktest.Strategies {
		requireHandOver(t, made(t, open, o), made(t, open, o), name)
	}
	o.TLSConfig, o.ForceSingleClient = &tls.Config{}, true
	distrustful, err := rueidis.NewClient(o)
	const why = "certificate signed by unknown authority"
	require.ErrorContains(t, err, why)
	t.Cleanup(distrustful.Close)
	_, err = locktest.SetNXPX(t, redlatchrueidis.New(distrustful), locktest.Briefly).TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.ErrorContains(t, err, why)
}

// TestAddressThatMovesIsFollowed when the connections to the old primary end with their lifetime. The
// old one lives, as a replica, and so do the connections for messages.
func TestAddressThatMovesIsFollowed(t *testing.T) {
	t.Parallel()
	old := redistest.StartTCP(t)
	promoted := redistest.StartReplica(t, old)
	p := faultproxy.New(t, old.Network(), old.Addr())
	l := made(t, locktest.Strategies["SetNXPX"], rueidis.ClientOption{
		InitAddress: []string{p.Addr()}, ForceSingleClient: true, ConnLifetime: time.Second,
	})
	lock := locktest.MustLock(t, l, "k", locktest.LongTTL)
	next := locktest.WaitInLine(t, l, "k")
	locktest.Eventually(t, "it is replicated", func() bool { return promoted.Client(t).Exists(t.Context(), "k").Val() == 1 })
	require.NoError(t, promoted.Client(t).ReplicaOf(t.Context(), "no", "one").Err())
	host, port, err := net.SplitHostPort(promoted.Addr())
	require.NoError(t, err)
	require.NoError(t, old.Client(t).ReplicaOf(t.Context(), host, port).Err())
	p.PointAt(promoted.Network(), promoted.Addr())
	require.NoError(t, lock.Unlock(t.Context()))
	lock = <-next
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestSentinelsLeadToTheNewPrimary when the first one has died.
func TestSentinelsLeadToTheNewPrimary(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t)
	redistest.StartReplica(t, primary)
	o := rueidis.ClientOption{Sentinel: rueidis.SentinelOption{MasterSet: "main"}}
	for _, s := range redistest.StartSentinels(t, "main", primary) {
		o.InitAddress = append(o.InitAddress, s.Addr())
	}
	l := made(t, locktest.Strategies["SetNXPX"], o)
	require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	primary.Kill()
	require.NoError(t, locktest.LockSoon(t, l, "k").Unlock(t.Context()))
}
