package field_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestPlainClientsShareAKey: clients that others wrote exclude and are excluded, if they lock by
// SET NX EX, or by SETNX and EXPIRE in a script. No message announces their DEL or their crash: a
// waiter notices a DEL within about a second, and a crash when the TTL has passed. A lock with a
// waiter is handed on and never free, so clients that poll get it only when none of our waiters
// queues.
func TestPlainClientsShareAKey(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := locktest.SetNXPX(t, s.Client(t))
		plain := func() bool {
			err := s.Direct.Do(t.Context(), "SET", "k", "locked", "NX", "EX", 1).Err()
			require.NoError(t, locktest.IgnoreNil(err))
			return err == nil
		}
		for name, end := range map[string]func(){"released": func() { s.Direct.Del(t.Context(), "k") }, "crashed": func() {}} {
			require.True(t, plain(), name)
			_, err := l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, redlatch.Token("locked"), st.Token)
			got := locktest.WaitInLine(t, l, "k")
			end()
			begin := time.Now()
			lock := <-got
			require.NotNil(t, lock, name)
			require.Less(t, time.Since(begin), 1500*time.Millisecond, name)

			require.False(t, plain())
			got = locktest.WaitInLine(t, locktest.SetNXPX(t, s.Client(t)), "k")
			require.NoError(t, lock.Unlock(t.Context()))
			require.False(t, plain())
			lock = <-got
			require.NotNil(t, lock)
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestPlainKeyWithoutATTLIsHeldForEver: a client that sends SETNX and EXPIRE one by one leaves such
// a key if it crashes in between. Inspect shows it. Only a DEL by hand frees it, or Adopt with its
// value, which is a token like any other and gets a fence.
func TestPlainKeyWithoutATTLIsHeldForEver(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := locktest.SetNXPX(t, s.Client(t))
		require.NoError(t, s.Direct.Do(t.Context(), "SETNX", "k", "locked").Err())
		require.ErrorIs(t, locktest.WaitInVain(t, l, "k"), redlatch.ErrNotAcquired)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, st.Held)
		require.Negative(t, st.TTL)
		lock, err := l.Adopt(t.Context(), "k", st.Token)
		require.NoError(t, err)
		require.Positive(t, lock.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	})
}
