package redlatch_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestLateVoteRaisesNoCounter: the nodes vote for different fences, so the counter of the first is raised. Its answer asks for more
// on the other node, but comes when the lease has ended.
func TestLateVoteRaisesNoCounter(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		const counter = "{k}:fence:k"
		nodes := []*locktest.Site{nodeOf(t, s, 0), nodeOf(t, s, 1)}
		first, tap := tapped(t, nodes[0])
		second, other := tapped(t, nodes[1])
		l := made(redlatch.NewRedlock([]redis.UniversalClient{first, second}, redlatch.WithOpTimeout(4*time.Second)))
		warm(t, l)
		for i, node := range nodes {
			require.NoError(t, node.Direct.Set(t.Context(), counter, 1000*i, 0).Err())
		}
		early, slow := 0, 0
		tap.set(func(_ context.Context, send func() error) error {
			if early++; early != 3 { // the raise, by its source
				return send()
			}
			require.NoError(t, nodes[0].Direct.Set(t.Context(), counter, 5000, 0).Err())
			defer time.Sleep(700 * time.Millisecond) // of the bubble
			return send()
		})
		other.set(func(_ context.Context, send func() error) error {
			if slow++; slow == 1 {
				time.Sleep(500 * time.Millisecond) // so its key outlives the lease
			}
			return send()
		})
		_, err := l.TryLock(t.Context(), "k", redlatch.WithTTL(time.Second))
		require.ErrorIs(t, err, redlatch.ErrLost)
		time.Sleep(time.Second)
		require.Equal(t, "5000", nodes[0].Direct.Get(t.Context(), counter).Val(), "the answer came")
		require.Equal(t, "1001", nodes[1].Direct.Get(t.Context(), counter).Val())
	})
}

// TestSilentQuorumSaysWhatItNeeds: ctx ends a wait before any node has answered.
func TestSilentQuorumSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var clients []redis.UniversalClient
		for i := range 2 {
			client, tap := tapped(t, nodeOf(t, s, i))
			tap.late(2 * time.Second)
			clients = append(clients, client)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := made(redlatch.NewRedlock(clients, redlatch.WithOpTimeout(4*time.Second))).Lock(ctx, "k")
		require.ErrorIs(t, err, redlatch.ErrNoQuorum)
		var q *redlatch.QuorumError
		require.ErrorAs(t, err, &q)
		require.Equal(t, []int{2, 2}, []int{q.Need, len(q.Nodes)})
	})
}

// TestNodeReleasesAResentAcquireTwice: the reply to an acquire was lost, so it was sent again. The first send may be carried out
// until the timeout has passed, also after the release.
func TestNodeReleasesAResentAcquireTwice(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client, tap := tapped(t, s)
		l := made(redlatch.NewRedlock([]redis.UniversalClient{client}, redlatch.WithOpTimeout(time.Second)))
		warm(t, l)
		lost := false
		tap.set(func(_ context.Context, send func() error) error {
			if err := send(); lost {
				return err
			}
			lost = true
			return io.EOF
		})
		lock := mustLock(t, l, "k")
		token := lock.Token()
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, s.Direct.Set(t.Context(), "k", token, time.Minute).Err(), "the first send")
		time.Sleep(time.Second + time.Millisecond)
		require.Zero(t, s.Direct.Exists(t.Context(), "k").Val())
	})
}

// TestSilentNodeIsNotWaitedForTwice: two attempts that wait for it would keep each other out. Here a stranger has a vote, and the
// node did not answer the last call, so attempts are refused at once, and repeated within the op timeout.
func TestSilentNodeIsNotWaitedForTwice(t *testing.T) {
	t.Parallel()
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var clients []redis.UniversalClient
		var taps []*tap
		for i := range 3 {
			client, tap := tapped(t, nodeOf(t, s, i))
			clients, taps = append(clients, client), append(taps, tap)
		}
		l := made(redlatch.NewRedlock(clients, redlatch.WithOpTimeout(time.Second)))
		warm(t, l)
		time.Sleep(time.Millisecond) // of the bubble: the answers are older than the next call
		taps[2].late(5 * time.Second)
		mustLock(t, l, "other", redlatch.WithoutRenewal())
		time.Sleep(1100 * time.Millisecond) // of the bubble
		require.NoError(t, nodeOf(t, s, 1).Direct.Set(t.Context(), "k", "stranger", time.Hour).Err())
		before := taps[0].sent.Load()
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Greater(t, taps[0].sent.Load()-before, int64(4), "acquires and releases")
		taps[2].late(0) // so that releases are answered, and none goes on
	})
}
