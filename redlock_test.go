package redlatch

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// oneNode returns a node with an empty server behind it.
func oneNode(t *testing.T) (*miniredis.Miniredis, *redis.Client, *node.Node) {
	t.Helper()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return m, client, node.New(client)
}

// TestRestoredNodesDoNotCount, on a quorum: two nodes of three have lost the lock, so it is lost. What they have restored
// is released, whether they answer before or after the outcome is certain.
func TestRestoredNodesDoNotCount(t *testing.T) {
	for name, slow := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, servers, clients := bubbleQuorum(t, 5, WithoutRenewal())
				lock := granted(t, l)
				synctest.Wait()
				for i, m := range servers[:4] {
					m.Del("k")
					m.Del("{k}:fence:k")
					if slow && i == 3 {
						scriptsSleep(clients[i], time.Second)
					}
				}
				require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
				time.Sleep(2 * time.Second)
				for _, m := range servers[:4] {
					require.True(t, m.Exists("{k}:fence:k"), "it was restored")
					require.False(t, m.Exists("k"))
				}
				require.True(t, servers[4].Exists("k"), "it may have been adopted")
				require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
				synctest.Wait()
				require.False(t, servers[4].Exists("k"))
			})
		})
	}
}

// scriptsSleep has the scripts that client sends from now on sleep before they are sent, each for the next of pauses.
func scriptsSleep(client redis.UniversalClient, pauses ...time.Duration) {
	var scripts atomic.Int64
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() == "evalsha" {
				if i := int(scripts.Add(1)) - 1; i < len(pauses) {
					time.Sleep(pauses[i]) // of the bubble
				}
			}
			return next(context.WithoutCancel(ctx), cmd)
		}
	}))
}

// bubbleQuorum returns a Redlock on n nodes, which have its scripts.
func bubbleQuorum(t *testing.T, n int, opts ...Option) (l Locker, servers []*miniredis.Miniredis, clients []redis.UniversalClient) {
	t.Helper()
	for range n {
		m, client := bubbleRedis(t)
		servers, clients = append(servers, m), append(clients, client)
	}
	l, err := NewRedlock(clients, append([]Option{WithTTL(time.Hour), WithOpTimeout(4 * time.Second)}, opts...)...)
	require.NoError(t, err)
	warm := granted(t, l)
	require.NoError(t, warm.Extend(t.Context(), time.Hour))
	require.NoError(t, warm.Unlock(t.Context()))
	_, err = l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	synctest.Wait()
	return l, servers, clients
}

// TestCleanUpEndsWithCtx, on a quorum: the grant was slow, and its release hangs. The caller does not wait for it
// any longer than ctx lasts.
func TestCleanUpEndsWithCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, clients := bubbleQuorum(t, 3, WithTTL(300*time.Millisecond))
		for _, client := range clients {
			scriptsSleep(client, 400*time.Millisecond, 3*time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := l.TryLock(ctx, "k")
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, time.Second, time.Since(begin))
		time.Sleep(time.Minute)
	})
}

// TestAcquireThatOvertookAReleaseIsSentAgain: Unlock returns when a quorum has released the lock. An acquire right behind it
// may be refused by that lock on another node. Nobody holds it any more, so that is no vote for another owner.
func TestAcquireThatOvertookAReleaseIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, clients := bubbleQuorum(t, 3)
		held := granted(t, l)
		synctest.Wait()                                // all nodes have granted it
		scriptsSleep(clients[0], 100*time.Millisecond) // the release
		scriptsSleep(clients[1], 0, time.Hour)         // the acquire hangs
		require.NoError(t, held.Unlock(t.Context()))
		begin := time.Now()
		lock, err := l.TryLock(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 100*time.Millisecond, time.Since(begin))
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(2 * time.Hour)
	})
}

// TestReleaseFollowsItsAcquireOnAQuorum: a failed attempt is released only after its acquire has returned.
// If the acquire ran after the release, nobody would release its vote.
func TestReleaseFollowsItsAcquireOnAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Minute))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		var scripts atomic.Int64
		underWay, goesOn := make(chan struct{}), make(chan struct{})
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					close(underWay)
					<-goesOn
				}
				return next(context.WithoutCancel(ctx), cmd)
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-underWay; cancel() }()
		_, err = l.TryLock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		close(goesOn)
		synctest.Wait()
		require.True(t, m.Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, m.Exists("k"))
	})
}

// TestUnlockFollowsAnAcquireThatNobodyWaitedFor: the lock was lost, and Unlock was called, before the acquire on one node has run.
// Its vote is released.
func TestUnlockFollowsAnAcquireThatNobodyWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*miniredis.Miniredis
		var clients []redis.UniversalClient
		goesOn := make(chan struct{})
		for i := range 3 {
			m, client := bubbleRedis(t)
			servers, clients = append(servers, m), append(clients, client)
			if i == 2 {
				var commands atomic.Int64
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						if strings.HasPrefix(cmd.Name(), "eval") && commands.Add(1) == 1 {
							<-goesOn
						}
						return next(ctx, cmd)
					}
				}))
			}
		}
		l, err := NewRedlock(clients, WithOpTimeout(time.Hour), WithTTL(time.Hour), WithoutRenewal())
		require.NoError(t, err)
		lock := granted(t, l)
		for _, m := range servers[:2] {
			m.Del("k")
		}
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
		synctest.Wait() // what the extension has restored is released, else Unlock may wait for the third node
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		close(goesOn)
		synctest.Wait()
		require.True(t, servers[2].Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, servers[2].Exists("k"))
	})
}

func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, time.Millisecond, what)
}

// TestRestoreThatWasSentTwiceIsReleased, on a quorum: the connection breaks after the extension was sent, which is sent again. The
// first send arrives behind the release of Unlock, and restores the lock. It is released when the timeout of the extension has
// passed.
func TestRestoreThatWasSentTwiceIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, servers, clients := bubbleQuorum(t, 3)
		lock := granted(t, l)
		synctest.Wait()
		servers[0].Del("k")
		first := make(chan []any, 1)
		var scripts atomic.Int64
		clients[0].AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if cmd.Name() != "evalsha" || scripts.Add(1) != 1 {
					return next(ctx, cmd)
				}
				first <- sentWords(cmd)
				return io.EOF
			}
		}))
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(100 * time.Millisecond) // the second send was carried out
		require.NoError(t, bubbleClient(t, servers[0]).Do(t.Context(), <-first...).Err())
		require.True(t, servers[0].Exists("k"), "it is restored")
		time.Sleep(time.Minute)
		require.False(t, servers[0].Exists("k"))
	})
}
