package behavior_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestLegacyLostReplyIsNotLostOwnership: a command whose reply is lost succeeds as if the reply
// had arrived.
func TestLegacyLostReplyIsNotLostOwnership(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		p, client := proxied(t, s)
		l := newLegacy(t, client)
		warm := mustLock(t, l, "warm") // the scripts are loaded
		require.NoError(t, warm.Extend(t.Context(), time.Second))
		require.NoError(t, warm.Unlock(t.Context()))
		for i, prepare := range []func(){func() {}, func() { setIn(t, s, "k", 1) }} {
			prepare()
			p.LoseReplies(1, "evalsha")
			lock := mustLock(t, l, "k")
			require.Equal(t, 3*i+1, p.Lost())
			require.Equal(t, lock.Token(), s.Direct.Get(t.Context(), "{k}:owner:k").Val())

			p.LoseReplies(1, "evalsha")
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			require.Equal(t, 3*i+2, p.Lost())
			require.Greater(t, stampIn(t, s, "k"), time.Now().Unix()+3590)

			p.LoseReplies(1, "evalsha")
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, 3*i+3, p.Lost())
			require.Empty(t, everything(t, s))
		}
	})
}

// TestLegacyRefusedReleaseIsNoSuccess: the resend of a release is a success only if the first send deleted
// the key. Here the first send deleted nothing, and its reply was lost.
func TestLegacyRefusedReleaseIsNoSuccess(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		p, client := proxied(t, s)
		l := newLegacy(t, client)
		require.NoError(t, mustLock(t, l, "other").Unlock(t.Context()), "the scripts are loaded")
		lock := mustLock(t, l, "k")
		setIn(t, s, "k", "4102444800")
		p.LoseReplies(1, "evalsha")
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, 1, p.Lost())
		require.Equal(t, "4102444800", s.Direct.Get(t.Context(), "k").Val())
	})
}

// TestLegacyUnknownOutcomeLeavesNoKey: if an attempt fails without a reply, its key is released. If Redis comes to the acquire
// too late, that changes nothing.
func TestLegacyUnknownOutcomeLeavesNoKey(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		p, client := proxied(t, s)
		l, brief := newLegacy(t, client), redlatch.WithOpTimeout(500*time.Millisecond)
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		for _, prepare := range []func(){func() {}, func() { setIn(t, s, "k", 1) }} {
			prepare()
			p.LoseReplies(1000, "evalsha")
			_, err := l.TryLock(t.Context(), "k", brief)
			require.Error(t, err)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
			p.LoseReplies(0, "")
			eventually(t, "the keys are released", func() bool { return len(everything(t, s)) == 0 })
			require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()), "there is a connection")

			prepare()
			before, sent := everything(t, s), p.Requests()
			p.Silence()
			_, err = l.TryLock(t.Context(), "k", brief)
			require.ErrorContains(t, err, "no reply within 500ms")
			p.Heal()
			eventually(t, "the acquire and its release", func() bool { return p.Requests() >= sent+2 })
			require.NoError(t, mustLock(t, l, "another").Unlock(t.Context()))
			require.Equal(t, before, everything(t, s))
			require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		}
	})
}
