package sections

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/benchmarks/internal/peers"
)

// fray is a crowd at work.
type fray struct {
	crowd
	lockers  []peers.Locker
	fighters []fighter
	wg       sync.WaitGroup // every fighter

	started time.Time
	elapsed time.Duration // set by end
	stopped atomic.Bool

	inside   atomic.Int64 // owners now
	owners   atomic.Int64 // the most that there were
	released atomic.Int64 // when Unlock was called last, since the start; 0: never
}

// fighter is one goroutine that wants the key. Until it has ended, nobody else may use its fields,
// except since.
type fighter struct {
	waits, gaps measure.Histogram
	served      int64
	failed      int
	since       atomic.Int64 // when its wait began, since the start; -1: it does not wait
}

func newFray(c crowd) *fray {
	return &fray{crowd: c, fighters: make([]fighter, c.clients*c.goroutines)}
}

// warmUp opens the connections and loads the scripts, one client after the other: rueidislock
// waits forever if its first command on a free key takes more than 20 ms.
func (f *fray) warmUp(ctx context.Context) {
	for _, locker := range f.lockers {
		loop{locker: locker, goroutines: f.goroutines}.warmUp(ctx)
	}
}

func (f *fray) locker(i int) peers.Locker { return f.lockers[i/f.goroutines] }

// fight starts the fighters. They end when ctx ends, or some time after a call of end.
func (f *fray) fight(ctx context.Context) {
	begin := make(chan struct{})
	for i := range f.fighters {
		fighter, locker := &f.fighters[i], f.locker(i)
		f.wg.Go(func() {
			<-begin
			f.run(ctx, fighter, locker)
		})
	}
	f.started = time.Now()
	close(begin)
}

// run locks and unlocks until the end. What happens after it does not count.
func (f *fray) run(ctx context.Context, me *fighter, locker peers.Locker) {
	unlocking := context.WithoutCancel(ctx)
	for {
		begun := time.Since(f.started)
		me.since.Store(int64(begun))
		lock, err := locker.Lock(ctx, "hot")
		granted := time.Since(f.started)
		over := f.stopped.Load()
		switch {
		case err != nil && over:
			return
		case err != nil:
			me.failed++
			continue
		case over:
			_ = lock.Unlock(unlocking)
			return
		}
		me.since.Store(-1)
		raise(&f.owners, f.inside.Add(1))
		me.served++
		me.waits.Add(granted - begun)
		if released := f.released.Load(); released != 0 {
			me.gaps.Add(granted - time.Duration(released))
		}
		if f.hold > 0 {
			time.Sleep(f.hold)
		}
		f.inside.Add(-1)
		f.released.Store(int64(time.Since(f.started)))
		if err := lock.Unlock(unlocking); err != nil {
			me.failed++
		}
	}
}

// end stops the counting and returns the longest wait that was still going on.
func (f *fray) end() (longest time.Duration) {
	f.stopped.Store(true)
	f.elapsed = time.Since(f.started)
	for i := range f.fighters {
		if since := f.fighters[i].since.Load(); since >= 0 {
			longest = max(longest, f.elapsed-time.Duration(since))
		}
	}
	return longest
}

// raise makes highest at least n.
func raise(highest *atomic.Int64, n int64) {
	for old := highest.Load(); n > old; old = highest.Load() {
		if highest.CompareAndSwap(old, n) {
			return
		}
	}
}
