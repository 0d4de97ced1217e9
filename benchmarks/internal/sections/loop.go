package sections

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/benchmarks/internal/peers"
)

// loop locks and unlocks free keys, each goroutine one of its own, again and again.
type loop struct {
	locker     peers.Locker
	goroutines int
	duration   time.Duration
	patience   time.Duration // how long a Lock may last beyond the duration

	// ready, if not nil, is called when every goroutine has a connection.
	ready func()
	// meter, if not nil, is read before and after.
	meter *measure.Meter
}

// timings is what a loop has measured.
type timings struct {
	lock, unlock, pair measure.Histogram
	failed             int
	end                time.Time     // of the last pair
	elapsed            time.Duration // until the last pair of all, or the duration if that is longer
	used               measure.Usage
}

// hour is a deadline that does not end anything. Without one bsm/redislock waits for no longer
// than the TTL.
const hour = time.Hour

// run measures. A pair that has begun is finished, even if it takes longer than the duration. So
// there is at least one pair, or one failure, for each goroutine.
func (l loop) run(ctx context.Context) (*timings, error) {
	ctx, cancel := context.WithTimeout(ctx, hour)
	defer cancel()
	l.warmUp(ctx)
	if l.ready != nil {
		l.ready()
	}
	total := new(timings)
	var before measure.Usage
	if err := l.read(ctx, &before); err != nil {
		return nil, err
	}

	var stopped atomic.Bool
	var wg sync.WaitGroup
	begin := make(chan struct{})
	each := make([]timings, l.goroutines)
	for g := range each {
		// Ends when stopped, or when the patience with its Lock has run out; run waits for it.
		wg.Go(func() {
			<-begin
			l.work(ctx, key(g), &each[g], &stopped)
		})
	}
	stop := time.AfterFunc(l.duration, func() { stopped.Store(true) })
	defer stop.Stop()
	lose := time.AfterFunc(l.duration+l.patience, cancel)
	defer lose.Stop()
	started := time.Now()
	close(begin)
	wg.Wait()

	var after measure.Usage
	if err := l.read(context.WithoutCancel(ctx), &after); err != nil {
		return nil, err
	}
	total.used = after.Since(before)
	total.elapsed = l.duration
	for g := range each {
		total.elapsed = max(total.elapsed, each[g].end.Sub(started))
		total.lock.Merge(&each[g].lock)
		total.unlock.Merge(&each[g].unlock)
		total.pair.Merge(&each[g].pair)
		total.failed += each[g].failed
	}
	return total, nil
}

// warmUp opens the connections and loads the scripts. A peer that cannot lock shows that in the
// measurement.
func (l loop) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for g := range l.goroutines {
		// Ends with the pair or with ctx; warmUp waits for it.
		wg.Go(func() {
			if lock, err := l.locker.Lock(ctx, key(g)); err == nil {
				_ = lock.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	wg.Wait()
}

func (l loop) read(ctx context.Context, u *measure.Usage) (err error) {
	if l.meter != nil {
		*u, err = l.meter.Read(ctx)
	}
	return err
}

// work measures pairs until stopped. A failure ends it only if ctx has ended.
func (l loop) work(ctx context.Context, key string, t *timings, stopped *atomic.Bool) {
	unlocking := context.WithoutCancel(ctx) // a lock is released also at the end
	for !stopped.Load() {
		begun := time.Now()
		lock, err := l.locker.Lock(ctx, key)
		locked := time.Now()
		if err != nil {
			if t.failed++; ctx.Err() != nil {
				return
			}
			continue
		}
		err = lock.Unlock(unlocking)
		unlocked := time.Now()
		t.end = unlocked
		t.lock.Add(locked.Sub(begun))
		t.unlock.Add(unlocked.Sub(locked))
		t.pair.Add(unlocked.Sub(begun))
		if err != nil {
			t.failed++
		}
	}
}

func key(g int) string { return fmt.Sprintf("key:%d", g) }
