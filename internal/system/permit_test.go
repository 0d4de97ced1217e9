package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestRefusedExtensionKeepsThePermit: Redis refuses ZADD to a user who extends or adopts a permit. The call fails, and the
// permit stays with its holder: nobody else gets it while its lease lasts.
func TestRefusedExtensionKeepsThePermit(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]func(t *testing.T, s *redistest.Server, limit int) *redlatch.Lock{
		"renewal": refusedRenewal, "Extend": refusedExtend, "Adopt": refusedAdopt,
	} {
		for _, limit := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, limit %d", name, limit), func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				other := locktest.Semaphore(t, s.Client(t), limit)
				for range limit - 1 {
					locktest.MustLock(t, other, "k", redlatch.WithTTL(time.Minute))
				}
				lock := refused(t, s, limit)
				st, err := other.Inspect(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, limit, st.Holders)
				_, err = other.TryLock(t.Context(), "k")
				require.NoError(t, lock.Err(), "the holder still trusts it")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			})
		}
	}
}

// as returns a client of a user.
func as(t *testing.T, user *redis.Options) *redis.Client {
	c := redis.NewClient(user)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// refusedRenewal returns a lock whose last renewal was refused, after the user has lost a right.
func refusedRenewal(t *testing.T, s *redistest.Server, limit int) *redlatch.Lock {
	failed := make(chan error, 100)
	l := locktest.Semaphore(t, as(t, s.User(t, "~*", "allchannels", "+@all")), limit,
		redlatch.WithTTL(9*time.Second), redlatch.WithHooks(redlatch.Hooks{
			RenewFailed: func(e redlatch.Event) { failed <- e.Err },
		}))
	lock := locktest.MustLock(t, l, "k")
	require.NoError(t, s.Client(t).ACLSetUser(t.Context(), "locks", "-zadd").Err())
	select {
	case err := <-failed:
		require.ErrorContains(t, err, "SECURITY.md")
	case <-lock.Done():
		require.NoError(t, lock.Err(), "before a renewal was refused")
	}
	return lock
}

// refusedExtend returns a lock whose Extend was refused, after the user has lost a right.
func refusedExtend(t *testing.T, s *redistest.Server, limit int) *redlatch.Lock {
	l := locktest.Semaphore(t, as(t, s.User(t, "~*", "allchannels", "+@all")), limit)
	lock := locktest.MustLock(t, l, "k")
	require.NoError(t, s.Client(t).ACLSetUser(t.Context(), "locks", "-zadd").Err())
	require.ErrorContains(t, lock.Extend(t.Context(), time.Minute), "SECURITY.md")
	return lock
}

// refusedAdopt returns a lock of a user with all rights, that a user without ZADD could not adopt.
func refusedAdopt(t *testing.T, s *redistest.Server, limit int) *redlatch.Lock {
	lock := locktest.MustLock(t, locktest.Semaphore(t, s.Client(t), limit), "k")
	l := locktest.Semaphore(t, as(t, s.User(t, "~*", "allchannels", "+@all", "-zadd")), limit, redlatch.WithTTL(time.Minute))
	_, err := l.Adopt(t.Context(), "k", lock.Token())
	require.ErrorContains(t, err, "SECURITY.md")
	return lock
}
