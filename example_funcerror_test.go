package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// sendInvoices is a job that runs on one of many instances, and needs another lock meanwhile.
func sendInvoices(ctx context.Context, locker redlatch.Locker) error {
	return redlatch.TryDo(ctx, locker, "cron:invoices", func(ctx context.Context, _ *redlatch.Lock) error {
		return redlatch.TryDo(ctx, locker, "printer", func(context.Context, *redlatch.Lock) error {
			return nil // print them
		})
	})
}

// outcome says what became of a run.
func outcome(err error) string {
	var failed *redlatch.FuncError
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, redlatch.ErrNotAcquired):
		return "another instance runs it"
	case errors.As(err, &failed) && errors.Is(failed.Err, redlatch.ErrNotAcquired):
		return "failed for want of another lock: " + err.Error()
	}
	return "failed: " + err.Error()
}

// A job needs two locks. Only the first one says whether another instance runs the job.
func ExampleFuncError() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithOwner("host-7"))
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the client ends with the process
	}
	ctx := context.Background()
	show := func(what, key string) {
		err := redlatch.Do(ctx, locker, key, func(ctx context.Context, _ *redlatch.Lock) error {
			fmt.Println(what, "→", outcome(sendInvoices(ctx, locker)))
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	show("another instance has the job", "cron:invoices")
	show("the printer is in use", "printer")
	show("all is free", "something else")
	// Output:
	// another instance has the job → another instance runs it
	// the printer is in use → failed for want of another lock: redlatch: try do "printer": held by "host-7"
	// all is free → done
}
