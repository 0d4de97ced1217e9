package benchmarks_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// twoOwners makes rueidislock, with that majority, and redlatch lock the same name. It returns a
// client of their Redis, and both Lockers.
func twoOwners(t *testing.T, majority int32) (*redis.Client, redlatch.Locker, rueidislock.Locker) {
	t.Helper()
	server := redistest.StartTCP(t)
	theirs, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{server.Addr()}},
		KeyMajority:    majority,
		NoLoopTracking: true,
		TryNextAfter:   10 * time.Second, // its 20 ms are too few for a machine that is busy
	})
	require.NoError(t, err)
	t.Cleanup(theirs.Close)
	ours, err := redlatch.NewSetNXPX(server.Client(t))
	require.NoError(t, err)

	held, release, err := theirs.TryWithContext(t.Context(), "orders:42")
	require.NoError(t, err)
	t.Cleanup(release)
	lock, err := ours.TryLock(t.Context(), "orders:42")
	require.NoError(t, err, "rueidislock excludes redlatch after all")
	require.NoError(t, held.Err())
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Unlock(t.Context()))
	return server.Client(t), ours, theirs
}

func TestRueidislockLocksOtherKeysSoBothOwnTheLock(t *testing.T) {
	client, _, _ := twoOwners(t, 2) // its default
	keys, err := client.Keys(t.Context(), "rueidislock:*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.Contains(t, []string{"rueidislock:0:orders:42", "rueidislock:1:orders:42", "rueidislock:2:orders:42"}, key)
	}
}

// With a majority of one, rueidislock has one key, sets it by SET NX PX, and compares values. If
// redlatch locks the name of that key, the two exclude each other.
func TestUnderTheKeyOfItsMakingRueidislockExcludesAndIsExcluded(t *testing.T) {
	_, ours, theirs := twoOwners(t, 1)
	const key = "rueidislock:0:orders:42"
	_, err := ours.TryLock(t.Context(), key)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)

	lock, err := ours.TryLock(t.Context(), "rueidislock:0:orders:43")
	require.NoError(t, err)
	_, _, err = theirs.TryWithContext(t.Context(), "orders:43")
	require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	require.NoError(t, lock.Unlock(t.Context()))
	_, release, err := theirs.TryWithContext(t.Context(), "orders:43")
	require.NoError(t, err)
	release()
}
