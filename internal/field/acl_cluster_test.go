package field_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestClusterUserNeedsTheRightsOfItsLine: with the rights of its strategy and those that
// SECURITY.md adds for a Cluster client, everything works, also while a slot moves. Nothing is
// refused, so the client logs nothing. Each of the added rights is needed.
func TestClusterUserNeedsTheRightsOfItsLine(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../SECURITY.md")
	require.NoError(t, err)
	added := regexp.MustCompile("A Cluster client also needs `([^`]*)`").FindStringSubmatch(string(text))
	require.NotNil(t, added)
	for _, strategy := range []string{"SetNXPX", "Semaphore", "LegacySetNX"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			own := regexp.MustCompile(`(?m)^ACL SETUSER ` + strategy + ` on >secret (.*)$`).FindStringSubmatch(string(text))
			require.NotNil(t, own)
			servers, g := redistest.StartCluster(t), &grantee{}
			var addrs []string
			var user *redis.Options
			for _, s := range servers {
				user = s.User(t, append(strings.Fields(own[1]), strings.Fields(added[1])...)...)
				g.nodes, addrs = append(g.nodes, s.Client(t)), append(addrs, s.Addr())
				g.monitor(t, s)
			}
			open := func() redlatch.Locker {
				client := locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{
					Addrs: addrs, Username: user.Username, Password: user.Password,
				}))
				l, err := locktest.Strategies[strategy](client, redlatch.WithKeyPrefix("lock:"), locktest.Patience)
				require.NoError(t, err)
				return l
			}
			useClusterLocks(t, open, redistest.MoveOf(t, g.nodes, "lock:k"))
			for _, node := range g.nodes {
				for _, e := range node.ACLLog(t.Context(), 1000).Val() {
					// The CLIENT commands by which go-redis introduces itself may be refused.
					require.True(t, strings.HasPrefix(e.Object, "client"), "%s %s", e.Reason, e.Object)
				}
			}
			for right := range strings.FieldsSeq(added[1]) {
				if strategy != "LegacySetNX" || right[0] == '+' { // it has no fences
					g.uses(t, right, 1)
				}
			}
		})
	}
}

// useClusterLocks uses the operations of a lock, and has its slot move.
func useClusterLocks(t *testing.T, open func() redlatch.Locker, m *redistest.Move) {
	t.Helper()
	ctx, l := t.Context(), open()
	lock := locktest.MustLock(t, l, "k")
	next := open()
	served := make(chan *redlatch.Lock, 1)
	go func() { // ends with the test
		lock, _ := next.Lock(ctx, "k")
		served <- lock
	}()
	m.Announce(t)
	m.Keys(t)
	require.NoError(t, lock.Extend(ctx, time.Minute))
	m.Keys(t)
	m.Finish(t)
	_, err := l.TryLock(ctx, "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	_, err = l.Inspect(ctx, "k")
	require.NoError(t, err)
	adopted, err := l.Adopt(ctx, "k", lock.Token())
	require.NoError(t, err)
	require.NoError(t, adopted.Unlock(ctx))
	handed := <-served
	require.NotNil(t, handed)
	require.NoError(t, handed.Unlock(ctx))
}
