package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

// work stands in for the code that runs under a lock.
func work(ctx context.Context) error {
	fmt.Println("alone")
	return ctx.Err()
}

// workAlone is the code that docs/migrating.md shows in place of calls of redsync and redislock.
func workAlone(ctx context.Context, locker redlatch.Locker) error {
	turn, cancel := context.WithTimeout(ctx, 5*time.Second) // how long to wait
	defer cancel()
	lock, err := locker.Lock(turn, "orders:42", redlatch.WithTTL(30*time.Second))
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	} else if err != nil {
		return err // Redis is in trouble
	}
	return errors.Join(work(lock.Context(ctx)), lock.Unlock(ctx))
}

var errBusy = errors.New("somebody else is at it")

func ExampleLocker_Lock() {
	_, client, end := embedded()
	defer end()
	fmt.Println(workAlone(context.Background(), made(redlatch.NewSetNXPX(client))))
	// Output:
	// alone
	// <nil>
}
