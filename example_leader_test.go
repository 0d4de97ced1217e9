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

// lead is the work of the leader. It returns when ctx ends: another process may lead then.
func lead(ctx context.Context, lock *redlatch.Lock, started func()) error {
	fmt.Println("this process leads, with a fence:", lock.Fence() > 0)
	started()
	<-ctx.Done()
	fmt.Println("this process no longer leads")
	return nil
}

// One of many processes leads. The Redis of this example is inside the process.
func Example_leader() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithOwner("host-1"))
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the client ends with the process
	}

	ctx, stop := context.WithCancel(context.Background()) // in a program, ctx ends with a signal: see os/signal.NotifyContext
	err = redlatch.Lead(ctx, locker, "leader", func(ctx context.Context, lock *redlatch.Lock) error {
		return lead(ctx, lock, stop)
	})
	fmt.Println("stopped:", errors.Is(err, context.Canceled))
	// Output:
	// this process leads, with a fence: true
	// this process no longer leads
	// stopped: true
}
