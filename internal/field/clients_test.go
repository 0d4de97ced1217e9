package field_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A connector returns a client of its own, as another process would have.
type connector func(t *testing.T) redis.UniversalClient

// TestEveryKindOfClientServesEveryStrategy, on keys that lie on all servers of the client. A
// cluster refuses scripts whose keys are in different slots, so all keys of a lock are in one.
func TestEveryKindOfClientServesEveryStrategy(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) map[string]connector{
		"one server": func(t *testing.T) map[string]connector {
			s := redistest.Start(t)
			return map[string]connector{
				"deferred": func(t *testing.T) redis.UniversalClient { // its commands return before they are carried out, in no order
					o := &redis.AutoPipelineOptions{NumShards: 2, MaxConcurrentBatches: 2, Unordered: true}
					client, err := s.Client(t).AsyncAutoPipelineWithOptions(o)
					require.NoError(t, err)
					return client
				},
			}
		},
		"cluster": func(t *testing.T) map[string]connector {
			_, addrs := startCluster(t)
			return map[string]connector{"plain": toCluster(addrs), "in a struct": func(t *testing.T) redis.UniversalClient {
				return struct{ *redis.ClusterClient }{toCluster(addrs)(t).(*redis.ClusterClient)}
			}}
		},
		"ring": func(t *testing.T) map[string]connector {
			return map[string]connector{
				"plain": toRing(map[string]string{"a": redistest.StartTCP(t).Addr(), "b": redistest.StartTCP(t).Addr()}, nil),
			}
		},
		"sentinels": func(t *testing.T) map[string]connector {
			r := startReplicated(t)
			return map[string]connector{"plain": r.connect, "routed": r.connectRouted}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, connect := range start(t) {
				for strategy, open := range locktest.Strategies {
					t.Run(kind+", "+strategy, func(t *testing.T) {
						serves(t, func(opts ...redlatch.Option) redlatch.Locker {
							l, err := open(connect(t), append(opts, locktest.Patience)...)
							require.NoError(t, err)
							return l
						}, name+kind+strategy)
					})
				}
			}
		})
	}
}

// serves uses all that Lockers can do.
func serves(t *testing.T, locker func(opts ...redlatch.Option) redlatch.Locker, name string) {
	waiting := make(chan redlatch.Event, 10)
	long := locktest.LongTTL // so the end of a lease serves nobody
	holder, next := locker(long), locker(long, redlatch.WithHooks(redlatch.Hooks{Waiting: func(_ context.Context, e redlatch.Event) { waiting <- e }}))
	for _, form := range []string{"%s", "%s{", "{1}%s", "a{2}%s", "{%s}b"} { // each server has some of the keys
		key := fmt.Sprintf(form, name)
		lock := locktest.MustLock(t, holder, key)
		_, err := next.TryLock(t.Context(), key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, key)
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		st, err := next.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, lock.Token(), st.Token)
		require.Greater(t, st.TTL, 50*time.Second)

		adopted, err := next.Adopt(t.Context(), key, lock.Token())
		require.NoError(t, err)
		got := locktest.Locking(t, next, key)
		<-waiting
		require.NoError(t, adopted.Unlock(t.Context()))
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		second := <-got
		require.NotNil(t, second)
		if lock.Fence() > 0 {
			require.Greater(t, adopted.Fence(), lock.Fence())
			require.Greater(t, second.Fence(), adopted.Fence())
		}
		require.NoError(t, second.Unlock(t.Context()))
	}
}

// TestServerWithoutEvalshaServes: EVALSHA is renamed away, so each call sends its script. Without
// EVAL too, a wait ends at once, and the error says what is missing.
func TestServerWithoutEvalshaServes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--rename-command", "EVALSHA", "")
	client := s.Client(t)
	l := locktest.SetNXPX(t, client, locktest.LongTTL)
	lock := locktest.MustLock(t, l, "k")
	next := locktest.WaitInLine(t, l, "k")
	require.NoError(t, lock.Extend(t.Context(), time.Hour))
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, (<-next).Unlock(t.Context()))
	refused := func() string { return client.Info(t.Context(), "errorstats").Val() }
	before := refused()
	require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	require.Equal(t, before, refused(), "a call has one trip")

	bare := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "").Client(t)
	for _, lock := range []func(context.Context, redlatch.Locker, string, func(context.Context, *redlatch.Lock) error, ...redlatch.Option) error{
		redlatch.Do, redlatch.Lead,
	} {
		err := lock(t.Context(), locktest.SetNXPX(t, bare), "k", nothing)
		require.ErrorContains(t, err, "(redlatch needs EVAL: connect the client to servers that have it)")
		require.NotErrorIs(t, err, redlatch.ErrUnavailable)
	}
}

func nothing(context.Context, *redlatch.Lock) error { return nil }
