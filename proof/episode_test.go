package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/proof/history"
)

const (
	gremlins    = 2
	roundPrefix = "round " // of every lock's key
)

// An episode is one history of a world, with faults. No lock is held at its start or at its end.
type episode struct {
	world   *world
	seed    uint64
	prefix  string // of the keys
	faults  []fault
	keeping bool          // no server may forget a lock: one owner too many is an error
	ops     int           // at least so many with a known outcome, and every kind of fault
	length  time.Duration // at least so long
	limit   time.Duration // at most so long
	// bound is how long a wait may last once the faults have ended: the rest of the longest lease
	// and a second for a lost message, and much more for a busy machine.
	bound time.Duration

	mu      sync.Mutex // guards the fields below
	history []history.Op
	known   int // how many of them have a known outcome
	passed  int
	left    []fault // to be dealt before any comes again
	struck  map[string]int
	wrong   []error
}

// newEpisode returns an episode whose keys nobody has used before.
func (w *world) newEpisode(seed uint64, keeping bool, round int) *episode {
	return &episode{
		world: w, seed: seed, prefix: fmt.Sprintf("%s%d:", roundPrefix, round), faults: w.faults(keeping), keeping: keeping,
		ops: 1000, length: 15 * time.Second, limit: 3 * time.Minute, bound: time.Minute, struck: make(map[string]int),
	}
}

// run plays the episode and returns what is wrong.
func (e *episode) run() error {
	keys := e.keys()
	working, enough := context.WithCancel(context.Background())
	defer enough()
	bound, late := context.WithCancel(context.Background())
	defer late()
	var hired, trouble sync.WaitGroup
	e.hire(&hired, keys, working, bound)
	calm, settle := context.WithCancel(context.Background())
	defer settle()
	for i := range gremlins {
		g := &gremlin{world: e.world, rng: rand.New(rand.NewPCG(e.seed, uint64(2+i))), calm: calm}
		trouble.Go(func() { e.rage(g) })
	}
	trouble.Go(func() { e.watch(calm) })

	begin := time.Now()
	for !e.enough(time.Since(begin)) {
		time.Sleep(50 * time.Millisecond)
	}
	settle()
	trouble.Wait()
	for _, r := range e.world.roads() {
		r.LoseReplies(0, "")
		r.LoseRequests(0, "")
	}
	enough()
	timer := time.AfterFunc(e.bound, late)
	hired.Wait()
	timer.Stop()
	e.refill(keys)
	e.inspect()
	return e.judge()
}

func (e *episode) keys() (keys []string) {
	forms := []string{"k%d", "{k}%d", "k{%d}", "k {}%d", "k\x00é%d", "k%d:fence:"}
	for i := range e.world.strategy.keys {
		keys = append(keys, fmt.Sprintf(e.prefix+forms[i%len(forms)], i))
	}
	return keys
}

// hire starts the workers of all lockers.
//
//nolint:revive // neither context is the call's: they are what the workers get
func (e *episode) hire(hired *sync.WaitGroup, keys []string, working, bound context.Context) {
	for i, l := range e.world.lockers {
		for j := range crew {
			id := i*crew + j
			w := &worker{
				id: id, strategy: e.world.strategy, locker: l, keys: keys,
				rng: rand.New(rand.NewPCG(e.seed, uint64(100+id))), record: e.record, complain: e.complain,
			}
			hired.Go(func() { w.run(working, bound) })
		}
	}
}

func (e *episode) record(op history.Op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.history = append(e.history, op)
	if !op.Unknown {
		e.known++
	}
	if op.Passed {
		e.passed++
	}
}

func (e *episode) complain(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong = append(e.wrong, errors.New(text))
}

// rage makes a gremlin cause one fault after the other, until it is calm.
func (e *episode) rage(g *gremlin) {
	for g.calm.Err() == nil {
		f := e.deal(g.rng)
		if f.inject(g) {
			e.mu.Lock()
			e.struck[f.name]++
			e.mu.Unlock()
		}
		time.Sleep(time.Duration(g.rng.Int64N(int64(150 * time.Millisecond))))
	}
}

// deal deals the faults like cards: each once, then each once again, in another order.
func (e *episode) deal(rng *rand.Rand) (f fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.left) == 0 {
		for _, i := range rng.Perm(len(e.faults)) {
			e.left = append(e.left, e.faults[i])
		}
	}
	f, e.left = e.left[0], e.left[1:]
	return f
}

// enough reports whether the episode has all the operations and faults that it needs, or has lasted
// too long.
func (e *episode) enough(lasted time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known >= e.ops && lasted >= e.length && len(e.struck) == len(e.faults) || lasted > e.limit
}

// watch looks for keys without a TTL, until it is calm.
func (e *episode) watch(calm context.Context) {
	for calm.Err() == nil {
		for _, s := range e.world.servers {
			ifIdle(&s.busy, func() { e.lookForEternal(s) })
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (e *episode) lookForEternal(s *server) {
	// A server that is being paused answers later.
	if found, err := e.world.eternal(context.Background(), s); err == nil && len(found) > 0 {
		e.complain(fmt.Sprintf("without a TTL: %q", found))
	}
}

// refill acquires every key as often as it admits holders, and no more often, once all workers have
// ended. Locks that they left expire within the longest TTL.
func (e *episode) refill(keys []string) {
	limit, l := e.world.strategy.holders, e.world.inspector()
	patience := e.world.strategy.longest() + time.Minute // on a busy machine, and for LegacySetNX
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var refilled sync.WaitGroup
	for _, key := range keys {
		refilled.Go(func() {
			for i := range limit {
				lock, err := l.lock(ctx, key, wish{renew: true, write: l.writers != nil})
				if err != nil {
					e.complain(fmt.Sprintf("%q was granted %d of %d times at the end: %v", key, i, limit, err))
					return
				}
				defer lock.Unlock(context.Background()) //nolint:errcheck // inspect looks at what is left
			}
			if lock, err := l.lock(ctx, key, wish{once: true, write: l.writers != nil}); err == nil {
				e.complain(fmt.Sprintf("%q was granted more than %d times at the end", key, limit))
				_ = lock.Unlock(context.Background()) // as above
			}
		})
	}
	refilled.Wait()
}

// inspect checks what is left once all workers have ended, and that the episode tells something.
func (e *episode) inspect() {
	for _, s := range e.world.servers {
		e.lookForEternal(s)
		for _, key := range s.admin.Keys(context.Background(), "*"+e.prefix+"*").Val() {
			queue := strings.Contains(key, ":queue:") || strings.Contains(key, ":permits:")
			if queue && s.admin.ZCard(context.Background(), key).Val() > 0 {
				e.complain(fmt.Sprintf("%q is still queued for", key))
			}
		}
	}
	if e.known < e.ops {
		e.complain(fmt.Sprintf("%d operations with a known outcome in %v: too few to tell", e.known, e.limit))
	}
	if e.world.strategy.passes && e.passed == 0 {
		e.complain("no lock was passed on")
	}
	for _, f := range e.faults {
		if e.struck[f.name] == 0 {
			e.complain("never struck: " + f.name)
		}
	}
}

// judge returns what is wrong. It draws a picture of a history that broke the rules.
func (e *episode) judge() error {
	s := e.world.strategy
	err := history.Check(e.history, history.Rules{
		Exclusion: e.keeping, Holders: s.holders, Fences: s.fenced, Writers: s.writers != nil,
	}, true)
	if err = errors.Join(append(e.wrong, err)...); err != nil {
		return fmt.Errorf("%s, seed %d: %w", s.name, e.seed, err)
	}
	return nil
}

// String is a summary of what happened.
func (e *episode) String() string {
	unknown := len(e.history) - e.known
	return fmt.Sprintf("%s: %d operations, %d locks passed on, %d unknown outcomes, faults: %v", e.world.strategy.name, e.known, e.passed, unknown, e.struck)
}
