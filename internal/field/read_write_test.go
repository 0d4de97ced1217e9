package field_test

import (
	"context"
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

// TestReadersAndWritersOfEveryClient: readers share a key, a writer waits for them and excludes
// them, and a reader that waits for the writer comes next. A Ring has no messages, so its lines
// poll.
func TestReadersAndWritersOfEveryClient(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (connector, []redlatch.Option){
		"a Cluster": func(t *testing.T) (connector, []redlatch.Option) {
			_, addrs := startCluster(t)
			return toCluster(addrs), nil
		},
		"a Ring": func(t *testing.T) (connector, []redlatch.Option) {
			return toRing(map[string]string{"a": redistest.StartTCP(t).Addr(), "b": redistest.StartTCP(t).Addr()}, alwaysUp), nil
		},
		"Sentinel": func(t *testing.T) (connector, []redlatch.Option) { return startReplicated(t).connect, nil },
		"replicas": func(t *testing.T) (connector, []redlatch.Option) {
			primary := redistest.StartTCP(t)
			redistest.StartReplica(t, primary)
			return func(t *testing.T) redis.UniversalClient { return primary.Client(t) },
				[]redlatch.Option{redlatch.WithReplicas(1, 4*time.Second)}
		},
		"the rights of SECURITY.md": func(t *testing.T) (connector, []redlatch.Option) {
			text, err := os.ReadFile("../../SECURITY.md")
			require.NoError(t, err)
			line := regexp.MustCompile(`(?m)^ACL SETUSER Semaphore on >secret (.*)$`).FindStringSubmatch(string(text))
			require.NotNil(t, line)
			s := redistest.Start(t)
			t.Cleanup(func() {
				for _, e := range s.Client(t).ACLLog(t.Context(), 1000).Val() {
					require.True(t, strings.HasPrefix(e.Object, "client"), "%s %s", e.Reason, e.Object)
				}
			})
			return func(t *testing.T) redis.UniversalClient {
				return locktest.Closing(t, redis.NewClient(s.User(t, strings.Fields(line[1])...)))
			}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect, opts := start(t)
			opts = append(opts, redlatch.WithKeyPrefix("lock:"))
			read, write := locktest.ReadWrite(t, connect(t), opts...)
			read2, write2 := locktest.ReadWrite(t, connect(t), opts...)
			one, two := locktest.MustLock(t, read, "k"), locktest.MustLock(t, read2, "k")
			_, err := write.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			adopted, err := read2.Adopt(t.Context(), "k", one.Token())
			require.NoError(t, err)
			next := locktest.Locking(t, write2, "k")
			require.NoError(t, one.Unlock(t.Context()))
			require.NoError(t, two.Unlock(t.Context()))
			require.NoError(t, adopted.Extend(t.Context(), time.Minute))
			require.Empty(t, next)
			require.NoError(t, adopted.Unlock(t.Context()))
			writer := <-next
			require.NotNil(t, writer)
			require.Greater(t, writer.Fence(), max(one.Fence(), two.Fence(), adopted.Fence()))
			_, err = read.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			last := locktest.Locking(t, read, "k")
			require.NoError(t, writer.Unlock(t.Context()))
			reader := <-last
			require.NotNil(t, reader)
			require.Greater(t, reader.Fence(), writer.Fence())
			require.NoError(t, reader.Unlock(t.Context()))
		})
	}
}

// TestFrozenWriterDoesNotKeepReadersBack for as long as an earlier reader holds the key: after some
// seconds it counts as gone. When it continues, it waits again, and is served.
func TestFrozenWriterDoesNotKeepReadersBack(t *testing.T) {
	t.Parallel()
	pair := func(addr string) (read, write redlatch.Locker) {
		return locktest.ReadWrite(t, locktest.Closing(t, redis.NewClient(&redis.Options{Addr: addr})))
	}
	if addr := os.Getenv(childsPart); addr != "" {
		_, write := pair(addr)
		lock, err := write.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) { say("waits") }}))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		say("served")
		return
	}
	s := redistest.StartTCP(t)
	read, _ := pair(s.Addr())
	first := locktest.MustLock(t, read, "k")
	child := startChild(t, s.Addr())
	require.Equal(t, "waits", <-child.said)
	locktest.Eventually(t, "the writer queues", func() bool {
		st, err := read.Inspect(t.Context(), "k")
		return err == nil && st.Waiters == 1
	})
	child.signal(t, "STOP")
	begin := time.Now()
	other, _ := pair(s.Addr())
	_, err := other.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired, "the writer is first")
	second := <-locktest.Locking(t, other, "k")
	require.NotNil(t, second)
	t.Logf("the next reader was served after %v", time.Since(begin))
	require.NoError(t, first.Err(), "an earlier reader still has the key")
	child.signal(t, "CONT")
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, second.Unlock(t.Context()))
	require.Equal(t, "served", <-child.said)
	require.NoError(t, child.Wait())
}
