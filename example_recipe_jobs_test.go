package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
)

// scheduler stands in for one of a library, which puts tasks into a queue by a schedule.
type scheduler struct{}

func newScheduler() *scheduler { return &scheduler{} }

func (*scheduler) Start() error {
	fmt.Println("tasks are scheduled here")
	return nil
}

func (*scheduler) Shutdown() { fmt.Println("and no longer") }

// Many instances have a scheduler, and that of one of them runs. It stops when the lock is lost, or with its process.
func ExampleLead() {
	server, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client))
	ctx, cancel := context.WithCancel(context.Background()) // in a program, ctx ends at shutdown
	defer cancel()
	time.AfterFunc(50*time.Millisecond, cancel) // ends with the example

	err := redlatch.Lead(ctx, locker, "scheduler", func(ctx context.Context, _ *redlatch.Lock) error {
		s := newScheduler() // for each term, since many cannot be started again
		if err := s.Start(); err != nil {
			log.Print(err) // Lead does not report it. It waits for the lock again
			return err
		}
		<-ctx.Done() // the lock is lost, or the process stops
		s.Shutdown() // before return, which releases the lock
		return nil
	}, redlatch.WithOwner("host-7"))

	fmt.Println(err)
	fmt.Println("released:", !server.Exists("scheduler"))
	// Output:
	// tasks are scheduled here
	// and no longer
	// redlatch: lead "scheduler": context canceled
	// released: true
}

// A report is made once a day, on any host. One that failed is made again at the next attempt.
func ExampleLock_UnlockAfter() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	var attempts int
	makeReport := func(context.Context) error {
		if attempts++; attempts == 1 {
			return errors.New("no paper")
		}
		return nil
	}

	attempt := func() error {
		err := redlatch.TryDo(ctx, locker, "report", func(ctx context.Context, lock *redlatch.Lock) error {
			if err := makeReport(ctx); err != nil {
				return err // the lock is released: the next attempt may run
			}
			return lock.UnlockAfter(ctx, 23*time.Hour) // from now on, a little less than a day
		})
		if errors.Is(err, redlatch.ErrNotAcquired) {
			return nil // another host makes it, or it was made
		}
		return err
	}

	for range 4 {
		fmt.Println(attempt(), attempts)
	}
	server.FastForward(24 * time.Hour)
	fmt.Println(attempt(), attempts)
	// Output:
	// no paper 1
	// <nil> 2
	// <nil> 2
	// <nil> 2
	// <nil> 3
}

// A job that takes too long loses its lock, and its ctx ends.
func ExampleWithMaxHold() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	limit := 50 * time.Millisecond
	importAll := func(ctx context.Context, _ *redlatch.Lock) error {
		<-ctx.Done() // a source that does not answer
		return ctx.Err()
	}

	err := redlatch.TryDo(ctx, locker, "import", importAll, redlatch.WithMaxHold(limit)) // such as an hour
	if errors.Is(err, redlatch.ErrMaxHold) {
		fmt.Println("the import took too long and was stopped")
	}
	// Output:
	// the import took too long and was stopped
}

// A serverless function holds a lock while it handles an event. Its platform may freeze it at any time, and thaw it later.
func Example_serverless() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client)) // made once for each process
	db := &orders{id: 42, state: "new"}
	const limit = 30 * time.Second
	freeze := func() {}
	pack := func(context.Context, int) error {
		freeze()
		return nil
	}

	// handle handles an event. The platform ends it after limit.
	handle := func(ctx context.Context, order int) error {
		return redlatch.TryDo(ctx, locker, fmt.Sprint("orders:", order), func(ctx context.Context, lock *redlatch.Lock) error {
			if err := pack(ctx, order); err != nil {
				return err
			}
			return changeState(ctx, db, order, "packed", lock.Fence()) // refused if the process was frozen for too long
		}, redlatch.WithoutRenewal(), redlatch.WithTTL(limit+10*time.Second))
	}

	fmt.Println(handle(ctx, 42), db.state)
	freeze = func() {
		server.FastForward(time.Minute) // the lock expires in Redis, and the next event is handled elsewhere
		freeze = func() {}
		must(handle(ctx, 42))
	}
	err := handle(ctx, 42)
	fmt.Println("frozen:", errors.Is(err, errStale), errors.Is(err, redlatch.ErrLost))
	// Output:
	// <nil> packed
	// frozen: true true
}
