package field_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestClusterKeepsALockWhoseSlotMoves to another master, with its queue and its fence. The holder
// can extend it at every step, and the waiter is handed the lock on the new master.
func TestClusterKeepsALockWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	masters, addrs := startCluster(t)
	ctx := t.Context()
	m := redistest.MoveOf(t, masters, "k")
	l := locktest.SetNXPX(t, toCluster(addrs)(t))
	holder := locktest.MustLock(t, l, "k")
	got := locktest.WaitInLine(t, locktest.SetNXPX(t, toCluster(addrs)(t)), "k")
	for _, step := range []struct {
		name string
		take func()
	}{
		{"the slot is announced", func() { m.Announce(t) }},
		{"its keys have moved", func() { require.Equal(t, 3, m.Keys(t), "lock, fence register and queue") }},
		{"the slot has moved", func() { m.Finish(t) }},
	} {
		step.take()
		require.NoError(t, holder.Extend(ctx, time.Minute), step.name)
		st, err := l.Inspect(ctx, "k")
		require.NoError(t, err, step.name)
		require.Equal(t, holder.Token(), st.Token, step.name)
		require.Equal(t, 1, st.Waiters, step.name)
	}
	require.Equal(t, string(holder.Token()), m.Target.Get(ctx, "k").Val())
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
				// Without renewal the claim is as long as the TTL. One that ends would leave nothing to the waiter.
				open := func() redlatch.Locker {
					l, err := locktest.Strategies[name](toCluster(addrs)(t), locktest.Patience, locktest.LongTTL, redlatch.WithoutRenewal())
					require.NoError(t, err)
					return l
				}
				m, ctx := redistest.MoveOf(t, masters, key), t.Context()
				holder := locktest.MustLock(t, open(), key)
				got := locktest.WaitInLine(t, open(), key)
				m.Announce(t)
				if moved {
					m.Keys(t)
				}
				require.NoError(t, holder.Unlock(ctx))
				next := <-got
				require.NotNil(t, next)
				require.Greater(t, next.Fence(), holder.Fence())
				require.NoError(t, next.Extend(ctx, time.Minute))
				requireMoving(t, next.Unlock(ctx))
				m.Keys(t)
				m.Finish(t)
				locktest.Eventually(t, "the release is repeated", func() bool { return m.Target.Exists(ctx, key).Val() == 0 })
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
			m, ctx := redistest.MoveOf(t, masters, tag), t.Context()
			held := locktest.MustLock(t, l, tag+"held")
			released := locktest.MustLock(t, l, tag+"released")
			m.Announce(t)
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
				m.Keys(t)
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
			m.Keys(t)
			m.Finish(t)
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
			m, ctx := redistest.MoveOf(t, masters, name), t.Context()
			ttl := locktest.LongTTL
			if !slices.Contains(queueing, name) {
				ttl = redlatch.WithTTL(10 * time.Second)
			}
			l, err := open(toCluster(addrs)(t), locktest.Briefly, ttl)
			require.NoError(t, err)
			lock := locktest.MustLock(t, l, name)
			m.Announce(t)
			m.One(t, name)
			extended := lock.Extend(ctx, time.Hour)
			_, adopted := l.Adopt(ctx, name, lock.Token())
			requireMoving(t, adopted)
			if slices.Contains(queueing, name) {
				require.NoError(t, extended)
				m.Keys(t)
				m.Finish(t)
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
