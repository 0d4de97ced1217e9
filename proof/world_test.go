package proof

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A strategy is a constructor, with its properties that matter to a history.
type strategy struct {
	name      string
	open      opener // of readers, if there are writers
	writers   opener // nil: there are none
	writes    int    // how many in a hundred locks are those of writers
	servers   int
	ttl       time.Duration
	keys      int
	holders   int  // the limit of a semaphore; 1: a lock
	overstays int  // how many in a hundred locks are held for longer than their TTL
	crowded   int  // how many in a hundred locks have the hot key, beside those that have it by chance
	fenced    bool // the locks have fences
	queues    bool // a release hands the lock on
	passes    bool // Unlock passes some locks on within the process
	quorum    bool // a server may lose its data if it then stays away for the longest TTL
	untimed   bool // the locks have no TTL in Redis
}

// An opener makes a Locker.
type opener func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)

// onFirst makes a Locker on the first client.
func onFirst(open func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error)) opener {
	return func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return open(clients[0], opts...)
	}
}

var (
	setNXPX = strategy{
		name: "setnxpx", servers: 1, ttl: 300 * time.Millisecond, keys: 8, holders: 1, overstays: 12, crowded: 50,
		fenced: true, queues: true, passes: true,
		open: onFirst(redlatch.NewSetNXPX),
	}
	// A lost lock of LegacySetNX is free only seconds later. So there are more keys.
	legacySetNX = strategy{
		name: "legacysetnx", servers: 1, ttl: time.Second, keys: 24, holders: 1, overstays: 5, crowded: 30, untimed: true, passes: true,
		open: onFirst(redlatch.NewLegacySetNX),
	}
	redlock = strategy{
		name: "redlock", servers: 3, ttl: 300 * time.Millisecond, keys: 8, holders: 1, overstays: 12, crowded: 20,
		fenced: true, quorum: true,
		open: redlatch.NewRedlock,
	}
	semaphore = semaphoreOf(3, 3)
	mutex     = semaphoreOf(1, 8)
	readWrite = readWriteOf()
)

// readWriteOf returns the strategy of readers and writers.
func readWriteOf() strategy {
	s := setNXPX
	s.name, s.keys, s.passes, s.writes = "read-write", 4, false, 25
	s.open = onFirst(func(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		read, _, err := redlatch.NewReadWrite(client, opts...)
		return read, err
	})
	s.writers = onFirst(func(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		_, write, err := redlatch.NewReadWrite(client, opts...)
		return write, err
	})
	return s
}

// semaphoreOf returns the strategy of a semaphore.
func semaphoreOf(limit, keys int) strategy {
	s := setNXPX
	s.name, s.holders, s.keys, s.passes = "semaphore", limit, keys, limit == 1
	if limit == 1 {
		s.name = "semaphore of one"
	}
	s.open = onFirst(func(client redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(client, limit, opts...)
	})
	return s
}

// longest is the longest TTL that a worker asks for.
func (s strategy) longest() time.Duration { return 2 * s.ttl }

// A server is one Redis. Only the holder of busy may put a fault on it.
type server struct {
	*redistest.Server
	busy  sync.Mutex
	admin *redis.Client // past all proxies
	roads []*road       // the proxies in front of it
}

// do sends a command whose reply is of no use. A fault may lose it.
func (s *server) do(words ...any) { _ = s.admin.Do(context.Background(), words...).Err() }

// A road is a proxy between a client and a server. Only the holder of busy may put a fault on it.
type road struct {
	*faultproxy.Proxy
	busy sync.Mutex
}

// A world has the servers and the clients of a history.
type world struct {
	tb       testing.TB
	strategy strategy
	servers  []*server
	lockers  []locker // each with connections of its own
}

// The size of a world.
const (
	lockers = 3
	crew    = 4 // workers of a locker
)

// newWorld starts servers that keep their data, and clients that reach them through proxies. It
// ends with tb.
func newWorld(tb testing.TB, s strategy) *world {
	tb.Helper()
	w := &world{tb: tb, strategy: s}
	for range s.servers {
		// Redis writes to its file before it replies. That outlasts kill -9, also without fsync.
		at := redistest.Start(tb, "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-min-size", "16mb")
		o := at.Options()
		o.ReadTimeout, o.MaxRetries = 10*time.Second, -1
		admin := redis.NewClient(o)
		tb.Cleanup(func() { _ = admin.Close() }) // the world is over
		w.servers = append(w.servers, &server{Server: at, admin: admin})
	}
	for i := range lockers {
		var clients []redis.UniversalClient
		for j, at := range w.servers {
			r := &road{Proxy: faultproxy.New(tb, at.Network(), at.Addr())}
			o := r.Options()
			o.MaxRetries = []int{0, -1}[(i+j)%2] // go-redis' default, and none
			client := redis.NewClient(o)
			tb.Cleanup(func() { _ = client.Close() }) // the world is over
			at.roads, clients = append(at.roads, r), append(clients, client)
		}
		w.lockers = append(w.lockers, newLocker(s, clients))
	}
	return w
}

// inspector returns a locker that reaches the servers past all proxies, with patience for a busy
// machine.
func (w *world) inspector() locker {
	s := w.strategy
	s.ttl = time.Minute
	var clients []redis.UniversalClient
	for _, s := range w.servers {
		clients = append(clients, s.admin)
	}
	return newLocker(s, clients)
}

// roads returns all proxies.
func (w *world) roads() (roads []*road) {
	for _, s := range w.servers {
		roads = append(roads, s.roads...)
	}
	return roads
}

// eternal returns the keys without a TTL, except the locks of a strategy that gives them none.
func (w *world) eternal(ctx context.Context, s *server) ([]string, error) {
	found, err := s.admin.Eval(ctx, `
		local eternal = {}
		for _, key in ipairs(redis.call('KEYS', '*')) do
			if redis.call('PTTL', key) == -1 then
				table.insert(eternal, key)
			end
		end
		return eternal`, nil).StringSlice()
	return slices.DeleteFunc(found, func(key string) bool {
		return w.strategy.untimed && strings.HasPrefix(key, roundPrefix) // and not a companion key, which begins with {
	}), err
}
