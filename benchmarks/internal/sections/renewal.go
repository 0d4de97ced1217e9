package sections

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/peers"
	"github.com/redlatch/redlatch/benchmarks/internal/report"
)

// renewedTTL is that of the locks that are renewed.
const renewedTTL = 10 * time.Second

// renewal measures the cost of locks that are merely held.
func renewal() Section {
	return Section{
		Name:  "renewal",
		Title: "Locks that are held and renewed",
		About: "One client holds that many locks with a TTL of 10 s, each renewed as its library does by default: " +
			"redlatch at a third of the TTL, rueidislock at half of it. redsync and bsm/redislock leave renewal to their callers.",
		Metrics: []report.Metric{
			{Key: "client", Title: "client CPU", Unit: report.Cores},
			{Key: "redis", Title: "Redis CPU", Unit: report.Cores},
			{Key: "commands", Title: "commands/s, with those in scripts", Unit: report.Rate},
			{Key: "heap", Title: "heap a lock", Unit: report.Bytes},
			{Key: "goroutines", Title: "goroutines, mean", Unit: report.Count},
			{Key: "peak", Title: "at most", Unit: report.Count},
			{Key: "lost", Title: "lost", Unit: report.Count},
		},
		prepare: func(tb testing.TB, plan Plan) []scenario {
			n := start(tb)
			c := scenario{name: thousands(plan.Held) + " locks"}
			for _, p := range []peers.Peer{peers.Redlatch(), peers.Rueidislock()} {
				c.entries = append(c.entries, entry{p.Name, func(ctx context.Context) (report.Sample, error) {
					return measureRenewal(ctx, n, p, plan)
				}})
			}
			return []scenario{c}
		},
	}
}

// measureRenewal watches for a whole TTL, as long as that is no more than twenty times the
// duration of others.
func measureRenewal(ctx context.Context, n node, p peers.Peer, plan Plan) (report.Sample, error) {
	if err := n.forget(ctx); err != nil {
		return nil, err
	}
	locker, err := p.OpenRenewing(n.target(), renewedTTL)
	if err != nil {
		return nil, err
	}
	defer locker.Close()
	ctx, cancel := context.WithTimeout(ctx, hour)
	defer cancel()
	loop{locker: locker, goroutines: 1}.warmUp(ctx)

	heap, goroutines := heapInUse(), runtime.NumGoroutine()
	late := time.AfterFunc(time.Minute, cancel)
	locks, err := holdMany(ctx, locker, plan.Held)
	late.Stop()
	defer release(locks)
	if err != nil {
		return nil, err
	}
	heap = heapInUse() - heap
	meter := meterOf(p, n)
	before, err := meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	window := min(renewedTTL, 20*plan.Duration)
	mean, peak, elapsed := watchGoroutines(window)
	after, err := meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	used := after.Since(before)
	lost := 0
	for _, lock := range locks {
		if !lock.(peers.Renewed).Held() {
			lost++
		}
	}
	return report.Sample{
		"client":     used.ClientCPU.Seconds() / elapsed.Seconds(),
		"redis":      used.RedisCPU.Seconds() / elapsed.Seconds(),
		"commands":   used.Commands / elapsed.Seconds(),
		"heap":       max(heap, 0) / float64(plan.Held),
		"goroutines": mean - float64(goroutines),
		"peak":       float64(peak - goroutines),
		"lost":       float64(lost),
	}, nil
}

// parallel is how many locks are acquired, and released, at a time.
const parallel = 16

// holdMany takes n locks. After an error it returns those that it has.
func holdMany(ctx context.Context, locker peers.Locker, n int) ([]peers.Lock, error) {
	locks := make([]peers.Lock, n)
	errs := make([]error, parallel)
	var next atomic.Int64
	var wg sync.WaitGroup
	for g := range parallel {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[g] == nil; i = next.Add(1) - 1 {
				locks[i], errs[g] = locker.Lock(ctx, key(int(i)))
			}
		})
	}
	wg.Wait()
	var held []peers.Lock
	for _, lock := range locks {
		if lock != nil {
			held = append(held, lock)
		}
	}
	for _, err := range errs {
		if err != nil {
			return held, fmt.Errorf("lock %d of %d: %w", len(held)+1, n, err)
		}
	}
	return held, nil
}

// release unlocks all locks. A lock that was lost was counted before.
func release(locks []peers.Lock) {
	var wg sync.WaitGroup
	for g := range parallel {
		wg.Go(func() {
			for i := g; i < len(locks); i += parallel {
				_ = locks[i].Unlock(context.Background())
			}
		})
	}
	wg.Wait()
}

// heapInUse returns the bytes of the reachable heap.
func heapInUse() float64 {
	// Memory that a finalizer or a pool keeps for one cycle is free after the second.
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc)
}

// watchGoroutines counts the goroutines of this process again and again.
func watchGoroutines(window time.Duration) (mean float64, peak int, elapsed time.Duration) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	started := time.Now()
	var sum, looks float64
	for elapsed < window {
		<-look.C
		n := runtime.NumGoroutine()
		sum, looks, peak = sum+float64(n), looks+1, max(peak, n)
		elapsed = time.Since(started)
	}
	return sum / looks, peak, elapsed
}

// thousands returns n with its thousands set apart.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
