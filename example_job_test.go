package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// invoice sends the invoices of a night, unless another instance does it or has just done it.
func invoice(ctx context.Context, locker redlatch.Locker, instance string) error {
	err := redlatch.TryDo(ctx, locker, "cron:invoices", func(ctx context.Context, _ *redlatch.Lock) error {
		fmt.Println(instance, "sends the invoices")
		return ctx.Err() // ctx ends when the lock does
	}, redlatch.WithMinHold(time.Minute)) // longer than the clocks of the instances differ
	if errors.Is(err, redlatch.ErrNotAcquired) {
		fmt.Println(instance, "skips this run")
		return nil
	}
	return err
}

// All instances start a job at the same time, and one of them runs it. The Redis of this example is inside the process.
func Example_job() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client)
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the client ends with the process
	}

	for _, instance := range []string{"host-1", "host-2"} {
		if err := invoice(context.Background(), locker, instance); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// host-1 sends the invoices
	// host-2 skips this run
}
