package field_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A prefixer is a hook that writes a prefix into the keys of each script.
type prefixer string

func (p prefixer) write(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") {
			for i := 3; i < 3+args[2].(int); i++ {
				args[i] = string(p) + args[i].(string)
			}
		}
	}
}

func (p prefixer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p prefixer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { p.write(cmd); return next(ctx, cmd) }
}

func (p prefixer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { p.write(cmds...); return next(ctx, cmds) }
}

// TestKeyHasOneNameWhateverHooksAClientOfAClusterHas: the hooks of the client itself see no command, and those of its
// servers each once. So it is with the first call of a client, with callers who come together, with replicas, on a slot
// that moves, and on one that has moved. Two names of one key would be two owners.
func TestKeyHasOneNameWhateverHooksAClientOfAClusterHas(t *testing.T) {
	t.Parallel()
	masters, addrs := startCluster(t)
	for name, c := range map[string]struct {
		key, prefix string // what is before each key in Redis
		add         func(client *redis.ClusterClient)
	}{
		"of the whole":   {"{whole}", "", func(client *redis.ClusterClient) { client.AddHook(prefixer("app:")) }},
		"of each server": {"{server}", "app:", onEachServer},
		"of both, as OTel": {"{both}", "app:", func(client *redis.ClusterClient) {
			client.AddHook(prefixer("app:"))
			onEachServer(client)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, m := t.Context(), redistest.MoveOf(t, masters, c.key)
			open := func() redlatch.Locker {
				client := toCluster(addrs)(t).(*redis.ClusterClient)
				c.add(client)
				return locktest.SetNXPX(t, client, locktest.LongTTL)
			}
			l := open()
			var locks []*redlatch.Lock
			held := func(lock *redlatch.Lock, err error) {
				t.Helper()
				require.NoError(t, err)
				_, err = open().TryLock(ctx, lock.Key()) // by a client that knows no servers yet
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				locks = append(locks, lock)
			}
			held(l.TryLock(ctx, c.key+"first"))
			var all sync.WaitGroup
			for key := range strings.FieldsSeq("a b c d e f g h") {
				all.Go(func() { assert.NoError(t, locktest.MustLock(t, l, c.key+key).Unlock(ctx)) })
			}
			all.Wait()
			_, err := l.TryLock(ctx, c.key+"replicas", redlatch.WithReplicas(1, 10*time.Millisecond))
			require.ErrorIs(t, err, redlatch.ErrNotReplicated)
			names := m.Source.Keys(ctx, "*"+c.key+"*").Val()
			require.NotEmpty(t, names)
			for _, name := range names {
				before, _, _ := strings.Cut(name, c.key)
				require.Equal(t, c.prefix, before, name)
			}
			m.Announce(t)
			m.Keys(t)
			require.NoError(t, locks[0].Extend(ctx, time.Hour), "the answer is ASK")
			m.Finish(t)
			held(locks[0], locks[0].Extend(ctx, time.Hour))
			held(l.TryLock(ctx, c.key+"second"))
			for _, lock := range locks[1:] {
				require.NoError(t, lock.Unlock(ctx))
			}
			require.Zero(t, m.Target.Exists(ctx, c.prefix+c.key+"first", c.prefix+c.key+"second").Val())
		})
	}
}

func onEachServer(client *redis.ClusterClient) {
	client.OnNewNode(func(server *redis.Client) { server.AddHook(prefixer("app:")) })
}

// TestKeyHasOneNameWhateverHooksAClientOfARingHas: callers come together, and others by a client of their own.
func TestKeyHasOneNameWhateverHooksAClientOfARingHas(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	open := func() redlatch.Locker {
		ring := toRing(map[string]string{"a": s.Addr()}, alwaysUp)(t).(*redis.Ring)
		ring.AddHook(prefixer("app:"))
		return locktest.SetNXPX(t, ring)
	}
	l := open()
	var all sync.WaitGroup
	for key := range strings.FieldsSeq("a b c d e f g h") {
		all.Go(func() {
			lock := locktest.MustLock(t, l, key)
			_, err := open().TryLock(t.Context(), key)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
	all.Wait()
	require.Empty(t, s.Client(t).Keys(t.Context(), "app:*").Val())
}
