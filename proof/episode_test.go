package proof

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/proof/history"
)

const (
	gremlins = 2

	// roundPrefix begins every lock's key.
	roundPrefix = "round "

	// fairBound is how long a wait may last once the faults have ended: the longest lease that is
	// left and a second for a lost message, and much more for a busy machine.
	fairBound = 20 * time.Second
)

// An episode is one history of a world, with faults, from a start where no lock is held to one where
// none is held again.
type episode struct {
	world   *world
	seed    uint64
	keeping bool          // no lock may be forgotten: two owners are wrong
	ops     int           // at least so many, and every kind of fault
	length  time.Duration // at least so long
	limit   time.Duration // at most so long
	faults  []fault
	prefix  string // of the keys

	pictures string // where those of broken rules go; empty: a new directory

	mu      sync.Mutex // guards the fields below
	history []history.Op
	struck  map[string]int
	wrong   []string // what is wrong whatever the history says
}

// newEpisode returns one whose keys nobody used before.
func (w *world) newEpisode(seed uint64, keeping bool, round int) *episode {
	return &episode{
		world: w, seed: seed, keeping: keeping, ops: 2000, length: 4 * time.Second, limit: time.Minute,
		faults: w.faults(keeping), prefix: fmt.Sprintf("%s%d:", roundPrefix, round), struck: make(map[string]int),
		pictures: *pictures,
	}
}

// run plays the episode and returns what is wrong.
func (e *episode) run() error {
	keys := e.keys()
	working, enough := context.WithCancel(context.Background())
	defer enough()
	bound, late := context.WithCancel(context.Background())
	defer late()
	crew, processes := e.hire(keys, working, bound)

	calm, settle := context.WithCancel(context.Background())
	defer settle()
	var trouble sync.WaitGroup
	deck := newDeck(e.faults, rand.New(rand.NewPCG(e.seed, 1)))
	for i := range gremlins {
		g := &gremlin{world: e.world, rng: rand.New(rand.NewPCG(e.seed, uint64(2+i))), calm: calm}
		trouble.Go(func() { e.rage(g, deck) })
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
	timer := time.AfterFunc(fairBound, func() {
		e.autopsy(keys)
		late()
	})
	defer timer.Stop()
	for _, p := range processes {
		if err := p.stop(); err != nil {
			e.complain("a process of clients: " + err.Error())
		}
	}
	crew.Wait()
	e.inspect()
	return e.judge()
}

func (e *episode) keys() (keys []string) {
	for i := range e.world.strategy.keys {
		keys = append(keys, e.prefix+[]string{"k%d", "{k}%d", "k{%d}", "k {}%d", "k\x00é%d", "k%d:fence:"}[i%6])
		keys[i] = fmt.Sprintf(keys[i], i)
	}
	return keys
}

// hire starts the workers of all sites.
func (e *episode) hire(keys []string, working, bound context.Context) (crew *sync.WaitGroup, processes []*process) {
	crew = new(sync.WaitGroup)
	for i, s := range e.world.sites {
		if s.locker == nil {
			var addrs []string
			for _, r := range s.roads {
				addrs = append(addrs, r.Addr())
			}
			s.process = e.world.startProcess(plan{
				Strategy: e.world.strategy.name, Addrs: addrs, Keys: keys, Seed: e.seed + uint64(i), FirstID: i * siteCrew,
				Bound: fairBound,
			}, e.hear)
			processes = append(processes, s.process)
			continue
		}
		for j := range siteCrew {
			w := &worker{
				id: i*siteCrew + j, locker: s.locker, keys: keys, ttl: e.world.strategy.ttl,
				rng:     rand.New(rand.NewPCG(e.seed, uint64(100+i*siteCrew+j))),
				blurred: s.parted != nil,
				record:  func(op history.Op) { e.hear(news{Op: &op}) }, stuck: e.complain,
			}
			crew.Go(func() { w.run(working, bound) })
		}
	}
	return crew, processes
}

// hear notes what clients tell.
func (e *episode) hear(n news) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.Op != nil {
		e.history = append(e.history, *n.Op)
	}
	if n.Stuck != "" {
		e.wrong = append(e.wrong, n.Stuck)
	}
}

func (e *episode) complain(text string) { e.hear(news{Stuck: text}) }

// rage has a gremlin cause one fault after the other, until it is calm.
func (e *episode) rage(g *gremlin, d *deck) {
	for g.calm.Err() == nil {
		f := d.draw()
		if f.strike(g) {
			e.mu.Lock()
			e.struck[f.name]++
			e.mu.Unlock()
		}
		time.Sleep(time.Duration(g.rng.Int64N(int64(150 * time.Millisecond))))
	}
}

// watch looks for keys without a TTL, until it is calm.
func (e *episode) watch(calm context.Context) {
	for calm.Err() == nil {
		for _, s := range e.world.servers {
			if s.busy.TryLock() {
				e.lookForEternal(s)
				s.busy.Unlock()
			}
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

// autopsy notes what servers know of the locks that somebody still waits for.
func (e *episode) autopsy(keys []string) {
	for i, s := range e.world.servers {
		for _, key := range keys {
			holder := s.admin.Get(context.Background(), key).Val()
			if holder != "" {
				e.complain(fmt.Sprintf("server %d: %q is held by %q for %v", i, key, holder, s.admin.PTTL(context.Background(), key).Val()))
			}
		}
	}
}

// enough reports whether the episode has seen all it wants to see, or has lasted too long.
func (e *episode) enough(lasted time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.history) >= e.ops && lasted >= e.length && len(e.struck) == len(e.faults) || lasted > e.limit
}

// inspect looks at what is left when all workers have gone home.
func (e *episode) inspect() {
	for _, s := range e.world.servers {
		e.lookForEternal(s)
		for _, key := range s.admin.Keys(context.Background(), "*:queue:*").Val() {
			if strings.Contains(key, e.prefix) && s.admin.ZCard(context.Background(), key).Val() > 0 {
				e.complain(fmt.Sprintf("%q is still queued for", key))
			}
		}
	}
	if len(e.history) < e.ops {
		e.complain(fmt.Sprintf("%d operations in %v: too few to tell", len(e.history), e.limit))
	}
	for _, f := range e.faults {
		if e.struck[f.name] == 0 {
			e.complain("never struck: " + f.name)
		}
	}
}

// judge returns what is wrong, and writes a picture of a history that broke the rules.
func (e *episode) judge() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	verdict := history.Check(e.history, history.Rules{Exclusion: e.keeping, Fences: e.world.strategy.fenced})
	if err := verdict.Err(); err != nil {
		dir := e.pictures
		if dir == "" {
			dir = must1(os.MkdirTemp("", "redlatch-history-"))
		}
		files, drawErr := verdict.Draw(dir)
		e.wrong = append(e.wrong, fmt.Sprintf("%v; see %q (%v)", err, files, drawErr))
	}
	if len(e.wrong) > 0 {
		return fmt.Errorf("%s, seed %d: %s", e.world.strategy.name, e.seed, strings.Join(e.wrong, "\n"))
	}
	return nil
}

// summary is what an episode was.
type summary struct {
	ops, grants, losses, unknown int
	longest                      time.Duration // wait for a grant
	struck                       map[string]int
}

func (e *episode) summary() summary {
	s := summary{ops: len(e.history), struck: e.struck}
	for _, op := range e.history {
		switch {
		case op.Unknown:
			s.unknown++
		case op.Kind == history.Grant:
			s.grants++
			s.longest = max(s.longest, time.Duration(op.Return-op.Call))
		case op.Kind == history.Loss:
			s.losses++
		}
	}
	return s
}

func (s summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations, %d grants, %d unknown outcomes, %d losses seen, longest wait %v, faults:",
		s.ops, s.grants, s.unknown, s.losses, s.longest.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(s.struck)) {
		fmt.Fprintf(&b, " %s %d,", name, s.struck[name])
	}
	return strings.TrimSuffix(b.String(), ",")
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}

// deck deals faults: each kind once, then each once again, in another order.
type deck struct {
	mu     sync.Mutex // guards the fields below
	faults []fault
	rng    *rand.Rand
	left   []fault
}

func newDeck(faults []fault, rng *rand.Rand) *deck { return &deck{faults: faults, rng: rng} }

func (d *deck) draw() fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		d.left = slices.Clone(d.faults)
		d.rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	f := d.left[0]
	d.left = d.left[1:]
	return f
}

func TestDeckDealsEachFaultOnceARound(t *testing.T) {
	faults := (&world{strategy: setNXPX}).faults(false)
	d := newDeck(faults, rand.New(rand.NewPCG(1, 1)))
	for range 3 {
		seen := make(map[string]bool)
		for range faults {
			seen[d.draw().name] = true
		}
		if len(seen) != len(faults) {
			t.Error("a fault was dealt twice before another was dealt at all")
		}
	}
}
