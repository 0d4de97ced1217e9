package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

// All instances start a job at the same time, and one of them runs it.
func Example_cronJob() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	sendReport := func(context.Context) error {
		fmt.Println("the report is sent")
		return nil
	}

	tick := func() error {
		err := redlatch.TryDo(ctx, locker, "cron:report", func(ctx context.Context, _ *redlatch.Lock) error {
			return sendReport(ctx) // ctx ends when the lock does
		}, redlatch.WithMinHold(10*time.Second))
		if errors.Is(err, redlatch.ErrNotAcquired) {
			return nil // another instance runs it, or has just run it
		}
		return err
	}

	for range 3 { // instances
		must(tick())
	}
	// Output:
	// the report is sent
}

// A worker writes with the fence of its lock. Once a newer worker has written, its writes are refused.
func Example_fencedWorker() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	db := &orders{id: 42, state: "new"}
	pack := func(ctx context.Context, _ int) error { return ctx.Err() }

	err := redlatch.Do(ctx, locker, "orders:42", func(ctx context.Context, lock *redlatch.Lock) error {
		if err := pack(ctx, 42); err != nil { // ctx ends when the lock does
			return err
		}
		return changeState(ctx, db, 42, "packed", lock.Fence())
	})
	fmt.Println(db.state, err)
	// Output:
	// packed <nil>
}

// A leader works until its ctx ends.
func Example_leader() {
	_, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client))
	ctx, cancel := context.WithCancel(context.Background()) // in a program, ctx ends at shutdown
	defer cancel()
	dispatch := func(ctx context.Context) error {
		fmt.Println("this instance leads")
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}

	err := redlatch.Lead(ctx, locker, "dispatcher", func(ctx context.Context, _ *redlatch.Lock) error {
		return dispatch(ctx) // until ctx ends, with the lock or with the process
	}, redlatch.WithOwner("host-7"))
	fmt.Println(err)
	// Output:
	// this instance leads
	// redlatch: lead "dispatcher": context canceled
}

// forceUnlock releases the lock that status shows, whoever holds it. It leaves a newer lock alone.
func forceUnlock(ctx context.Context, locker redlatch.Locker, key string, status redlatch.Status) error {
	lock, err := locker.Adopt(ctx, key, status.Token, redlatch.WithoutRenewal())
	if err != nil {
		return err // ErrLost: it has ended since
	}
	return lock.Unlock(ctx)
}

// An operator releases the lock of a holder that hangs.
func Example_forcedUnlock() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	hung := granted(locker.Lock(ctx, "import", redlatch.WithOwner("host-7"), redlatch.WithMinHold(time.Hour)))

	status, err := locker.Inspect(ctx, "import")
	must(err)
	fmt.Println("held by", status.Owner)
	must(forceUnlock(ctx, locker, "import", status))

	next := granted(locker.TryLock(ctx, "import"))
	fmt.Println("again:", forceUnlock(ctx, locker, "import", status))
	fmt.Println("the holder believes in its lock:", hung.Err() == nil)
	fmt.Println("the holder:", hung.Unlock(ctx))
	fmt.Println("a higher fence:", next.Fence() > hung.Fence())
	must(next.Unlock(ctx))
	// Output:
	// held by host-7
	// again: redlatch: adopt "import": lock lost: another owner has the key
	// the holder believes in its lock: true
	// the holder: redlatch: unlock "import": lock lost: the key is gone, or another owner has it
	// a higher fence: true
}
