package sections

import (
	"context"
	"math/rand/v2"
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
	fighters []*fighter
	wg       sync.WaitGroup // every fighter

	started time.Time
	elapsed time.Duration // set by end
	stopped atomic.Bool

	inside   atomic.Int64 // owners now
	owners   atomic.Int64 // the most that there were
	released atomic.Int64 // when Unlock was called last, since the start; 0: never

	fence    atomic.Uint64 // of the last owner; 0: locks have none
	disorder atomic.Int64  // owners whose fence was not above that of the owner before
}

// fighter is one goroutine that wants the key. Until it has ended, nobody else may use its fields,
// except since.
type fighter struct {
	locker      peers.Locker
	side        int
	waits, gaps measure.Histogram
	served      int64
	failed      int
	since       atomic.Int64 // when its wait began, since the start; -1: it does not wait
}

// open has open make a Locker for each client. After an error the fray must be closed too.
func (f *fray) open(open func(peers.Target) (peers.Locker, error)) error {
	for i, side := range f.sides {
		for range side.clients {
			locker, err := open(side.target)
			if err != nil {
				return err
			}
			f.lockers = append(f.lockers, locker)
			for range side.goroutines {
				f.fighters = append(f.fighters, &fighter{locker: locker, side: i})
			}
		}
	}
	return nil
}

func (f *fray) close() {
	for _, locker := range f.lockers {
		_ = locker.Close()
	}
}

// warmUp opens the connections and loads the scripts, one client after the other: rueidislock
// waits forever if its first command on a free key takes more than 20 ms.
func (f *fray) warmUp(ctx context.Context) {
	next := 0
	for _, side := range f.sides {
		for range side.clients {
			loop{locker: f.lockers[next], goroutines: side.goroutines}.warmUp(ctx)
			next++
		}
	}
}

// fight starts the fighters. They end when ctx ends, or some time after a call of end.
func (f *fray) fight(ctx context.Context) {
	begin := make(chan struct{})
	for _, fighter := range f.fighters {
		f.wg.Go(func() {
			<-begin
			f.run(ctx, fighter)
		})
	}
	f.started = time.Now()
	close(begin)
}

// run locks and unlocks until the end. What happens after it does not count. A wait lasts until a
// call is granted, however many give up or fail before.
func (f *fray) run(ctx context.Context, me *fighter) {
	unlocking := context.WithoutCancel(ctx)
	begun := time.Since(f.started)
	for {
		me.since.Store(int64(begun))
		lock, gaveUp, err := f.lock(ctx, me.locker)
		granted := time.Since(f.started)
		over := f.stopped.Load()
		switch {
		case err != nil && over:
			return
		case err != nil:
			if !gaveUp {
				me.failed++
			}
			continue
		case over:
			_ = lock.Unlock(unlocking)
			return
		}
		me.since.Store(-1)
		raise(&f.owners, f.inside.Add(1))
		f.compare(lock)
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
		begun = time.Since(f.started)
	}
}

// lock is one call. gaveUp reports that its patience had run out when it returned.
func (f *fray) lock(ctx context.Context, locker peers.Locker) (lock peers.Lock, gaveUp bool, err error) {
	if f.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(f.patience))
		defer cancel()
	}
	lock, err = locker.Lock(ctx, "hot")
	return lock, ctx.Err() != nil, err
}

// compare checks the fence of a lock that was granted against that of the owner before.
func (f *fray) compare(lock peers.Lock) {
	if fenced, ok := lock.(peers.Fenced); ok {
		if fence := fenced.Fence(); fence <= f.fence.Swap(fence) {
			f.disorder.Add(1)
		}
	}
}

// end stops the counting and returns the longest wait that was still going on.
func (f *fray) end() (longest time.Duration) {
	f.stopped.Store(true)
	f.elapsed = time.Since(f.started)
	for _, fighter := range f.fighters {
		if since := fighter.since.Load(); since >= 0 {
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
