package behavior_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/ahead"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// foreign is a client in another language, which follows the documentation of SETNX to the letter.
type foreign struct {
	client  *redis.Client
	key     string
	timeout int64 // s
	value   int64 // what it wrote last
}

// next is <current Unix time + lock timeout + 1>.
func (f *foreign) next() int64 {
	f.value = ahead.Now().Unix() + f.timeout + 1
	return f.value
}

// tryLock is steps 1 to 3.
func (f *foreign) tryLock(ctx context.Context) (bool, error) {
	n, err := f.client.Do(ctx, "SETNX", f.key, f.next()).Int()
	if err != nil || n == 1 {
		return err == nil, err
	}
	seen, err := f.expired(ctx)
	if err != nil || seen == "" {
		return false, err
	}
	return f.takes(ctx, seen)
}

// expired is step 2. It returns the value whose time has passed, or "".
func (f *foreign) expired(ctx context.Context) (string, error) {
	seen, err := f.client.Do(ctx, "GET", f.key).Text()
	if err != nil {
		return "", locktest.IgnoreNil(err)
	}
	value, err := strconv.ParseInt(seen, 10, 64)
	if err != nil || ahead.Now().Unix() <= value {
		return "", err
	}
	return seen, nil
}

// takes is step 3.
func (f *foreign) takes(ctx context.Context, seen string) (bool, error) {
	old, err := f.client.Do(ctx, "GETSET", f.key, f.next()).Text()
	return err == nil && old == seen, locktest.IgnoreNil(err)
}

// unlock is step 4.
func (f *foreign) unlock(ctx context.Context) error {
	if ahead.Now().Unix() > f.value {
		return nil
	}
	return f.client.Do(ctx, "DEL", f.key).Err()
}

// waitFor polls until the foreign client has the lock.
func (f *foreign) waitFor(t *testing.T) {
	t.Helper()
	eventually(t, "the foreign client acquires the lock", func() bool {
		ok, err := f.tryLock(t.Context())
		require.NoError(t, err)
		return ok
	})
}

// TestLegacyAndForeignClientsTakeTurns: redlatch and foreign clients exclude each other, and each
// takes over as soon as the time of the other has passed, however long the pauses of a waiter are.
// An Unlock after that changes nothing.
func TestLegacyAndForeignClientsTakeTurns(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t), redlatch.WithTTL(time.Second), redlatch.WithPollInterval(time.Hour, time.Hour))
		f := &foreign{client: s.Client(t), key: "k", timeout: 1}

		crashed := mustLock(t, l, "k")
		ok, err := f.tryLock(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		f.waitFor(t)
		require.ErrorIs(t, crashed.Err(), redlatch.ErrLost, "noticed before the next owner has acquired the lock")
		require.ErrorIs(t, crashed.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, f.value, stampIn(t, s, "k"))

		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		lock, err := l.Lock(t.Context(), "k", redlatch.WithTTL(time.Minute))
		require.NoError(t, err)
		require.Greater(t, ahead.Now().Unix(), f.value, "not before its time has passed")
		require.Less(t, time.Since(time.Unix(f.value+1, 0)), 100*time.Millisecond)
		require.NoError(t, f.unlock(t.Context()))
		ok, err = f.tryLock(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, lock.Unlock(t.Context()))

		ok, err = f.tryLock(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, f.unlock(t.Context()))
		require.Empty(t, everything(t, s))
	})
}

// TestLegacyForeignLoserIsNoticed: a foreign client that lost the race to us overwrites our time.
// If the time passes sooner than ours, we notice that before the next client acquires the lock.
// Otherwise the next renewal notices it. It leaves the key as it is.
func TestLegacyForeignLoserIsNoticed(t *testing.T) {
	for timeout, after := range map[int64]time.Duration{2: 0, 100: 500 * time.Millisecond} { // the second after we have checked the lock again
		t.Run(fmt.Sprint("in ", timeout, " s"), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				l, err := redlatch.NewLegacySetNX(s.Client(t), redlatch.WithTTL(30*time.Second))
				require.NoError(t, err)
				setIn(t, s, "k", ahead.Now().Unix()-1)
				loser := &foreign{client: s.Client(t), key: "k", timeout: timeout}
				seen, err := loser.expired(t.Context())
				require.NoError(t, err)
				lock := mustLock(t, l, "k")
				time.Sleep(after)
				ok, err := loser.takes(t.Context(), seen)
				require.NoError(t, err)
				require.False(t, ok)
				begin := time.Now()
				if timeout < 30 {
					next := &foreign{client: s.Client(t), key: "k", timeout: 10}
					next.waitFor(t)
					loser.value = next.value
				} else {
					<-lock.Done()
				}
				require.ErrorIs(t, lock.Err(), redlatch.ErrLost, "a second owner, and the first has not noticed")
				require.Less(t, time.Since(begin), 10*time.Second)
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				require.Equal(t, loser.value, stampIn(t, s, "k"))
			})
		})
	}
}
