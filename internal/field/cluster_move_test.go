package field_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// A move is that of a slot to another master. It is open from announce until finish. A key can be
// on either master meanwhile.
type move struct {
	masters            []*redis.Client
	source, target     *redis.Client
	sourceID, targetID any
	host, port         string // of the target
	slot               int64
}

// moveOf returns a move of the slot of key.
func moveOf(t *testing.T, masters []*redis.Client, addrs []string, key string) *move {
	t.Helper()
	slot := masters[0].ClusterKeySlot(t.Context(), key).Val()
	from := int(slot) * 3 / 16384
	m := &move{masters: masters, source: masters[from], target: masters[(from+1)%3], slot: slot}
	m.sourceID, m.targetID = m.source.Do(t.Context(), "cluster", "myid").Val(), m.target.Do(t.Context(), "cluster", "myid").Val()
	var err error
	m.host, m.port, err = net.SplitHostPort(addrs[(from+1)%3])
	require.NoError(t, err)
	return m
}

func (m *move) announce(t *testing.T) {
	t.Helper()
	require.NoError(t, m.target.Do(t.Context(), "cluster", "setslot", m.slot, "importing", m.sourceID).Err())
	require.NoError(t, m.source.Do(t.Context(), "cluster", "setslot", m.slot, "migrating", m.targetID).Err())
}

// keys moves the keys, and returns how many they were.
func (m *move) keys(t *testing.T) int {
	t.Helper()
	moving.Lock()
	defer moving.Unlock()
	keys := m.source.ClusterGetKeysInSlot(t.Context(), int(m.slot), 100).Val()
	if len(keys) > 0 {
		m.migrateLocked(t, keys...)
	}
	return len(keys)
}

// one moves one of the keys.
func (m *move) one(t *testing.T, key string) {
	t.Helper()
	moving.Lock()
	defer moving.Unlock()
	m.migrateLocked(t, key)
}

func (m *move) migrateLocked(t *testing.T, keys ...string) {
	t.Helper()
	words := []any{"migrate", m.host, m.port, "", 0, 5000, "keys"}
	for _, key := range keys {
		words = append(words, key)
	}
	require.NoError(t, m.source.Do(t.Context(), words...).Err())
}

// moving lets one step of a move happen at a time, since masters are sources and targets at once. A master
// stands still while it sends keys, and two that send keys to each other would wait for their timeout. The
// target of a move gets an epoch above all that it knows. Another master with a higher one, which has had
// the slot, would take it back by an old message: then each of the two says that the other one has the slot.
var moving sync.Mutex

// finish gives the slot to the target. The move has no keys left.
func (m *move) finish(t *testing.T) {
	t.Helper()
	moving.Lock()
	defer moving.Unlock()
	require.NoError(t, m.target.Do(t.Context(), "cluster", "setslot", m.slot, "node", m.targetID).Err())
	require.NoError(t, m.source.Do(t.Context(), "cluster", "setslot", m.slot, "node", m.targetID).Err())
	newest := epoch(t, m.target, "cluster_my_epoch")
	for _, master := range m.masters {
		locktest.Eventually(t, "all know the epoch", func() bool { return epoch(t, master, "cluster_current_epoch") >= newest })
	}
}

// epoch returns one of the epochs that a master knows.
func epoch(t *testing.T, master *redis.Client, name string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(master.ClusterInfo(t.Context()).Val(), name+":")
	_, err := fmt.Sscan(rest, &n)
	require.NoError(t, err)
	return n
}

// TestClusterKeepsALockWhoseSlotMoves to another master, with its queue and its fence. The holder
// can extend it at every step, and the waiter is handed the lock on the new master.
func TestClusterKeepsALockWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	masters, addrs := startCluster(t)
	ctx := t.Context()
	m := moveOf(t, masters, addrs, "k")
	l := locktest.SetNXPX(t, toCluster(addrs)(t))
	holder := locktest.MustLock(t, l, "k")
	got := locktest.WaitInLine(t, locktest.SetNXPX(t, toCluster(addrs)(t)), "k")
	for _, step := range []struct {
		name string
		take func()
	}{
		{"the slot is announced", func() { m.announce(t) }},
		{"its keys have moved", func() { require.Equal(t, 3, m.keys(t), "lock, fence register and queue") }},
		{"the slot has moved", func() { m.finish(t) }},
	} {
		step.take()
		require.NoError(t, holder.Extend(ctx, time.Minute), step.name)
		st, err := l.Inspect(ctx, "k")
		require.NoError(t, err, step.name)
		require.Equal(t, holder.Token(), st.Token, step.name)
		require.Equal(t, 1, st.Waiters, step.name)
	}
	require.Equal(t, string(holder.Token()), m.target.Get(ctx, "k").Val())
	require.NoError(t, holder.Unlock(ctx))
	lock := <-got
	require.NotNil(t, lock)
	require.Greater(t, lock.Fence(), holder.Fence())
	require.NoError(t, lock.Unlock(ctx))
}

// queueing are the strategies that hand a key to a waiter.
var queueing = []string{"SetNXPX", "Semaphore", "Write"}

// TestLockIsHandedOnWhileItsSlotMoves: before any key has moved, and then with all of them on the
// other master. The release does not fail half done, and the waiter gets its message. Its own
// release finds no queue, so it takes effect when the slot has moved.
func TestLockIsHandedOnWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	masters, addrs := startCluster(t)
	for _, name := range queueing {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprint(name, moved), func(t *testing.T) {
				t.Parallel()
				key := fmt.Sprint(name, moved)
				open := func() redlatch.Locker {
					l, err := locktest.Strategies[name](toCluster(addrs)(t), locktest.Patience)
					require.NoError(t, err)
					return l
				}
				m, ctx := moveOf(t, masters, addrs, key), t.Context()
				holder := locktest.MustLock(t, open(), key)
				got := locktest.WaitInLine(t, open(), key)
				m.announce(t)
				if moved {
					m.keys(t)
				}
				require.NoError(t, holder.Unlock(ctx))
				next := <-got
				require.NotNil(t, next)
				require.Greater(t, next.Fence(), holder.Fence())
				require.NoError(t, next.Extend(ctx, time.Minute))
				requireMoving(t, next.Unlock(ctx))
				m.keys(t)
				m.finish(t)
				locktest.Eventually(t, "the release is repeated", func() bool { return m.target.Exists(ctx, key).Val() == 0 })
			})
		}
	}
}

// requireMoving checks that an operation failed because a slot moves, and says so.
func requireMoving(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.NotErrorIs(t, err, redlatch.ErrLost)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	require.ErrorContains(t, err, "the Cluster moves the slot of this key to another server")
}

// TestKeyWithoutWaitersCannotBeTakenWhileItsSlotMoves: its companion keys may be on either master,
// or nowhere, and nobody can tell. Every call says so. The holder keeps its lock by renewals, and the
// key can be locked when the slot has moved.
func TestKeyWithoutWaitersCannotBeTakenWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	masters, addrs := startCluster(t)
	for name, open := range locktest.Strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tag := "{" + name + "}"
			var renewed atomic.Int64
			hooks := redlatch.WithHooks(redlatch.Hooks{Renewed: func(context.Context, redlatch.Event) { renewed.Add(1) }})
			l, err := open(toCluster(addrs)(t), locktest.Patience, hooks)
			require.NoError(t, err)
			m, ctx := moveOf(t, masters, addrs, tag), t.Context()
			held := locktest.MustLock(t, l, tag+"held")
			released := locktest.MustLock(t, l, tag+"released")
			m.announce(t)
			for _, moved := range []bool{false, true} {
				before := renewed.Load()
				var calls sync.WaitGroup // each takes as long as the op timeout
				var taken, inspected, unlocked error
				calls.Go(func() { _, taken = l.TryLock(ctx, tag+"free") })
				calls.Go(func() { _, inspected = l.Inspect(ctx, tag+"held") })
				if moved {
					calls.Go(func() { unlocked = released.Unlock(ctx) })
				}
				locktest.Eventually(t, "the lock is renewed", func() bool { return renewed.Load() > before })
				calls.Wait()
				requireMoving(t, taken)
				if slices.Contains(queueing, name) { // the others have no queue to look for
					requireMoving(t, inspected)
				}
				if moved && name != "LegacySetNX" { // it has all of its keys
					requireMoving(t, unlocked)
				}
				m.keys(t)
			}
			waits := make(chan error, 1)
			go func() { // ends with the test
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				lock, err := l.Lock(ctx, tag+"free")
				for errors.Is(err, redlatch.ErrUnavailable) && ctx.Err() == nil { // the move takes longer than the op timeout
					lock, err = l.Lock(ctx, tag+"free")
				}
				if err == nil {
					err = lock.Unlock(ctx)
				}
				waits <- err
			}()
			m.keys(t)
			m.finish(t)
			require.NoError(t, <-waits)
			require.NoError(t, held.Err())
			require.NoError(t, errors.Join(held.Unlock(ctx), locktest.LockSoon(t, l, tag+"released").Unlock(ctx)))
		})
	}
}

// TestSlotThatStaysHalfMoved: the lock's own key has moved, and its companions have not. A renewal of the
// strategies that queue needs no other key. That of the others fails, so the lock is lost, and Err says
// why. Adopt fails for all until the rest has moved.
func TestSlotThatStaysHalfMoved(t *testing.T) {
	t.Parallel()
	masters, addrs := startCluster(t)
	for name, open := range locktest.Strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, ctx := moveOf(t, masters, addrs, name), t.Context()
			ttl := locktest.LongTTL
			if !slices.Contains(queueing, name) {
				ttl = redlatch.WithTTL(10 * time.Second)
			}
			l, err := open(toCluster(addrs)(t), locktest.Briefly, ttl)
			require.NoError(t, err)
			lock := locktest.MustLock(t, l, name)
			m.announce(t)
			m.one(t, name)
			extended := lock.Extend(ctx, time.Hour)
			_, adopted := l.Adopt(ctx, name, lock.Token())
			requireMoving(t, adopted)
			if slices.Contains(queueing, name) {
				require.NoError(t, extended)
				m.keys(t)
				m.finish(t)
				_, err = l.Adopt(ctx, name, lock.Token())
				require.NoError(t, err)
				return
			}
			requireMoving(t, extended)
			<-lock.Done()
			require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
			require.ErrorContains(t, lock.Err(), "the Cluster moves the slot of this key to another server")
		})
	}
}
