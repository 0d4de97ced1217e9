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

// heldLocks are the locks that a program holds while it runs. It releases them when it ends, so
// the next program does not have to wait for their TTL.
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

// unlock releases all locks. Call it only after the work under them has stopped.
func (h *heldLocks) unlock(ctx context.Context) error {
	h.mu.Lock()
	locks := slices.Collect(maps.Values(h.locks))
	h.locks = nil
	h.mu.Unlock()
	failed := make([]error, len(locks))
	var wg sync.WaitGroup
	for i, lock := range locks { // concurrently: if Redis does not reply, each Unlock takes its op timeout
		wg.Go(func() { failed[i] = lock.Unlock(ctx) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// When a program is told to stop, it ends its work and then releases its locks. In a real program, ctx
// comes from signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM).
func Example_shutdown() {
	_, client, end := embedded()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	locker := made(redlatch.NewSetNXPX(client))

	var held heldLocks
	var work sync.WaitGroup
	for _, shard := range []string{"shard:1", "shard:2"} {
		lock := granted(held.take(ctx, locker, shard))
		work.Go(func() { <-lock.Context(ctx).Done() }) // the work stops with ctx or with the lock
	}
	fmt.Println("held:", client.Exists(ctx, "shard:1", "shard:2").Val())

	stop() // the signal
	work.Wait()
	fmt.Println("unlocked:", held.unlock(ctx)) // Unlock works although ctx has ended
	fmt.Println("held:", client.Exists(context.Background(), "shard:1", "shard:2").Val())
	// Output:
	// held: 2
	// unlocked: <nil>
	// held: 0
}
