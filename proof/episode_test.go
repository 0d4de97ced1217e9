package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/proof/history"
)

const (
	gremlins = 2

	// roundPrefix begins every lock's key.
	roundPrefix = "round "

	// fairBound is how long a wait may last once the faults have ended: the rest of the longest lease
	// and a second for a lost message, and much more for a busy machine.
	fairBound = 20 * time.Second
)

// An episode is one history of a world, with faults. No lock is held at its start or at its end.
type episode struct {
	world   *world
	seed    uint64
	keeping bool          // no server may forget a lock: one owner too many is an error
	ops     int           // at least so many with a known outcome, and every kind of fault
	length  time.Duration // at least so long
	limit   time.Duration // at most so long
	faults  []fault
	steady  bool   // no fault may cost a lock
	prefix  string // of the keys

	bound    time.Duration // how long a wait may last once the faults have ended
	pictures string        // the directory for pictures of broken rules; empty: a new one

	mu      sync.Mutex // guards the fields below
	history []history.Op
	known   int // how many of them have a known outcome
	struck  map[string]int
	wrong   []string // errors that the history does not show
}

// newEpisode returns an episode whose keys nobody has used before.
func (w *world) newEpisode(seed uint64, keeping bool, round int) *episode {
	return &episode{
		world: w, seed: seed, keeping: keeping, ops: 1000, length: 4 * time.Second, limit: time.Minute,
		faults: w.faults(keeping), prefix: fmt.Sprintf("%s%d:", roundPrefix, round), struck: make(map[string]int),
		bound: fairBound, pictures: *pictures,
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
	timer := time.AfterFunc(e.bound, func() {
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
	timer.Stop()
	e.refill(keys)
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
//
//nolint:revive // neither context is the call's: they are what the workers get
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
				Bound: e.bound,
			}, e.hear)
			s.process.died = func() { e.bury(i * siteCrew) }
			processes = append(processes, s.process)
			continue
		}
		for j := range siteCrew {
			w := &worker{
				id: i*siteCrew + j, locker: s.locker, peers: e.world.peers(), keys: keys,
				ttl: e.world.strategy.ttl, opTimeout: e.world.strategy.opTimeout, keeps: e.world.strategy.keeps, quorum: e.world.strategy.quorum, steady: e.steady,
				rng:     rand.New(rand.NewPCG(e.seed, uint64(100+i*siteCrew+j))),
				blurred: s.parted != nil, overstays: e.world.strategy.overstays, crowded: e.world.strategy.crowded,
				record: func(op history.Op) { e.hear(news{Op: &op}) }, stuck: e.complain,
			}
			crew.Go(func() { w.run(working, bound) })
		}
	}
	return crew, processes
}

// hear notes what clients report.
func (e *episode) hear(n news) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.Op != nil {
		e.history = append(e.history, *n.Op)
		if !n.Op.Unknown {
			e.known++
		}
	}
	if n.Stuck != "" && !slices.Contains(e.wrong, n.Stuck) {
		e.wrong = append(e.wrong, n.Stuck)
	}
}

// bury notes that the crew whose first worker has the id first was killed. The crew may have released its
// locks without reporting that.
func (e *episode) bury(first int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := make(map[string]history.Op) // the last known operation, by token
	for _, op := range e.history {
		switch {
		case op.Worker < first || op.Worker >= first+siteCrew:
		case op.Kind == history.Release || op.Kind == history.Loss || op.Unknown:
			delete(held, op.Token)
		default:
			held[op.Token] = op
		}
	}
	for _, op := range held {
		op.Kind, op.Unknown, op.Call, op.Return = history.Release, true, op.Return, history.Never
		e.history = append(e.history, op)
	}
}

func (e *episode) complain(text string) { e.hear(news{Stuck: text}) }

// rage makes a gremlin cause one fault after the other, until it is calm.
func (e *episode) rage(g *gremlin, d *deck) {
	for g.calm.Err() == nil {
		f := d.draw()
		if f.inject(g) {
			e.mu.Lock()
			e.struck[f.name]++
			e.mu.Unlock()
		}
		time.Sleep(time.Duration(g.rng.Int64N(int64(150 * time.Millisecond))))
	}
}

// enough reports whether the episode has all the operations and faults that it needs, or has lasted too
// long.
func (e *episode) enough(lasted time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known >= e.ops && lasted >= e.length && len(e.struck) == len(e.faults) || lasted > e.limit
}
