package redlatch_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// render works on a page while it holds one of the permits.
func render(ctx context.Context, permits redlatch.Locker, active, most, done *atomic.Int64) error {
	return redlatch.Do(ctx, permits, "renderer", func(context.Context, *redlatch.Lock) error {
		defer active.Add(-1)
		for now := active.Add(1); ; { // how many work at once
			seen := most.Load()
			if now <= seen || most.CompareAndSwap(seen, now) {
				break
			}
		}
		done.Add(1)
		return nil
	})
}

// At most three of many workers work at a time, whatever process they are in. The Redis of this example is inside the
// process.
func Example_workers() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	permits, err := redlatch.NewSemaphore(client, 3)
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the client ends with the process
	}

	var active, most, done atomic.Int64
	var workers sync.WaitGroup
	for range 20 {
		workers.Go(func() {
			if err := render(context.Background(), permits, &active, &most, &done); err != nil {
				log.Print(err)
			}
		})
	}
	workers.Wait()
	fmt.Println("pages:", done.Load())
	fmt.Println("more than three at once:", most.Load() > 3)
	// Output:
	// pages: 20
	// more than three at once: false
}
