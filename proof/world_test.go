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
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A strategy is a way to make lockers, with its properties that matter to a history.
type strategy struct {
	name    string
	servers int
	ttl     time.Duration
	keys    int
	// overstays is how many in a hundred locks are held for longer than their TTL. That takes long if
	// a lost lock is free only seconds later.
	overstays int
	crowded   int // how many in a hundred locks have the hot key, beside those that have it by chance
	fenced    bool
	holders   int  // the limit of a semaphore; 0: a lock
	queues    bool // a release hands the lock on
	// quorum: a server may lose its data, if it then stays away for the longest TTL.
	quorum bool
	// untimed: its locks have no TTL in Redis.
	untimed   bool
	keeps     bool          // some locks have a min hold
	passes    bool          // Unlock may pass the lock on within a process
	opTimeout time.Duration // 0: the default
	make      maker
	tune      func(*redis.Options) // of the clients; nil: as they are
}

// A maker makes a locker with the TTL and the op timeout of a wish as its defaults.
type maker func(clients []redis.UniversalClient, defaults wish) (locker, error)

var (
	setNXPX = strategy{
		name: "setnxpx", servers: 1, ttl: 300 * time.Millisecond, keys: 8, overstays: 12, crowded: 50, fenced: true, queues: true, keeps: true,
		passes: true,
		make: func(clients []redis.UniversalClient, defaults wish) (locker, error) {
			return newSound(defaults, func(opts ...redlatch.Option) (redlatch.Locker, error) {
				return redlatch.NewSetNXPX(clients[0], opts...)
			})
		},
	}
	legacySetNX = strategy{
		name: "legacysetnx", servers: 1, ttl: time.Second, keys: 24, overstays: 5, crowded: 30, untimed: true, passes: true,
		make: func(clients []redis.UniversalClient, defaults wish) (locker, error) {
			return newSound(defaults, func(opts ...redlatch.Option) (redlatch.Locker, error) {
				return redlatch.NewLegacySetNX(clients[0], opts...)
			})
		},
	}
	redlock = strategy{
		name: "redlock", servers: 3, ttl: 300 * time.Millisecond, keys: 8, overstays: 12, crowded: 20, fenced: true, quorum: true, keeps: true,
		make: func(clients []redis.UniversalClient, defaults wish) (locker, error) {
			return newSound(defaults, func(opts ...redlatch.Option) (redlatch.Locker, error) {
				return redlatch.NewRedlock(clients, opts...)
			})
		},
	}
	semaphore  = semaphoreOf("semaphore", 3, 3)
	mutex      = semaphoreOf("semaphore of one", 1, 8)
	strategies = []strategy{setNXPX, legacySetNX, redlock, semaphore, mutex}
)

// semaphoreOf returns the strategy of a semaphore. It has about as many permits in all as setNXPX has
// locks.
func semaphoreOf(name string, limit, keys int) strategy {
	s := setNXPX
	s.name, s.holders, s.keys = name, limit, keys
	s.make = func(clients []redis.UniversalClient, defaults wish) (locker, error) {
		return newSound(defaults, func(opts ...redlatch.Option) (redlatch.Locker, error) {
			return redlatch.NewSemaphore(clients[0], limit, opts...)
		})
	}
	return s
}

// strategyCalled is how a client process finds its strategy.
func strategyCalled(name string) (strategy, bool) {
	for _, s := range strategies {
		if s.name == name {
			return s, true
		}
	}
	return strategy{}, false
}

// defaults returns what a locker does for a plain wish.
func (s strategy) defaults() wish { return wish{ttl: s.ttl, opTimeout: s.opTimeout} }

// longest is the longest TTL that a worker asks for.
func (s strategy) longest() time.Duration { return 2 * s.ttl }

// A server is one Redis. Only the holder of busy may put a fault on it.
type server struct {
	*redistest.Server
	busy  sync.Mutex
	admin *redis.Client // past all proxies
}

// A road is a proxy between a site and a server. Only the holder of busy may put a fault on it.
type road struct {
	*faultproxy.Proxy
	busy sync.Mutex
}

// A site is one client of the locks: a Locker in this process, or a process of its own.
type site struct {
	roads   []*road // by server
	locker  locker  // nil: a process of its own
	peers   []peer  // that adopt its locks or others', if it has a locker
	parted  *parted // its clocks, if they are parted
	stepped bool    // its wall clock is set; otherwise its monotonic clock stops at times
	process *process
}

// A world has the servers and the clients of a history.
type world struct {
	tb       testing.TB
	strategy strategy
	servers  []*server
	sites    []*site
	odd      bool // withOddClients
	deadly   bool // clients of a process of their own are killed
}

// The size of a world.
const (
	plainSites = 2
	siteCrew   = 4 // workers of a site
)

// newWorld starts servers that keep their data, and clients that reach them through proxies. It ends
// with tb.
func newWorld(tb testing.TB, s strategy) *world {
	tb.Helper()
	w := &world{tb: tb, strategy: s}
	for range s.servers {
		at := redistest.Start(tb, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "16mb")
		o := at.Options()
		o.ReadTimeout, o.MaxRetries = 10*time.Second, -1
		admin := redis.NewClient(o)
		tb.Cleanup(func() { _ = admin.Close() }) // the world is over
		w.servers = append(w.servers, &server{Server: at, admin: admin})
	}
	for range plainSites {
		w.sites = append(w.sites, w.newSite())
	}
	return w
}

// withOddClients adds sites that only redlatch supports: two with parted clocks, and one in a process
// of its own, which can be stopped.
func (w *world) withOddClients() *world {
	w.odd = true
	for _, stepped := range []bool{true, false} {
		odd := w.newSite()
		odd.parted, odd.stepped = new(parted), stepped
		part(odd.locker.(sound).Locker, odd.parted)
		part(odd.locker.(sound).unrenewed, odd.parted)
		w.sites = append(w.sites, odd)
	}
	w.sites = append(w.sites, &site{roads: w.newRoads()})
	return w
}

func (w *world) newRoads() (roads []*road) {
	for _, s := range w.servers {
		roads = append(roads, &road{Proxy: faultproxy.New(w.tb, s.Network(), s.Addr())})
	}
	return roads
}

func (w *world) newSite() *site {
	at := &site{roads: w.newRoads()}
	var clients []redis.UniversalClient
	for i, r := range at.roads {
		o := r.Options()
		o.MaxRetries = []int{0, -1}[(len(w.sites)+i)%2] // go-redis' default, and none
		if w.strategy.tune != nil {
			w.strategy.tune(o)
		}
		client := redis.NewClient(o)
		w.tb.Cleanup(func() { _ = client.Close() }) // the world is over
		clients = append(clients, client)
	}
	at.locker = must1(w.strategy.make(clients, w.strategy.defaults()))
	at.peers = []peer{{locker: at.locker}}
	return at
}

// peers returns the Lockers of all sites in this process that adopt locks.
func (w *world) peers() (all []peer) {
	for _, s := range w.sites {
		for _, p := range s.peers {
			p.blurred = s.parted != nil
			all = append(all, p)
		}
	}
	return all
}

// roads returns all proxies.
func (w *world) roads() (roads []*road) {
	for _, s := range w.sites {
		roads = append(roads, s.roads...)
	}
	return roads
}

// roadsTo returns the proxies in front of a server.
func (w *world) roadsTo(s *server) (roads []*road) {
	i := slices.Index(w.servers, s)
	for _, at := range w.sites {
		roads = append(roads, at.roads[i])
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
