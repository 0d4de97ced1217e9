package proof

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
)

// sequence is a random sequence of operations on real Lockers, with what the model says of it.
type sequence struct {
	rules   rulebook
	stores  []*miniredis.Miniredis
	lockers []redlatch.Locker
	keys    map[string]*keyModel
	names   []string
	handles []*handleModel
	named   int // how many tokens have a name
}

// TestModelSaysWhatLocksDo: in any sequence of operations, each call returns what the model says, each
// handle knows whether it is trusted, and fences grow.
func TestModelSaysWhatLocksDo(t *testing.T) {
	if s := *seedFlag; s != 0 {
		require.NoError(t, flag.Set("rapid.seed", fmt.Sprint(s)))
	}
	if !testing.Short() {
		require.NoError(t, flag.Set("rapid.checks", "500"))
	}
	onRedis := rulebook{freeAt: byTTL, least: 100 * time.Millisecond, fenced: true, keeps: true}
	permits := onRedis
	permits.limits = []int{2, 2, 5}
	for name, kind := range map[string]struct {
		rules  rulebook
		stores int
		make   func(clients []redis.UniversalClient, limit int) (redlatch.Locker, error)
	}{
		"setnxpx": {onRedis, 1, func(c []redis.UniversalClient, _ int) (redlatch.Locker, error) {
			return redlatch.NewSetNXPX(c[0])
		}},
		"legacysetnx": {rulebook{freeAt: byTimestamp, least: 2 * time.Second, wholeSeconds: true}, 1, func(c []redis.UniversalClient, _ int) (redlatch.Locker, error) {
			return redlatch.NewLegacySetNX(c[0])
		}},
		"semaphore": {permits, 1, func(c []redis.UniversalClient, limit int) (redlatch.Locker, error) {
			return redlatch.NewSemaphore(c[0], limit)
		}},
		"redlock": {onRedis, 3, func(c []redis.UniversalClient, _ int) (redlatch.Locker, error) {
			return redlatch.NewRedlock(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rapid.SyncTest(t, func(t *rapid.T) {
					s := &sequence{rules: kind.rules, names: []string{"k", "{k}", "k\x00}"}, keys: make(map[string]*keyModel)}
					for _, name := range s.names {
						s.keys[name] = newKeyModel()
					}
					for range kind.stores {
						m := miniredis.NewMiniRedis()
						m.ClockTTL(true)
						t.Cleanup(m.Close)
						s.stores = append(s.stores, m)
					}
					if s.rules.limits == nil {
						s.rules.limits = []int{1, 1}
					}
					for _, limit := range s.rules.limits {
						l, err := kind.make(s.clients(t), limit)
						require.NoError(t, err)
						s.lockers = append(s.lockers, l)
					}
					t.Cleanup(s.leave)
					t.Repeat(map[string]func(*rapid.T){
						"":        s.agrees,
						"tryLock": s.tryLock, "lock": s.lock, "unlock": s.unlock, "extend": s.extend,
						"adopt": s.adopt, "inspect": s.inspect, "pass": s.pass, "remove": s.remove,
					})
					s.end(t)
				})
			})
		})
	}
}

// clients returns a client for each store, in the bubble.
func (s *sequence) clients(t *rapid.T) (clients []redis.UniversalClient) {
	for i, m := range s.stores {
		client := redis.NewClient(&redis.Options{
			Addr:   fmt.Sprintf("127.0.0.1:%d", 6379+i),
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		})
		t.Cleanup(func() { _ = client.Close() }) // the bubble is over
		clients = append(clients, client)
	}
	return clients
}

// agrees compares what the handles report with the model.
func (s *sequence) agrees(t *rapid.T) {
	synctest.Wait()                             // a wait that gave up is cleaned up in the background
	trusted := make(map[string]map[string]bool) // by key, the tokens
	for _, h := range s.handles {
		h.alive() // notes the end of the handle
		want, unsure := h.err()
		got := h.lock.Err()
		if !unsure || got != nil {
			require.ErrorIs(t, got, want, "%q by %s", h.on, h.name)
		}
		if got == nil && h.key.has(h.name) {
			if trusted[h.on] == nil {
				trusted[h.on] = make(map[string]bool)
			}
			trusted[h.on][h.name] = true
			require.LessOrEqual(t, len(trusted[h.on]), slices.Max(s.rules.limits), "an owner too many")
		}
		if !h.renewed && h.end == nil {
			require.True(t, h.until.Equal(h.lock.Until()), "until is %v, not %v", h.lock.Until(), h.until)
		}
	}
}

// settle lets time pass until no lease is about to end, since the instants around an end are not
// modelled.
func (s *sequence) settle() {
	const edge = 3 * time.Millisecond
	for again := true; again; {
		again = false
		near := func(at time.Time) bool { d := time.Until(at); return -edge < d && d < edge }
		for _, h := range s.handles {
			again = again || near(h.until) || near(h.kept)
		}
		for _, key := range s.keys {
			for _, at := range key.freeAt {
				again = again || near(at)
			}
		}
		if again {
			time.Sleep(edge)
		}
	}
}

func (s *sequence) someKey(t *rapid.T) (string, *keyModel) {
	on := rapid.SampledFrom(s.names).Draw(t, "key")
	return on, s.keys[on]
}

func (s *sequence) someLocker(t *rapid.T) (l redlatch.Locker, limit int) {
	i := rapid.IntRange(0, len(s.lockers)-1).Draw(t, "locker")
	return s.lockers[i], s.rules.limits[i]
}

func (s *sequence) someHandle(t *rapid.T) *handleModel {
	if len(s.handles) == 0 {
		t.Skip("no handle yet")
	}
	// Mostly one of the newest.
	back := rapid.IntRange(1, min(len(s.handles), 6)).Draw(t, "handle")
	return s.handles[len(s.handles)-back]
}

func (s *sequence) someTTL(t *rapid.T) time.Duration {
	least := s.rules.least.Milliseconds()
	return time.Duration(rapid.Int64Range(least, least+4000).Draw(t, "ttl, ms")) * time.Millisecond
}

// end unlocks all handles.
func (s *sequence) end(t *rapid.T) {
	for _, h := range s.handles {
		requireSame(t, h.unlock(), h.lock.Unlock(context.Background()))
	}
}

// leave unlocks the handles that are left, and lets subscriptions close: a bubble waits for its
// goroutines.
func (s *sequence) leave() {
	for _, h := range s.handles {
		_ = h.lock.Unlock(context.Background()) // most were unlocked before
	}
	time.Sleep(10 * time.Second)
}

// requireSame fails unless err is what was wanted.
func requireSame(t *rapid.T, want, err error) {
	if want == nil {
		require.NoError(t, err)
	} else if !errors.Is(err, want) {
		t.Fatalf("%v, not %v", err, want)
	}
}
