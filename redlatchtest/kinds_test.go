package redlatchtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestSemaphore: the other owner takes permits and gives them back, one at a time, and takes those
// of all other holders.
func TestSemaphore(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewSemaphore(t, 3, append(brief, redlatch.WithKeyPrefix("app:"))...)
		take := func() *redlatch.Lock {
			t.Helper()
			lock, err := l.TryLock(t.Context(), "k")
			require.NoError(t, err)
			return lock
		}
		refused := func() {
			t.Helper()
			_, err := l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		}
		l.Hold("k")
		l.Hold("k")
		lock := take()
		refused()
		l.Free("k")
		second := take()
		refused()

		l.Steal("k")
		for _, lost := range []*redlatch.Lock{lock, second} {
			await(t, lost.Done())
			require.ErrorIs(t, lost.Err(), redlatch.ErrLost)
		}
		third := take() // beside the permit that was held, and the one that was stolen
		refused()
		l.Free("k")
		l.Free("k")
		fourth, fifth := take(), take()

		l.Expire("k")
		for _, lost := range []*redlatch.Lock{third, fourth, fifth} {
			require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)
		}
		for range 3 {
			l.Hold("k")
		}
		got := waiting(t, l, "k")
		l.Expire("k")
		require.NoError(t, await(t, got).Unlock(t.Context()))
	})
}

// TestQuorum: the other owner holds keys on all nodes, and each node has outages of its own.
func TestQuorum(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l := redlatchtest.NewRedlock(t, 3, append(brief, redlatch.WithKeyPrefix("app:"))...)
		nodes := l.Nodes()
		require.Len(t, nodes, 3)
		require.Same(t, nodes[0].Client(), l.Client())
		try := func() error {
			lock, err := l.TryLock(t.Context(), "k")
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			return err
		}
		get := func() error { // Unlock waits for a quorum, and the last node may have the key a little longer
			lock, err := l.Lock(t.Context(), "k", redlatch.WithMaxWait(time.Minute))
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			return err
		}
		l.Hold("k")
		var held *redlatch.HeldError
		require.ErrorAs(t, try(), &held)
		require.Equal(t, "somebody else", held.Owner)
		l.Free("k")
		lock, err := l.Lock(t.Context(), "k", redlatch.WithMaxWait(time.Minute))
		require.NoError(t, err)
		l.Steal("k")
		await(t, lock.Done())
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.ErrorIs(t, try(), redlatch.ErrNotAcquired)
		l.Expire("k")
		require.NoError(t, get())

		nodes[2].Disconnect()
		require.NoError(t, get(), "a quorum is there")
		nodes[0].Disconnect()
		require.ErrorIs(t, try(), redlatch.ErrNoQuorum)
		var failed *redlatch.QuorumError
		require.ErrorAs(t, try(), &failed)
		require.ErrorContains(t, failed.Nodes[0], nodes[0].Client().Options().Addr+": connect: connection refused")
		require.NoError(t, failed.Nodes[1])
		nodes[2].Reconnect()
		require.NoError(t, get())
		l.Disconnect()
		require.ErrorIs(t, try(), redlatch.ErrNoQuorum)
		l.Reconnect()
		require.NoError(t, get())
	})
}

// TestNodesHaveAddressesOfTheirOwn: so several Lockers are a quorum.
func TestNodesHaveAddressesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lockers []*redlatchtest.Locker
		var clients []redis.UniversalClient
		for range 3 {
			l := redlatchtest.NewLocker(t)
			lockers, clients = append(lockers, l), append(clients, l.Client())
		}
		l, err := redlatch.NewRedlock(clients)
		require.NoError(t, err)
		lockers[0].Hold("k")
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		lockers[1].Disconnect()
		require.Error(t, lock.Extend(t.Context(), time.Minute))
	})
}

func TestDelay(t *testing.T) {
	const d = 300 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		took := func(call func() error) time.Duration {
			t.Helper()
			begin := time.Now()
			require.NoError(t, call())
			return time.Since(begin)
		}
		try := func() (err error) { lock, err = l.TryLock(t.Context(), "k"); return err }

		l.Delay(d)
		require.Equal(t, d, took(try))
		require.Equal(t, d, took(func() error { return lock.Unlock(t.Context()) }))
		l.Hold("k")
		require.Zero(t, took(func() error { l.Free("k"); return nil }), "somebody else is as fast as before")

		l.Delay(0)
		require.Zero(t, took(try))
		require.Zero(t, took(func() error { return lock.Unlock(t.Context()) }))

		l.Delay(time.Hour)
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		time.AfterFunc(d, func() { l.Delay(0) })
		require.Equal(t, d, took(func() error { return l.Client().Ping(t.Context()).Err() }), "what is under way comes")
		require.NoError(t, try())

		l.Delay(time.Hour)
		failed := make(chan error)
		go func() { failed <- lock.Extend(t.Context(), time.Minute) }()
		synctest.Wait()
		l.Disconnect() // loses what is under way
		l.Delay(0)
		require.ErrorIs(t, <-failed, redlatch.ErrUnavailable)
		l.Reconnect()
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
	})
}

// TestDelayOfMessages: a hand-over takes half of the delay.
func TestDelayOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		l.Hold("k")
		got := waiting(t, l, "k")
		l.Delay(200 * time.Millisecond)
		begin := time.Now()
		l.Free("k")
		require.NotNil(t, <-got)
		require.Equal(t, 100*time.Millisecond, time.Since(begin))
	})
}

// TestDelayOfANode: a quorum does not wait for it.
func TestDelayOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewRedlock(t, 3)
		l.Nodes()[1].Delay(time.Minute)
		begin := time.Now()
		require.NoError(t, redlatch.Do(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error { return nil }))
		require.Zero(t, time.Since(begin))
		l.Nodes()[2].Delay(time.Minute)
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	})
}

// TestLeaseEndsWhileRedisIsSlow: renewals whose replies come too late do not count.
func TestLeaseEndsWhileRedisIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewLocker(t)
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		begin := time.Now()
		l.Delay(time.Hour)
		<-lock.Done()
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.Less(t, time.Since(begin), 10*time.Second)
		l.Delay(-1) // is none
		_, err = l.TryLock(t.Context(), "another")
		require.NoError(t, err)
	})
}
