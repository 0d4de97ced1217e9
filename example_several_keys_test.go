package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// doAll runs fn under locks on all keys, or not at all. Everybody takes keys in the same order, so
// that nobody waits for somebody who waits for them. fn's ctx ends when one of the locks does, and
// so does the wait for the others.
func doAll(ctx context.Context, l redlatch.Locker, keys []string, fn func(ctx context.Context, locks []*redlatch.Lock) error) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // twice the same would wait for itself
	var locks []*redlatch.Lock                                // in that order
	var next func(ctx context.Context) error
	next = func(ctx context.Context) error {
		if len(locks) == len(keys) {
			return fn(ctx, locks)
		}
		return redlatch.Do(ctx, l, keys[len(locks)], func(ctx context.Context, lock *redlatch.Lock) error {
			locks = append(locks, lock)
			return next(ctx)
		})
	}
	return next(ctx)
}

// One lock over several keys: sorted, and all or nothing.
func Example_severalKeys() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	balance := map[string]int{"alice": 100, "bob": 100}
	transfer := func(ctx context.Context, from, to string, amount int) error {
		return doAll(ctx, locker, []string{from, to}, func(context.Context, []*redlatch.Lock) error {
			balance[from] -= amount
			balance[to] += amount
			return nil
		})
	}
	var wg sync.WaitGroup
	for range 10 { // there and back, at once
		wg.Go(func() { must(transfer(ctx, "alice", "bob", 3)) })
		wg.Go(func() { must(transfer(ctx, "bob", "alice", 1)) })
	}
	wg.Wait()
	fmt.Println(balance)

	bob := granted(locker.Lock(ctx, "bob")) // now one of the two is taken
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := transfer(brief, "alice", "bob", 3)
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired), err)
	fmt.Println("alice is locked:", client.Exists(ctx, "alice").Val() == 1)
	must(bob.Unlock(ctx))
	// Output:
	// map[alice:80 bob:120]
	// true redlatch: lock "bob": gave up waiting: context deadline exceeded: the last attempt: held by another owner
	// alice is locked: false
}
