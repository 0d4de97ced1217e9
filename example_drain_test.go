package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// serve works until ctx ends. Then it stops, and leaves nothing in Redis.
func serve(ctx context.Context, client *redis.Client, work func(context.Context, *redlatch.Lock) error) error {
	locker, err := redlatch.NewSetNXPX(client)
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range 60 {
		workers.Go(func() {
			for ctx.Err() == nil { // take no more work
				err := redlatch.Do(ctx, locker, "orders", work) // the ctx of work ends with ctx
				if err != nil && ctx.Err() == nil {
					log.Print(err)
				}
			}
		})
	}
	<-ctx.Done()
	workers.Wait()
	leaving, cancel := context.WithTimeout(context.Background(), 5*time.Second) // ctx has ended
	defer cancel()
	return errors.Join(redlatch.Drain(leaving, locker), client.Close())
}

// A service stops on SIGTERM, as an orchestrator sends it. The work ends, then nothing of it is under way.
func ExampleDrain() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // in place of a SIGTERM
	defer cancel()
	err = serve(ctx, client, func(ctx context.Context, _ *redlatch.Lock) error {
		time.Sleep(time.Millisecond)
		return ctx.Err()
	})
	fmt.Println(err)
	fmt.Println("left:", server.Exists("orders"), server.Exists("{orders}:queue:orders"))
	// Output:
	// <nil>
	// left: false false
}
