package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A delivery is a test of what Redis gets late: connections go silent, what they hold back is sent again on new ones,
// the lock is released, and then the old connections bring what they held back.
type delivery struct {
	*world
	seed     uint64
	length   time.Duration
	patience time.Duration // until no key may be left

	mu    sync.Mutex        // guards the fields below
	locks int               // that were granted and released
	fates map[string]string // by owner: what became of the attempt
	wrong []string
}

// The times of a delivery. A silence ends before the release of a lock may have given up, so that nothing may be left.
// The calls beside the locks give up before, so that redlatch notices that a server is silent.
const (
	lateTTL     = 10 * time.Minute
	lateTimeout = 400 * time.Millisecond
	sideTimeout = 30 * time.Millisecond
	silence     = 300 * time.Millisecond
)

// TestNothingStaysOfWhatComesLate: once all locks are released and everything is delivered, no key is left, though the
// TTL has not passed.
func TestNothingStaysOfWhatComesLate(t *testing.T) {
	one, five := redlock, redlock
	one.name, one.servers = "redlock of one", 1
	five.name, five.servers = "redlock of five", 5
	length := 4 * time.Second
	if !testing.Short() {
		length = time.Minute
	}
	for _, s := range []strategy{one, five, setNXPX, semaphore} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			d := &delivery{world: newWorld(t, s), seed: seed(t), length: length, patience: 15 * time.Second}
			if err := d.run(); err != nil {
				t.Error(err)
			}
			t.Logf("%d locks", d.locks)
		})
	}
}

// TestBrokenResendsAreCaught: this exposes a client that sends an acquire again and forgets the first one.
func TestBrokenResendsAreCaught(t *testing.T) {
	s := brokenStrategy("resends", flaws{}, 0)
	s.tune = func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = 5, 50*time.Millisecond }
	w, from := newWorld(t, s), seed(t)
	caught(t, []string{"is still on server 0"}, func(round int) error {
		d := &delivery{world: w, seed: from + uint64(round), length: 2 * time.Second, patience: time.Second}
		return d.run()
	})
}

// run plays the delivery and returns what is left.
func (d *delivery) run() error {
	d.fates = make(map[string]string)
	working, enough := context.WithTimeout(context.Background(), d.length)
	defer enough()
	var crew sync.WaitGroup
	var keys []string
	for i, s := range d.sites {
		for j := range siteCrew {
			key := fmt.Sprintf("late %d.%d.%d", d.seed, i, j)
			keys = append(keys, key)
			crew.Go(func() { d.work(working, s.locker, key, rand.New(rand.NewPCG(d.seed, uint64(100+i*siteCrew+j)))) })
		}
	}
	for i, r := range d.roads() {
		rng := rand.New(rand.NewPCG(d.seed, uint64(i)))
		crew.Go(func() {
			for working.Err() == nil {
				r.SilenceOpen()
				time.Sleep(silence/2 + time.Duration(rng.Int64N(int64(silence/2))))
				r.Heal()
				time.Sleep(time.Duration(rng.Int64N(int64(silence / 2))))
			}
		})
	}
	crew.Wait()
	d.lookFor(keys)
	if d.locks == 0 {
		d.complain("nothing was granted")
	}
	if len(d.wrong) > 0 {
		return fmt.Errorf("%s, seed %d: %s", d.strategy.name, d.seed, strings.Join(d.wrong, "\n"))
	}
	return nil
}

// work acquires and releases a lock, and asks for another beside it, again and again.
func (d *delivery) work(working context.Context, l locker, key string, rng *rand.Rand) {
	ctx := context.Background()
	for attempt := 0; working.Err() == nil; attempt++ {
		beside := wish{ttl: sideTimeout, opTimeout: sideTimeout}
		if lock, err := l.tryLock(ctx, key+" beside", beside); err == nil {
			_ = lock.Unlock(ctx) // it ends with its TTL
		}
		owner, begin := fmt.Sprintf("%s.%d", key, attempt), time.Now()
		lock, err := l.tryLock(ctx, key, wish{ttl: lateTTL, opTimeout: lateTimeout, owner: owner})
		if err != nil {
			d.note(owner, begin, fmt.Sprintf("was not granted: %v", err)) // the attempt before it may not be undone yet
			continue
		}
		time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Millisecond))))
		unlock := time.Since(begin)
		if err := lock.Unlock(ctx); err != nil {
			d.note(owner, begin, fmt.Sprintf("was unlocked after %v: %v", unlock, err))
			continue
		}
		d.note(owner, begin, fmt.Sprintf("was unlocked after %v", unlock))
		d.mu.Lock()
		d.locks++
		d.mu.Unlock()
	}
}

// note notes what became of an attempt.
func (d *delivery) note(owner string, begin time.Time, fate string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fates[owner] = fmt.Sprintf("%s, and that took %v", fate, time.Since(begin))
}

// lookFor waits until the keys are gone. A release without a reply is sent again, once a second.
func (d *delivery) lookFor(keys []string) {
	ctx := context.Background()
	var left []string
	for end := time.Now().Add(d.patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = nil
		for i, s := range d.servers {
			for _, key := range keys {
				if s.admin.Exists(ctx, key).Val() > 0 {
					owner, _, _ := strings.Cut(s.admin.Get(ctx, key).Val(), "/")
					left = append(left, fmt.Sprintf("%q is still on server %d for %v: %q %s", key, i,
						s.admin.PTTL(ctx, key).Val(), owner, d.fates[owner]))
				}
			}
		}
		if left == nil {
			return
		}
	}
	for _, text := range left {
		d.complain(text)
	}
}

func (d *delivery) complain(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrong = append(d.wrong, text)
}
