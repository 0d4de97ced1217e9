package benchmarks_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// These tests show what one lost reply and one cancelled ctx do to each library. The comparison in
// docs/compare.md rests on them.

// behindProxy is a scene whose libraries reach Redis through a proxy. Their scripts are loaded.
func behindProxy(t *testing.T, p peer) (scene, *faultproxy.Proxy) {
	t.Helper()
	server := redistest.StartTCP(t)
	proxy := faultproxy.New(t, "tcp", server.Addr())
	ours, err := redlatch.NewSetNXPX(proxy.Client(t))
	require.NoError(t, err)
	s := scene{p, proxy.Client(t), server.Client(t), ours, "interop:" + t.Name()}
	require.NoError(t, s.mustTake(t, time.Minute).give(t.Context()))
	lock, err := s.ours.TryLock(t.Context(), s.key)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	return s, proxy
}

func TestRedsyncTakesItsOwnGrantForAnothersWhereTheReplyWasLostAndWeDoNot(t *testing.T) {
	s, proxy := behindProxy(t, peers[0])
	proxy.LoseReplies(1, "set")
	_, err := s.take(t.Context(), s.client, s.key, time.Minute, false)
	require.True(t, s.taken(err), "%v", err)
	require.Equal(t, 1, proxy.Lost())
	require.Empty(t, s.value(t), "the key was free, and is free")

	proxy.LoseReplies(1, "evalsha")
	lock, err := s.ours.TryLock(t.Context(), s.key)
	require.NoError(t, err)
	require.Equal(t, 2, proxy.Lost())
	require.NoError(t, lock.Unlock(t.Context()))
}

func TestRedislockWithoutRetriesLeavesAGrantWhoseReplyWasLostAndWeDoNot(t *testing.T) {
	s, proxy := behindProxy(t, peers[1])
	o := proxy.Options()
	o.MaxRetries = -1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	proxy.LoseReplies(1, "evalsha")
	_, err := s.take(t.Context(), client, s.key, time.Minute, false)
	require.Error(t, err)
	require.NotEmpty(t, s.value(t), "nobody owns the key, and nobody can acquire it")
	require.NoError(t, s.admin.Del(t.Context(), s.key).Err())

	ours, err := redlatch.NewSetNXPX(client)
	require.NoError(t, err)
	proxy.LoseReplies(1, "evalsha")
	lock, err := ours.TryLock(t.Context(), s.key)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
}

func TestPeersReportAReleaseWhoseReplyWasLostAsALostLockAndWeDoNot(t *testing.T) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			s, proxy := behindProxy(t, p)
			theirs := s.mustTake(t, time.Minute)
			proxy.LoseReplies(1, "evalsha")
			require.Error(t, theirs.give(t.Context()))
			require.Empty(t, s.value(t), "it was released")

			lock, err := s.ours.TryLock(t.Context(), s.key)
			require.NoError(t, err)
			proxy.LoseReplies(1, "evalsha")
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, 2, proxy.Lost())
			require.Empty(t, s.value(t))
		})
	}
}

func TestPeersReleaseNothingForACancelledCtxAndWeDo(t *testing.T) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			s, _ := behindProxy(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			theirs := s.mustTake(t, time.Minute)
			require.Error(t, theirs.give(ctx))
			require.Equal(t, theirs.value, s.value(t))
			require.NoError(t, theirs.give(t.Context()))

			lock, err := s.ours.TryLock(t.Context(), s.key)
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(ctx))
			require.Empty(t, s.value(t))
		})
	}
}

func TestRueidislockTakesItsOwnGrantForAnothersWhereTheReplyWasLost(t *testing.T) {
	server := redistest.StartTCP(t)
	proxy := faultproxy.New(t, "tcp", server.Addr())
	theirs, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{proxy.Addr()}},
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   10 * time.Second, // its 20 ms are too few for a machine that is busy
	})
	require.NoError(t, err)
	t.Cleanup(theirs.Close)
	_, release, err := theirs.TryWithContext(t.Context(), "warm")
	require.NoError(t, err)
	release()
	proxy.LoseReplies(1, "rueidislock:0:k")
	_, _, err = theirs.TryWithContext(t.Context(), "k")
	require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	require.Equal(t, 1, proxy.Lost())
}
