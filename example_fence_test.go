package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

var errStale = errors.New("a newer lock has written here")

// register is a value in memory that only the newest lock may write.
type register struct {
	mu    sync.Mutex // guards the fields below
	fence uint64     // the highest that was seen
	value string
}

// write sets the value for the holder of the lock with that fence. The same holder may write again.
func (r *register) write(fence uint64, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fence < r.fence {
		return errStale
	}
	r.fence, r.value = fence, value
	return nil
}

// twoHolders returns two locks on one key, and each holder believes that it owns the key. The first
// was paused, and its lease expired in Redis meanwhile.
func twoHolders() (paused, next *redlatch.Lock, end func()) {
	server, client, end := embedded()
	locker := made(redlatch.NewSetNXPX(client))
	paused = granted(locker.TryLock(context.Background(), "orders:42"))
	server.FastForward(time.Minute) // the lease expires in Redis, and its holder does not notice
	next = granted(locker.TryLock(context.Background(), "orders:42"))
	return paused, next, end
}

// The protected resource remembers the highest fence that it saw and refuses a lower one. Here it
// is a value in memory.
func ExampleLock_Fence() {
	paused, next, end := twoHolders()
	defer end()
	var r register
	fmt.Println("next:", r.write(next.Fence(), "sent"))
	fmt.Println("next:", r.write(next.Fence(), "delivered"))
	fmt.Println("paused:", r.write(paused.Fence(), "packed"))
	fmt.Println(r.value)
	// Output:
	// next: <nil>
	// next: <nil>
	// paused: a newer lock has written here
	// delivered
}
