package redlatchgocron_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	redlatchgocron "github.com/redlatch/redlatch/gocron"
)

// must keeps the examples short: they run on an embedded Redis that answers.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// made is must for a call that returns a value.
func made[T any](value T, err error) T {
	must(err)
	return value
}

// embedded returns a client of a Redis in this process, until end is called.
func embedded() (client *redis.Client, end func()) {
	server := made(miniredis.Run())
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

// newScheduler is the code that the README shows.
func newScheduler(l redlatch.Locker, sendReport func(), skipped func(_ uuid.UUID, name string, err error)) (gocron.Scheduler, error) {
	locker, err := redlatchgocron.NewLocker(l, 10*time.Second)
	if err != nil {
		return nil, err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	_, err = s.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(sendReport),
		gocron.WithName("report"), // the key of its lock is gocron:report
		gocron.WithEventListeners(gocron.AfterLockError(skipped)))
	return s, err
}

// Three instances have the same job. One of them runs each tick.
func ExampleNewLocker() {
	client, end := embedded()
	defer end()

	done := make(chan string, 9)
	sendReport := func() { done <- "the report is sent" }
	skipped := func(_ uuid.UUID, name string, err error) {
		if errors.Is(err, redlatch.ErrNotAcquired) {
			done <- name + ": another instance runs it"
		} else {
			done <- err.Error() // for example, Redis is unavailable
		}
	}
	for range 3 {
		s := made(newScheduler(made(redlatch.NewSetNXPX(client)), sendReport, skipped))
		s.Start()
		must(s.Jobs()[0].RunNow()) // in place of a tick
		fmt.Println(<-done)
		must(s.Shutdown())
	}
	// Output:
	// the report is sent
	// report: another instance runs it
	// report: another instance runs it
}

// Of all instances, one leads and runs all jobs.
func ExampleNewElector() {
	client, end := embedded()
	defer end()
	l := made(redlatch.NewSetNXPX(client))
	ctx := context.Background()
	done := make(chan string)

	elector, err := redlatchgocron.NewElector(l, "shop:leader")
	must(err)
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	must(err)
	_, err = s.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(func() { done <- "the report is sent" }))
	must(err)
	s.Start()

	for elector.IsLeader(ctx) != nil {
		time.Sleep(time.Millisecond) // the election takes a moment
	}
	must(s.Jobs()[0].RunNow()) // in place of a tick
	fmt.Println(<-done)

	// Stop in this order, so that no job runs any more when another instance leads.
	if err := s.Shutdown(); err != nil {
		fmt.Println(err)
	}
	if err := elector.Close(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(elector.IsLeader(ctx))
	// Output:
	// the report is sent
	// redlatchgocron: not the leader: the Elector is closed
}
