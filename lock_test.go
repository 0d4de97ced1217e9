package redlatch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// These come from locktest, which the tests of other packages use too.
var (
	eventually = locktest.Eventually
	mustLock   = locktest.MustLock
	patience   = locktest.Patience
)

// kind describes a strategy for the conformance table.
type kind struct {
	name     string
	nodes    int
	fences   bool
	timeless bool // the lock itself is a key without a TTL
	quorum   bool // its fences are counters, one for each key
	permits  bool // its locks are permits of a semaphore of one
	pair     bool // two Lockers as one: it cannot adopt, and takes no prefix in a call
	make     func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)
}

// kinds lists every strategy: each runs the whole table.
var kinds = []kind{
	{
		name: "SetNXPX", nodes: 1, fences: true,
		make: func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			return redlatch.NewSetNXPX(clients[0], opts...)
		},
	},
	{
		name: "SetNXPX, pipelined", nodes: 1, fences: true,
		make: func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			client, ok := clients[0].(*redis.Client)
			if !ok || client == nil {
				return redlatch.NewSetNXPX(clients[0], opts...)
			}
			pipelined, err := client.AutoPipeline()
			if err != nil {
				return nil, err
			}
			return redlatch.NewSetNXPX(pipelined, opts...)
		},
	},
	{
		name: "LegacySetNX", nodes: 1, timeless: true,
		make: func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			return redlatch.NewLegacySetNX(clients[0], opts...)
		},
	},
	{name: "Redlock", nodes: 5, fences: true, quorum: true, make: redlatch.NewRedlock},
	{
		name: "Semaphore", nodes: 1, fences: true, permits: true,
		make: func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			return redlatch.NewSemaphore(clients[0], 1, opts...)
		},
	},
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

// world is one strategy on one kind of server, with a key of the test's own.
type world struct {
	kind
	key    string
	admin  []*redis.Client // by node, for the test's own commands
	client func(t *testing.T, node int) *redis.Client
}

// locker returns a Locker with clients of its own, as another process would have. Its op timeout is long enough for a
// busy machine.
func (w *world) locker(t *testing.T, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	clients := make([]redis.UniversalClient, w.nodes)
	for i := range clients {
		clients[i] = w.client(t, i)
	}
	l, err := w.make(clients, append([]redlatch.Option{patience}, opts...)...)
	require.NoError(t, err)
	return l
}

// unadopted returns the error that Adopt must match: err, or ErrUnsupported if the strategy cannot adopt.
func (w *world) unadopted(err error) error {
	if w.pair {
		return errors.ErrUnsupported
	}
	return err
}

// exists returns how many nodes have key.
func (w *world) exists(t *testing.T, key string) int {
	t.Helper()
	var n int64
	for _, c := range w.admin {
		have, err := c.Exists(t.Context(), key).Result()
		require.NoError(t, err)
		n += have
	}
	return int(n)
}

// grant writes key as if an earlier process had acquired it with token for an hour.
func (w *world) grant(t *testing.T, key, token string) {
	t.Helper()
	w.everywhere(func(c *redis.Client) {
		if !w.permits {
			require.NoError(t, c.Set(t.Context(), key, token, time.Hour).Err())
			return
		}
		ends := float64(time.Now().Add(time.Hour).UnixMicro())
		require.NoError(t, c.ZAdd(t.Context(), key, redis.Z{Score: -1}, redis.Z{Score: ends, Member: token}).Err())
		require.NoError(t, c.PExpire(t.Context(), key, time.Hour).Err())
	})
}

// lose deletes the key on every node until ended is closed. A renewal between two deletions may heal a node of a quorum.
func (w *world) lose(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	eventually(t, "the loss is noticed", func() bool {
		w.everywhere(func(c *redis.Client) { require.NoError(t, c.Del(t.Context(), w.key).Err()) })
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}

// gone waits until no node has key: a release may still be in flight to a minority of nodes.
func (w *world) gone(t *testing.T, key string) {
	t.Helper()
	eventually(t, key+" is gone", func() bool { return w.exists(t, key) == 0 })
}

// lastsLong waits until Inspect reports that key lasts for most of an hour: the slower nodes may be late.
func (w *world) lastsLong(t *testing.T, key string) {
	t.Helper()
	l := w.locker(t)
	eventually(t, key+" lasts", func() bool {
		st, err := l.Inspect(t.Context(), key)
		require.NoError(t, err)
		return st.TTL > 50*time.Minute
	})
}

// everywhere runs f on every node.
func (w *world) everywhere(f func(c *redis.Client)) {
	for _, c := range w.admin {
		f(c)
	}
}

// TestConformance runs every case on every strategy, on miniredis and on real Redis.
// Rules 1, 4, 5, 6, 7, 9, 12, 17, 19 and 20.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			t.Run("miniredis", func(t *testing.T) {
				t.Parallel()
				for _, c := range conformance {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						servers := make([]*miniredis.Miniredis, k.nodes)
						for i := range servers {
							servers[i] = miniredis.RunT(t)
							servers[i].ClockTTL(true)
						}
						run(t, k, c, func(t *testing.T, node int) *redis.Client {
							c := redis.NewClient(&redis.Options{Addr: servers[node].Addr()})
							t.Cleanup(func() { _ = c.Close() })
							return c
						})
					})
				}
			})
			t.Run("redis", func(t *testing.T) {
				t.Parallel()
				servers := make([]*redistest.Server, k.nodes)
				for i := range servers {
					servers[i] = redistest.Start(t)
				}
				t.Run("cases", func(t *testing.T) {
					for _, c := range conformance {
						t.Run(c.name, func(t *testing.T) {
							t.Parallel()
							run(t, k, c, func(t *testing.T, node int) *redis.Client { return servers[node].Client(t) })
						})
					}
				})
			})
		})
	}
}

func run(t *testing.T, k kind, c conformanceCase, client func(t *testing.T, node int) *redis.Client) {
	w := &world{kind: k, key: t.Name(), client: client}
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
