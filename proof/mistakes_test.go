package proof

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// A mistake is planted between redlatch and the workers. Histories must expose it.
type mistake struct {
	strategy strategy
	forgets  bool                                             // servers lose their data
	plant    func(h *flawed, key string, admin *redis.Client) // changes the handle of a grant; admin is past all proxies
	shown    []string                                         // in the error of a history
}

// flawed is the handle of a lock with a mistake.
type flawed struct {
	handle
	fence  uint64
	longer time.Duration             // than redlatch says, the lease is trusted
	after  func(ctx context.Context) // comes after Unlock
}

func (h *flawed) Fence() uint64    { return h.fence }
func (h *flawed) Until() time.Time { return h.handle.Until().Add(h.longer) }

func (h *flawed) Err() error {
	if h.longer > 0 && time.Now().Before(h.Until()) {
		return nil
	}
	return h.handle.Err()
}

func (h *flawed) Unlock(ctx context.Context) error {
	if h.after != nil {
		defer h.after(ctx)
	}
	return h.handle.Unlock(ctx)
}

var mistakes = map[string]mistake{
	"an acquire comes after its release": {
		strategy: setNXPX, shown: []string{"without a TTL", "waited for"},
		plant: func(h *flawed, key string, admin *redis.Client) {
			h.after = func(ctx context.Context) { admin.SetNX(ctx, key, "late", 0) }
		},
	},
	"a holder trusts its lock for too long": {
		strategy: mutex, shown: []string{"breaks the rules"},
		plant: func(h *flawed, _ string, _ *redis.Client) { h.longer = mistakenTTL },
	},
	"two grants have one fence": {
		strategy: semaphore, shown: []string{"breaks the rules"},
		plant: func(h *flawed, _ string, _ *redis.Client) { h.fence = 1 },
	},
	"a fence is a counter": {
		strategy: setNXPX, forgets: true, shown: []string{"breaks the rules"},
		plant: func(h *flawed, key string, admin *redis.Client) {
			h.fence = uint64(admin.Incr(context.Background(), key+" counted").Val())
		},
	},
	"each client has a quorum of its own": {strategy: apart(), shown: []string{"breaks the rules"}},
	"a semaphore admits one too many": {
		strategy: semaphoreOf(semaphore.holders+1, 1), shown: []string{"breaks the rules", "more than 3 times at the end"},
	},
}

// apart returns the strategy of clients that ask one node each, one after the other.
func apart() strategy {
	s, opened := redlock, new(atomic.Int64)
	s.open = func(clients []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		i := int(opened.Add(1)) % len(clients)
		return redlatch.NewRedlock(clients[i:i+1], opts...)
	}
	return s
}

// planted is a locker with a mistake.
type planted struct {
	locker
	mistake
	admin *redis.Client
}

func (p *planted) lock(ctx context.Context, key string, w wish) (handle, error) {
	got, err := p.locker.lock(ctx, key, w)
	if err != nil || p.plant == nil {
		return got, err
	}
	h := &flawed{handle: got, fence: got.Fence()}
	p.plant(h, key, p.admin)
	return h, nil
}

// mistakenTTL is short, so that many leases end.
const mistakenTTL = 100 * time.Millisecond

// TestMistakesAreFound: the histories, the faults and the rules of the other tests expose each mistake.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := m.strategy
			if !s.untimed {
				s.ttl = mistakenTTL
			}
			w, from := newWorld(t, s), seed(t)
			w.strategy.holders = min(s.holders, semaphore.holders)
			for i, l := range w.lockers {
				w.lockers[i] = &planted{locker: l, mistake: m, admin: w.servers[0].admin}
			}
			const patience = time.Minute // on a busy machine a history shows little
			var err error
			for round, begin := 0, time.Now(); time.Since(begin) < patience; round++ {
				e := w.newEpisode(from+uint64(round), !m.forgets, round)
				e.planted, e.length, e.limit, e.bound = true, 0, 2*time.Second, 2*time.Second
				if err = e.run(); err != nil && !slices.ContainsFunc(m.shown, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
					t.Logf("shown in round %d", round)
					return
				}
			}
			t.Errorf("no history showed it, but: %v", err)
		})
	}
}
