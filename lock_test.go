package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redisurl"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce = 32 // on real servers, most cases wait for seconds
	redistest.Main(m)
}

// These come from locktest, which the tests of other packages use too.
var (
	eventually = locktest.Eventually
	mustLock   = locktest.MustLock
	patience   = locktest.Patience
)

// maker makes a Locker on some nodes.
type maker = func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)

// onFirst makes a Locker on the first node.
func onFirst(open func(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)) maker {
	return func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return open(clients[0], opts...)
	}
}

// kind describes a strategy for the conformance table.
type kind struct {
	name     string
	nodes    int
	fences   bool
	timeless bool // the lock itself is a key without a TTL
	pair     bool // two Lockers as one: it cannot adopt, and takes no prefix in a call
	shared   bool // a key may have many holders
	make     maker
}

// kinds lists every strategy: each runs the whole table. The semaphore is one of one permit.
var kinds = []kind{
	{name: "SetNXPX", nodes: 1, fences: true, make: onFirst(redlatch.NewSetNXPX)},
	{name: "LegacySetNX", nodes: 1, timeless: true, make: onFirst(redlatch.NewLegacySetNX)},
	{name: "Redlock", nodes: 5, fences: true, make: redlatch.NewRedlock},
	{name: "Semaphore", nodes: 1, fences: true, make: onFirst(mutex)},
	{name: "Write", nodes: 1, fences: true, make: onFirst(writer)},
	{name: "Read", nodes: 1, fences: true, shared: true, make: onFirst(reader)},
	{
		name: "Migration", nodes: 2, fences: true, pair: true,
		make: func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			from, err := redlatch.NewSetNXPX(clients[0], opts...)
			if err != nil {
				return nil, err
			}
			to, err := redlatch.NewSetNXPX(clients[1], opts...)
			if err != nil {
				return nil, err
			}
			return redlatch.NewMigration(from, to)
		},
	},
}

func reader(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	read, _, err := redlatch.NewReadWrite(client, opts...)
	return read, err
}

func writer(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	_, write, err := redlatch.NewReadWrite(client, opts...)
	return write, err
}

func mutex(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
	return redlatch.NewSemaphore(client, 1, opts...)
}

// world is one strategy on one kind of server, with a key of the test's own.
type world struct {
	kind
	key    string
	prefix string                  // of all keys, on a server that others use too
	admin  []redis.UniversalClient // by node, for the test's own commands
	client clientOf
}

// clientOf returns a new client of a node, as another process would have.
type clientOf = func(t *testing.T, node int) redis.UniversalClient

// locker returns a Locker with clients of its own, as another process would have. Its op timeout is
// long enough for a busy machine.
func (w *world) locker(t *testing.T, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	clients := make([]redis.UniversalClient, w.nodes)
	for i := range clients {
		clients[i] = w.client(t, i)
	}
	l, err := w.make(clients, append([]redlatch.Option{patience, redlatch.WithKeyPrefix(w.prefix)}, opts...)...)
	require.NoError(t, err)
	return l
}

// stored returns the name of a key in Redis.
func (w *world) stored(key string) string { return w.prefix + key }

// gone waits until no node has key: a release may still be in flight to a minority of nodes.
func (w *world) gone(t *testing.T, key string) {
	t.Helper()
	for _, c := range w.admin {
		eventually(t, key+" is gone", func() bool {
			n, err := c.Exists(t.Context(), w.stored(key)).Result()
			return err == nil && n == 0
		})
	}
}

// keys returns those of a node that belong to the lock.
func (w *world) keys(t *testing.T, c redis.UniversalClient) []string {
	t.Helper()
	keys, err := keysWith(t.Context(), c, w.prefix)
	require.NoError(t, err)
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.HasSuffix(key, w.key) })
}

// ends fails if a key of the lock has no TTL.
func (w *world) ends(t *testing.T) {
	t.Helper()
	w.everywhere(func(c redis.UniversalClient) {
		for _, key := range w.keys(t, c) {
			if !w.timeless || key != w.stored(w.key) {
				// -1 means that the key has no TTL; -2 means that a late release has deleted it.
				require.NotEqual(t, time.Duration(-1), c.PTTL(t.Context(), key).Val(), key)
			}
		}
	})
}

// keysWith returns the keys of a server, or of all nodes of a Cluster, whose names contain text.
func keysWith(ctx context.Context, client redis.UniversalClient, text string) (keys []string, err error) {
	var mu sync.Mutex // guards keys
	scan := func(ctx context.Context, c *redis.Client) error {
		found := c.Scan(ctx, 0, "*"+text+"*", 1000).Iterator()
		for found.Next(ctx) {
			mu.Lock()
			keys = append(keys, found.Val())
			mu.Unlock()
		}
		return found.Err()
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, scan)
	} else {
		err = scan(ctx, client.(*redis.Client))
	}
	slices.Sort(keys)
	return slices.Compact(keys), err // a key may be found twice
}

// everywhere runs f on every node.
func (w *world) everywhere(f func(c redis.UniversalClient)) {
	for _, c := range w.admin {
		f(c)
	}
}

// TestConformance runs every case on every strategy, on miniredis, where waits take no time. It runs
// alone, so that it takes no processor from the tests on real servers.
func TestConformance(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range k.cases() {
				t.Run("cases/"+c.name, func(t *testing.T) {
					t.Parallel()
					locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
						run(t, k, c, "", func(t *testing.T, node int) redis.UniversalClient { return locktest.NodeOf(t, s, node).Client(t) })
					})
				})
			}
		})
	}
}

// TestConformanceOnRedis runs every case on every strategy, on real Redis.
func TestConformanceOnRedis(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			servers := make([]*redistest.Server, k.nodes)
			for i := range servers {
				servers[i] = redistest.Start(t)
			}
			for _, c := range k.cases() {
				t.Run("cases/"+c.name, func(t *testing.T) {
					t.Parallel()
					run(t, k, c, "", func(t *testing.T, node int) redis.UniversalClient { return servers[node].Client(t) })
				})
			}
		})
	}
}

// TestConformanceAtURLs runs every case on the servers that REDLATCH_TEST_URL names.
func TestConformanceAtURLs(t *testing.T) {
	t.Parallel()
	if urls := strings.Fields(os.Getenv("REDLATCH_TEST_URL")); len(urls) > 0 {
		for _, k := range kinds {
			t.Run(k.name, func(t *testing.T) { runAt(t, k, urls) })
		}
	}
}

// TestConformanceOnCluster runs every case of the strategies that take the client of a Redis
// Cluster.
func TestConformanceOnCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range redistest.StartCluster(t) {
		addrs = append(addrs, s.Addr())
	}
	for _, k := range kinds {
		if k.nodes == 1 {
			t.Run(k.name, func(t *testing.T) { runAt(t, k, []string{"redis+cluster://" + strings.Join(addrs, ",")}) })
		}
	}
}

// runAt runs the conformance table on the servers that URLs name. The keys have a prefix of their
// own, and none is left.
func runAt(t *testing.T, k kind, urls []string) {
	t.Parallel()
	client := clientsAt(t, k, urls)
	prefix := "{redlatch-test-" + strconv.FormatUint(rand.Uint64(), 36) + "}:" // its tag is in the name of the counter of fences, too
	t.Cleanup(func() {
		for node := range k.nodes {
			c, ctx := client(t, node), context.WithoutCancel(t.Context())
			eventually(t, "no key is left", func() bool {
				keys, err := keysWith(ctx, c, strings.TrimSuffix(prefix, ":"))
				for _, key := range keys {
					require.NoError(t, c.Del(ctx, key).Err())
				}
				return err == nil && len(keys) == 0
			})
		}
	})
	for _, c := range k.cases() {
		t.Run("cases/"+c.name, func(t *testing.T) {
			t.Parallel()
			run(t, k, c, prefix, client)
		})
	}
}

// clientsAt returns clients of the servers that URLs name. It fails if there are too few: a skipped
// test is easily missed.
func clientsAt(t *testing.T, k kind, urls []string) clientOf {
	t.Helper()
	if k.nodes > len(urls) {
		require.Fail(t, fmt.Sprintf("%s needs %d servers, and REDLATCH_TEST_URL names %d: leave it out with -skip /%[1]s", k.name, k.nodes, len(urls)))
	}
	client := func(t *testing.T, node int) redis.UniversalClient {
		t.Helper()
		c, err := redisurl.NewClient(urls[node], nil)
		if err != nil { // its text may contain the password
			require.Fail(t, "the URL is not valid: it must have the form "+redisurl.Forms)
		}
		return locktest.Closing(t, c)
	}
	for node := range k.nodes {
		require.NoError(t, client(t, node).Ping(t.Context()).Err(), "URL %d", node+1)
	}
	return client
}

// ofSharedKeys has the cases that do not need a key to exclude others.
var ofSharedKeys = []string{
	"WithMaxHold ends a lock that is renewed",
	"Extend lengthens a lease and never shortens it, and every key has a TTL",
	"Inspect tells held from free and changes nothing",
	"a key of another type is an error and stays as it is",
	"bad input is refused before anything is sent",
}

// cases returns those for a kind.
func (k kind) cases() []conformanceCase {
	return slices.DeleteFunc(slices.Clone(conformance), func(c conformanceCase) bool {
		return k.shared && !slices.Contains(ofSharedKeys, c.name)
	})
}

func run(t *testing.T, k kind, c conformanceCase, prefix string, client clientOf) {
	w := &world{kind: k, prefix: prefix, key: t.Name() + " {a}b} \x00\xff\r\nключ", client: client} // a key may have any bytes and braces
	for i := range k.nodes {
		w.admin = append(w.admin, client(t, i))
	}
	c.run(t, w)
}

// conformanceCase is one promise of the Locker interface.
type conformanceCase struct {
	name string
	run  func(t *testing.T, w *world)
}

var conformance = []conformanceCase{
	{"a free key is granted and a held one refused", func(t *testing.T, w *world) {
		begin := time.Now()
		lock := mustLock(t, w.locker(t), w.key, redlatch.WithTTL(time.Minute))
		require.Equal(t, w.key, lock.Key())
		require.NoError(t, lock.Err())
		require.WithinRange(t, lock.Until(), begin.Add(time.Minute/2), time.Now().Add(time.Minute))

		_, err := w.locker(t).TryLock(t.Context(), w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotErrorIs(t, err, redlatch.ErrLost)
		host, _ := os.Hostname()
		holder := fmt.Sprintf("%q", fmt.Sprint(host, ":", os.Getpid())) // by default
		if w.timeless {
			holder = "another owner" // there is no room for its name
		}
		require.True(t, strings.HasPrefix(err.Error(), fmt.Sprintf("redlatch: try lock %q: held by %s", w.key, holder)), err)
		require.NotContains(t, err.Error(), "\n")
		require.NoError(t, lock.Unlock(t.Context()))
	}},

	{"an unlocked key is free and its handle has ended", func(t *testing.T, w *world) {
		waiting, cancel := context.WithCancel(t.Context())
		lock, err := w.locker(t).Lock(waiting, w.key)
		require.NoError(t, err)
		cancel()
		parent, stop := context.WithCancelCause(t.Context())
		ctx, other := lock.Context(t.Context()), lock.Context(parent)
		why := errors.New("shutdown")
		stop(why)
		<-other.Done()
		require.Same(t, why, context.Cause(other), "it ends with its parent or its lock, whichever ends first")
		require.NoError(t, ctx.Err())
		require.NoError(t, lock.Err(), "the end of the ctx of Lock does not release")
		_, err = w.locker(t).TryLock(t.Context(), w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, lock.Unlock(waiting), "Unlock does not heed a cancelled ctx")
		w.gone(t, w.key)
		<-lock.Done()
		<-ctx.Done()
		require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
		require.ErrorIs(t, context.Cause(ctx), redlatch.ErrReleased)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
		require.ErrorIs(t, lock.Extend(t.Context(), time.Second), redlatch.ErrReleased)
		require.ErrorIs(t, context.Cause(lock.Context(t.Context())), redlatch.ErrReleased)

		mustLock(t, w.locker(t), w.key)
	}},

	{"an owner knows of its loss before the next one, and leaves it alone", func(t *testing.T, w *world) {
		first := mustLock(t, w.locker(t), w.key, redlatch.WithoutRenewal(), redlatch.WithTTL(locktest.BriefTTL))
		second, err := w.locker(t).Lock(t.Context(), w.key)
		require.NoError(t, err)
		select {
		case <-first.Done():
		default:
			require.Fail(t, "a second owner has the key before the first has noticed the loss")
		}
		require.Equal(t, w.fences, second.Fence() > first.Fence(), "fences grow with every grant")
		require.ErrorIs(t, first.Err(), redlatch.ErrLost)
		require.ErrorIs(t, first.Unlock(t.Context()), redlatch.ErrLost)
		require.ErrorIs(t, first.Unlock(t.Context()), redlatch.ErrReleased)

		_, err = w.locker(t).TryLock(t.Context(), w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, second.Unlock(t.Context()))
	}},

	{"renewal keeps a lock for longer than its TTL", func(t *testing.T, w *world) {
		renewals := make(chan redlatch.Event, 100)
		lock := mustLock(t, w.locker(t), w.key, redlatch.WithTTL(locktest.BriefTTL), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(_ context.Context, e redlatch.Event) { renewals <- e },
		}))
		for n := 0; n < 4; { // one every TTL/3, so four take longer than the TTL
			select {
			case e := <-renewals:
				if !w.pair {
					require.Equal(t, lock.Fence(), e.Fence)
				}
				if e.Fence == lock.Fence() {
					n++
				}
			case <-lock.Done():
				require.NoError(t, lock.Err())
			}
		}
		_, err := w.locker(t).TryLock(t.Context(), w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, lock.Unlock(t.Context()))
	}},

	{"WithMaxHold ends a lock that is renewed", func(t *testing.T, w *world) {
		begin := time.Now()
		lock := mustLock(t, w.locker(t), w.key, redlatch.WithTTL(locktest.BriefTTL), redlatch.WithMaxHold(locktest.BriefTTL))
		require.ErrorIs(t, lock.Extend(t.Context(), 0), redlatch.ErrInvalid)
		eventually(t, "Extend succeeds, although little time is left", func() bool { return lock.Extend(t.Context(), 100*locktest.BriefTTL) == nil })
		require.False(t, lock.Until().After(time.Now().Add(locktest.BriefTTL)))
		<-lock.Done()
		require.GreaterOrEqual(t, time.Since(begin), 5*locktest.BriefTTL/6)
		require.ErrorIs(t, lock.Err(), redlatch.ErrMaxHold)
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrMaxHold)
	}},

	{"a wait ends with ctx, promptly and without a trace", func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), w.key)
		l := w.locker(t)
		err := locktest.WaitInVain(t, l, w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NotContains(t, err.Error(), "\n")

		why := errors.New("closing time")
		cancelled, stop := context.WithCancelCause(t.Context())
		stop(why)
		_, try := l.TryLock(cancelled, w.key)
		_, wait := l.Lock(cancelled, w.key)
		for _, err := range []error{try, wait} {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, why)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "ctx had ended before the call")
			require.NotErrorIs(t, err, redlatch.ErrUnavailable, "ctx had ended before the call")
		}

		require.NoError(t, lock.Unlock(t.Context()))
		w.gone(t, w.key)
	}},

	{"UnlockAfter keeps others out for some time, or is refused and changes nothing", func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), w.key)
		require.ErrorIs(t, lock.UnlockAfter(t.Context(), -1), redlatch.ErrInvalid)
		begin := time.Now()
		err := lock.UnlockAfter(t.Context(), locktest.BriefTTL)
		if errors.Is(err, errors.ErrUnsupported) {
			require.True(t, w.timeless, "only keys without a TTL have no room for it")
			require.NoError(t, lock.Err())
			require.NoError(t, lock.UnlockAfter(t.Context(), 0))
			return
		}
		require.NoError(t, err)
		require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
		_, err = w.locker(t).TryLock(t.Context(), w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		next, err := w.locker(t).Lock(t.Context(), w.key)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), locktest.BriefTTL)
		require.NoError(t, next.Unlock(t.Context()))
	}},

	{"Extend lengthens a lease and never shortens it, and every key has a TTL", func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), w.key, redlatch.WithoutRenewal())
		was := lock.Until()
		w.ends(t)
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		long := lock.Until()
		require.Greater(t, long.Sub(was), 50*time.Minute)
		require.NoError(t, lock.Extend(t.Context(), time.Millisecond))
		require.Equal(t, long, lock.Until())
		eventually(t, "it lasts for most of an hour, on a quorum of the nodes", func() bool {
			st, err := w.locker(t).Inspect(t.Context(), w.key)
			return err == nil && st.TTL > 50*time.Minute
		})
		require.NoError(t, lock.Extend(t.Context(), math.MaxInt64))
		require.Greater(t, lock.Until().Sub(long), 50*365*24*time.Hour)
		require.ErrorIs(t, lock.Extend(t.Context(), time.Microsecond), redlatch.ErrInvalid)
		w.ends(t)
		require.NoError(t, lock.Unlock(t.Context()))
		w.ends(t)
	}},

	{"a lock is adopted by its token", func(t *testing.T, w *world) {
		if w.pair {
			t.Skip("one token cannot prove two locks")
		}
		lock := mustLock(t, w.locker(t), w.key, redlatch.WithoutRenewal())
		adopted, err := w.locker(t).Adopt(t.Context(), w.key, lock.Token())
		require.NoError(t, err)
		require.Equal(t, lock.Token(), adopted.Token())
		if w.fences {
			require.Greater(t, adopted.Fence(), lock.Fence())
			again, err := w.locker(t).Adopt(t.Context(), w.key, lock.Token())
			require.NoError(t, err)
			require.Greater(t, again.Fence(), adopted.Fence(), "each adopter has a higher fence than the one before")
		} else {
			require.Zero(t, adopted.Fence())
		}
		require.NoError(t, adopted.Unlock(t.Context()))
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)

		l := w.locker(t)
		lock = mustLock(t, l, w.key)
		_, err = l.Adopt(t.Context(), w.key, lock.Token())
		require.NoError(t, err)
		other := mustLock(t, l, w.key+" other")
		require.NotEqual(t, lock.Token(), other.Token(), "the other lock has a token of its own")
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, lock.Unlock(t.Context()))

		_, err = w.locker(t).Adopt(t.Context(), w.key, lock.Token())
		require.ErrorIs(t, err, redlatch.ErrLost)
		lost := mustLock(t, w.locker(t), w.key, redlatch.WithoutRenewal(), redlatch.WithTTL(locktest.BriefTTL))
		adopted, err = w.locker(t).Adopt(t.Context(), w.key, lost.Token(), redlatch.WithTTL(time.Hour))
		require.NoError(t, err)
		<-lost.Done()
		require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost, "that leaves the lock of the adopter alone")
		require.NoError(t, adopted.Unlock(t.Context()))
		_, err = w.locker(t).Adopt(t.Context(), w.key, "")
		require.ErrorIs(t, err, redlatch.ErrInvalid)
	}},

	{"Inspect tells held from free and changes nothing", func(t *testing.T, w *world) {
		l := w.locker(t)
		st, err := l.Inspect(t.Context(), w.key)
		require.NoError(t, err)
		require.Equal(t, redlatch.Status{}, st)
		w.gone(t, w.key)

		begin := time.Now().Truncate(time.Millisecond)
		lock := mustLock(t, w.locker(t), w.key)
		end := time.Now()
		st, err = l.Inspect(t.Context(), w.key)
		require.NoError(t, err)
		require.True(t, st.Held)
		require.Equal(t, lock.Token(), st.Token)
		require.WithinRange(t, st.Since, begin, end)
		require.Positive(t, st.TTL)
		require.NoError(t, lock.Unlock(t.Context()))

		st, err = l.Inspect(t.Context(), w.key)
		require.NoError(t, err)
		require.Equal(t, redlatch.Status{}, st)
	}},

	{"a key of another type is an error and stays as it is", func(t *testing.T, w *world) {
		w.everywhere(func(c redis.UniversalClient) {
			require.NoError(t, c.RPush(t.Context(), w.stored(w.key), "a", "b").Err())
		})
		for name, ask := range map[string]func() error{
			"TryLock": func() error { _, err := w.locker(t).TryLock(t.Context(), w.key); return err },
			"Lock":    func() error { _, err := w.locker(t).Lock(t.Context(), w.key); return err },
			"Inspect": func() error { _, err := w.locker(t).Inspect(t.Context(), w.key); return err },
		} {
			err := ask()
			require.ErrorContains(t, err, "WRONGTYPE", name)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired, name)
			require.NotContains(t, err.Error(), "\n", name)
		}
		w.everywhere(func(c redis.UniversalClient) {
			require.Equal(t, []string{"a", "b"}, c.LRange(t.Context(), w.stored(w.key), 0, -1).Val())
			// Check this before the key is deleted: a slow acquire that finds the key free adds
			// other keys.
			require.Equal(t, []string{w.stored(w.key)}, w.keys(t, c), "nothing is left beside the key")
			require.NoError(t, c.Del(t.Context(), w.stored(w.key)).Err())
		})
	}},

	{"SCRIPT FLUSH between any two calls changes nothing", func(t *testing.T, w *world) {
		flush := func() {
			w.everywhere(func(c redis.UniversalClient) { require.NoError(t, c.ScriptFlush(t.Context()).Err()) })
		}
		l := w.locker(t)
		flush()
		lock := mustLock(t, l, w.key)
		flush()
		_, err := l.TryLock(t.Context(), w.key)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		flush()
		require.NoError(t, lock.Extend(t.Context(), time.Second))
		flush()
		_, err = l.Inspect(t.Context(), w.key)
		require.NoError(t, err)
		flush()
		require.NoError(t, lock.Unlock(t.Context()))
	}},

	{"bad input is refused before anything is sent", func(t *testing.T, w *world) {
		var sent atomic.Int64
		clients := make([]redis.UniversalClient, w.nodes)
		for i := range clients {
			c := w.client(t, i)
			c.AddHook(locktest.Count(&sent))
			clients[i] = c
		}
		l, err := w.make(clients)
		require.NoError(t, err)
		for _, opt := range []redlatch.Option{ // TestTexts has the texts
			redlatch.WithTTL(-time.Second), redlatch.WithTTL(2 * time.Millisecond), redlatch.WithGrace(-1), redlatch.WithMaxWait(-1), redlatch.WithLimit(0), redlatch.WithLimit(-1), redlatch.WithGrace(10 * time.Second), redlatch.WithOpTimeout(-1),
			redlatch.WithPollInterval(0, time.Second), nil,
		} {
			_, err := l.Lock(t.Context(), w.key, opt)
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			_, err = l.TryLock(t.Context(), w.key, opt)
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			_, err = l.Adopt(t.Context(), w.key, "token", opt)
			require.Equal(t, !w.pair, errors.Is(err, redlatch.ErrInvalid))
			_, err = w.make(clients, opt)
			require.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		_, err = l.Lock(t.Context(), "")
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		_, err = l.Inspect(t.Context(), "")
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		for i := range clients {
			some := append([]redis.UniversalClient(nil), clients...)
			some[i] = nil
			_, err = w.make(some)
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			some[i] = (*redis.Client)(nil)
			_, err = w.make(some)
			require.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		require.Zero(t, sent.Load())
	}},

	{"12 goroutines of 4 clients count to 180 under Lock", func(t *testing.T, w *world) {
		counter := w.stored(w.key + " counter")
		var wg sync.WaitGroup
		failures := make(chan error, 12)
		for range 4 {
			l := w.locker(t, redlatch.WithTTL(10*time.Second))
			for range 3 {
				wg.Go(func() {
					for range 15 {
						if err := redlatch.Do(t.Context(), l, w.key, func(ctx context.Context, _ *redlatch.Lock) error {
							n, err := w.admin[0].Get(ctx, counter).Int()
							if err != nil && !errors.Is(err, redis.Nil) {
								return err
							}
							return w.admin[0].Set(ctx, counter, n+1, time.Hour).Err()
						}); err != nil {
							failures <- err
							return
						}
					}
				})
			}
		}
		wg.Wait()
		close(failures)
		require.NoError(t, <-failures)
		require.Equal(t, "180", w.admin[0].Get(t.Context(), counter).Val())
	}},
}
