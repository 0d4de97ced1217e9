package benchmarks_test

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestLockOfAPeerExcludesOursUntilItIsReleased(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		theirs := s.mustTake(t, time.Minute)
		_, err := s.ours.TryLock(t.Context(), s.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		status, err := s.ours.Inspect(t.Context(), s.key)
		require.NoError(t, err)
		require.True(t, status.Held)
		require.Equal(t, theirs.value, string(status.Token))
		require.Equal(t, theirs.value, s.value(t))

		require.NoError(t, theirs.give(t.Context()))
		lock, err := s.ours.TryLock(t.Context(), s.key)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestOurLockExcludesAPeerUntilItIsReleased(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		lock, err := s.ours.TryLock(t.Context(), s.key)
		require.NoError(t, err)
		s.requireRefused(t)
		require.Equal(t, string(lock.Token()), s.value(t))
		require.NoError(t, lock.Extend(t.Context(), time.Minute))

		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, s.mustTake(t, time.Minute).give(t.Context()))
	})
}

func TestOurLostLockLeavesThatOfAPeerAlone(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		lock, err := s.ours.TryLock(t.Context(), s.key, redlatch.WithoutRenewal())
		require.NoError(t, err)
		require.NoError(t, s.admin.Del(t.Context(), s.key).Err())
		theirs := s.mustTake(t, time.Minute)

		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, theirs.value, s.value(t))
		require.LessOrEqual(t, s.admin.PTTL(t.Context(), s.key).Val(), time.Minute)
		require.NoError(t, theirs.give(t.Context()))
	})
}

func TestLostLockOfAPeerLeavesOursAlone(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		theirs := s.mustTake(t, time.Minute)
		require.NoError(t, s.admin.Del(t.Context(), s.key).Err())
		lock, err := s.ours.TryLock(t.Context(), s.key)
		require.NoError(t, err)

		require.Error(t, theirs.give(t.Context()))
		require.Equal(t, string(lock.Token()), s.value(t))
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestOurWaiterGetsALockThatAPeerReleased(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		t.Parallel()
		theirs := s.mustTake(t, time.Minute)
		locks := s.wait(t)
		require.NoError(t, theirs.give(t.Context()))
		lock := grantedWithin(t, locks, looksWithin+slack)
		s.requireRefused(t)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestOurWaiterGetsALockOfAPeerThatCrashedWhenItsLeaseEnds(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		t.Parallel()
		const ttl = 400 * time.Millisecond
		begun := time.Now()
		s.mustTake(t, ttl)
		ctx, cancel := context.WithTimeout(t.Context(), ttl+slack)
		defer cancel()
		lock, err := s.ours.Lock(ctx, s.key)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), ttl)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestWaiterOfAPeerGetsALockThatWeReleased(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		t.Parallel()
		lock, err := s.ours.TryLock(t.Context(), s.key)
		require.NoError(t, err)
		var asked counter
		s.client.AddHook(&asked)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		result := make(chan error, 1)
		// Ends when the peer has acquired and released the lock, or with ctx.
		go func() {
			theirs, err := s.take(ctx, s.client, s.key, time.Minute, true)
			if err == nil {
				err = theirs.give(ctx)
			}
			result <- err
		}()
		require.Eventually(t, func() bool { return asked.n.Load() >= 2 }, time.Minute, time.Millisecond)
		require.Empty(t, result)
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, <-result)
	})
}

func TestQueueOfOursGoesBeforeAPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, s scene) {
		first, err := s.ours.TryLock(t.Context(), s.key)
		require.NoError(t, err)
		locks := s.wait(t)
		require.NoError(t, first.Unlock(t.Context()))
		s.requireRefused(t) // the key was never free
		second := grantedWithin(t, locks, slack)
		require.NoError(t, second.Unlock(t.Context()))
		require.NoError(t, s.mustTake(t, time.Minute).give(t.Context()))
	})
}

// redislock compares only as much of the value as its own token is long. With random tokens that
// never matters. With a chosen token it takes over a lock whose token begins with its own, such as
// ours with that owner.
func TestRedislockTakesALockWhoseTokenBeginsWithItsOwnAndWeNotice(t *testing.T) {
	server := redistest.Shared(t)
	ours, err := redlatch.NewSetNXPX(server.Client(t))
	require.NoError(t, err)
	key := "interop:" + t.Name()
	lock, err := ours.TryLock(t.Context(), key, redlatch.WithOwner("worker-10"))
	require.NoError(t, err)
	theirs, err := redislock.Obtain(t.Context(), server.Client(t), key, time.Minute, &redislock.Options{Token: "worker-1"})
	require.NoError(t, err, "redislock compares whole tokens after all")
	require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), redlatch.ErrLost)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)

	// The other way round nothing is taken.
	_, err = ours.TryLock(t.Context(), key, redlatch.WithOwner("worker"))
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NoError(t, theirs.Release(t.Context()))
}
