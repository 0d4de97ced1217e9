package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redlatch/redlatch"
)

// heldLocks are the locks that a program holds for as long as it runs, to be given back when it
// ends: the next program then need not wait for their TTL.
type heldLocks struct {
	mu    sync.Mutex // guards locks
	locks map[string]*redlatch.Lock
}

// take locks key, unless another program has it.
func (h *heldLocks) take(ctx context.Context, l redlatch.Locker, key string) (*redlatch.Lock, error) {
	lock, err := l.TryLock(ctx, key)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.locks == nil {
		h.locks = make(map[string]*redlatch.Lock)
	}
	h.locks[key] = lock
	return lock, nil
}

// unlock gives back all of them. Call it when the work under them has stopped, and not before.
func (h *heldLocks) unlock(ctx context.Context) error {
	h.mu.Lock()
	locks := slices.Collect(maps.Values(h.locks))
	h.locks = nil
	h.mu.Unlock()
	failed := make([]error, len(locks))
	var wg sync.WaitGroup
	for i, lock := range locks { // at once: where Redis is silent, each takes its op timeout
		wg.Go(func() { failed[i] = lock.Unlock(ctx) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// A program that is told to stop ends its work and then gives back what it holds. In a main, ctx is
// that of signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM).
func Example_shutdown() {
	_, client, end := embedded()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	locker := made(redlatch.NewSetNXPX(client))

	var held heldLocks
	var work sync.WaitGroup
	for _, shard := range []string{"shard:1", "shard:2"} {
		lock := granted(held.take(ctx, locker, shard))
		work.Go(func() { <-lock.Context(ctx).Done() }) // the work, which heeds both
	}
	fmt.Println("held:", client.Exists(ctx, "shard:1", "shard:2").Val())

	stop() // the signal
	work.Wait()
	fmt.Println("unlocked:", held.unlock(ctx)) // that ctx has ended stops no Unlock
	fmt.Println("held:", client.Exists(context.Background(), "shard:1", "shard:2").Val())
	// Output:
	// held: 2
	// unlocked: <nil>
	// held: 0
}
