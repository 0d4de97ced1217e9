package redlatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redlatch/redlatch"
)

// handedLock has the key and the token by which a worker adopts a lock. Whoever knows the token can
// release the lock. So it is sent through a pipe, and not in arguments, which all users of a host can see.
type handedLock struct{ Key, Token string }

// handOver locks key and sends the lock to a worker. The worker must adopt the lock within the TTL. From
// then on the worker renews and releases it. The handle that handOver returns counts that as a loss, so
// l should have no hooks that alert on losses.
func handOver(ctx context.Context, l redlatch.Locker, key string, worker io.Writer) (*redlatch.Lock, error) {
	lock, err := l.TryLock(ctx, key, redlatch.WithoutRenewal())
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(worker).Encode(handedLock{key, lock.Token()}); err != nil {
		return nil, errors.Join(err, lock.Unlock(ctx)) // nobody will adopt it
	}
	return lock, nil
}

// carryOn is the worker. It reads which lock was handed to it, adopts that lock, and works under it.
func carryOn(ctx context.Context, l redlatch.Locker, told io.Reader, work func(ctx context.Context, lock *redlatch.Lock) error) error {
	var handed handedLock
	if err := json.NewDecoder(told).Decode(&handed); err != nil {
		return err
	}
	lock, err := l.Adopt(ctx, handed.Key, handed.Token)
	if err != nil {
		return err // ErrLost: too late
	}
	return errors.Join(work(lock.Context(ctx), lock), lock.Unlock(ctx))
}

// One process acquires a lock and hands it to another, a worker, by its token. The pipe between them is
// a buffer here. In a real program it can be the standard input of the worker.
func Example_worker() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	pipe := new(bytes.Buffer)

	lock := granted(handOver(ctx, locker, "import", pipe))
	must(carryOn(ctx, locker, pipe, func(_ context.Context, mine *redlatch.Lock) error {
		fmt.Println("the worker has", mine.Key(), "with a higher fence:", mine.Fence() > lock.Fence())
		return nil
	}))
	fmt.Println("released:", !server.Exists("import"))

	late := granted(handOver(ctx, locker, "import", pipe))
	server.FastForward(time.Minute)
	err := carryOn(ctx, locker, pipe, nil)
	fmt.Println("late:", err)
	fmt.Println("late:", late.Unlock(ctx))
	// Output:
	// the worker has import with a higher fence: true
	// released: true
	// late: redlatch: adopt "import": lock lost: the key is gone
	// late: redlatch: unlock "import": lock lost: the key is gone, or another owner has it
}
