package field_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestForgedMessagesGrantNothing: an attacker listens on a channel and publishes an old message
// there again, also with another token, and text that is no message. None grants anything to a
// waiter.
func TestForgedMessagesGrantNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	eve := s.Client(t)
	l := locktest.SetNXPX(t, s.Client(t))
	holder := locktest.MustLock(t, locktest.SetNXPX(t, s.Client(t)), "k")
	got := locktest.WaitInLine(t, l, "k")
	channels := eve.PubSubChannels(t.Context(), "redlatch:*").Val()
	require.Len(t, channels, 1)
	ps := eve.Subscribe(t.Context(), channels[0])
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	require.NoError(t, err)
	heard := ps.Channel()
	require.NoError(t, holder.Unlock(t.Context()))
	said := (<-heard).Payload
	lock := <-got
	require.NotNil(t, lock)
	require.Contains(t, said, string(lock.Token()))
	messages := []string{said, strings.Replace(said, string(lock.Token()), uuid.NewString(), 1), said[:20], "message"}
	require.NoError(t, lock.Unlock(t.Context()))

	lock = locktest.MustLock(t, locktest.SetNXPX(t, s.Client(t)), "k")
	again := locktest.WaitInLine(t, l, "k")
	for _, message := range messages {
		require.NoError(t, eve.Publish(t.Context(), channels[0], message).Err())
		<-heard // so the waiting process was sent it too
	}
	require.NoError(t, lock.Err())
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, lock.Token(), st.Token)
	require.Equal(t, 1, st.Waiters)
	require.Empty(t, again)
	require.NoError(t, lock.Unlock(t.Context()))
	next := <-again
	require.NotNil(t, next)
	require.Greater(t, next.Fence(), lock.Fence())
	require.NoError(t, next.Unlock(t.Context()))
}

// TestListenerCostsADeadWaitersTTL: an attacker listens on the channel of a process that died, so
// its
// line seems to be alive. That costs others the TTL in its entry, once.
func TestListenerCostsADeadWaitersTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	eve := s.Client(t)
	ps := eve.Subscribe(t.Context(), "redlatch:gone")
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	require.NoError(t, err)
	holder := locktest.MustLock(t, locktest.SetNXPX(t, s.Client(t)), "k")
	require.NoError(t, eve.ZAdd(t.Context(), "{k}:queue:k", redis.Z{Score: 1, Member: "1000 redlatch:gone a-token"}).Err())
	got := locktest.WaitInLine(t, locktest.SetNXPX(t, s.Client(t)), "k")
	require.NoError(t, holder.Unlock(t.Context()))
	if left := eve.PTTL(t.Context(), "k").Val(); left > 0 { // else a busy machine has let it pass
		require.Equal(t, "a-token", eve.Get(t.Context(), "k").Val())
		require.LessOrEqual(t, left, time.Second)
	}
	require.Equal(t, int64(1), eve.ZCard(t.Context(), "{k}:queue:k").Val(), "the dead line has no other entry")
	lock := <-got // the lease of the dead line expires
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestPrefixKeepsKeysApartFromCompanions: without a prefix, who chooses the name of a key can lock
// the fence counter of another lock of Redlock. A prefix keeps companions apart.
func TestPrefixKeepsKeysApartFromCompanions(t *testing.T) {
	t.Parallel()
	for prefix, companion := range map[string]string{"": "{k}:fence:k", "lock:": "{lock:k}:fence:lock:k"} {
		l := locktest.Redlock(t, []*redis.Client{clientOf(t, miniredis.RunT(t))}, redlatch.WithKeyPrefix(prefix))
		locktest.MustLock(t, l, companion)
		_, err := l.TryLock(t.Context(), "k")
		if prefix == "" {
			require.ErrorContains(t, err, "the fence counter holds something else")
		} else {
			require.NoError(t, err)
		}
	}
}

// TestRegisterIsNoLock: nobody can lock the key of a fence register, with or without a prefix,
// since such a lock would keep others from their fences. A cluster has no slot for the companions
// of some keys.
func TestRegisterIsNoLock(t *testing.T) {
	t.Parallel()
	client := locktest.Closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})) // nothing is sent
	for _, prefix := range []string{"", "lock:"} {
		_, err := locktest.SetNXPX(t, client).TryLock(t.Context(), "redlatch:fence", redlatch.WithKeyPrefix(prefix))
		require.ErrorIs(t, err, redlatch.ErrInvalid)
	}
	for key, refused := range map[string]bool{"{k}:redlatch:fence": true, "redlatch:fence": false, "{{k}:redlatch:fence": true} {
		_, err := locktest.SetNXPX(t, toCluster([]string{"127.0.0.1:1"})(t), locktest.Briefly).TryLock(t.Context(), key)
		require.Equal(t, refused, errors.Is(err, redlatch.ErrInvalid), key)
	}
	for name, open := range locktest.Strategies {
		l, err := open(toCluster([]string{"127.0.0.1:1"})(t))
		require.NoError(t, err)
		for _, key := range []string{"a}b", "{}x"} {
			_, err = l.TryLock(t.Context(), key)
			require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %q", name, key)
		}
	}
}
