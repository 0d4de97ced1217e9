package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// One process at a time runs a job. The other processes skip it instead of waiting.
func ExampleTryDo() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	clean := func() error {
		err := redlatch.TryDo(ctx, locker, "clean-up", func(context.Context, *redlatch.Lock) error {
			fmt.Println("clean")
			return nil
		})
		if errors.Is(err, redlatch.ErrNotAcquired) {
			fmt.Println("another process is at it")
			return nil
		}
		return err
	}
	must(clean())
	other := granted(locker.TryLock(ctx, "clean-up"))
	must(clean())
	must(other.Unlock(ctx))
	// Output:
	// clean
	// another process is at it
}

// A transfer locks two accounts. Transfers in both directions do not deadlock.
func ExampleDoAll() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	balance := map[string]int{"alice": 100, "bob": 100}
	transfer := func(ctx context.Context, from, to string, amount int) error {
		return redlatch.DoAll(ctx, locker, []string{from, to}, func(context.Context, []*redlatch.Lock) error {
			balance[from] -= amount
			balance[to] += amount
			return nil
		})
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { must(transfer(ctx, "alice", "bob", 3)) })
		wg.Go(func() { must(transfer(ctx, "bob", "alice", 1)) })
	}
	wg.Wait()
	fmt.Println(balance)

	bob := granted(locker.Lock(ctx, "bob")) // another owner has one of the keys
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

// Every process of a service calls Lead, and one of them leads. An error of fn only ends its term. Here fn ends Lead
// in the second term.
func ExampleLead() {
	_, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client))

	ctx, stop := context.WithCancelCause(context.Background()) // in a program, ctx ends at shutdown
	defer stop(nil)
	term := 0
	err := redlatch.Lead(ctx, locker, "scheduler", func(ctx context.Context, lock *redlatch.Lock) error {
		term++
		fmt.Println("term", term, "with a lock:", lock.Err() == nil)
		if term == 1 {
			return errors.New("the lock is released, and Lead waits for it again")
		}
		stop(errors.New("no more work"))
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// term 1 with a lock: true
	// term 2 with a lock: true
	// redlatch: lead "scheduler": context canceled: no more work
}
