// Command first is the first program of the README. It needs a Redis on localhost:6379.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redlatch/redlatch"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locker, err := redlatch.NewSetNXPX(client) // one Locker serves all keys and goroutines
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	// Do waits for the lock, calls the function and releases the lock.
	err = redlatch.Do(ctx, locker, "orders:42", func(ctx context.Context, lock *redlatch.Lock) error {
		fmt.Println("only this process works on", lock.Key())
		return ctx.Err() // ctx ends when the lock is lost: stop then
	}, redlatch.WithMaxWait(time.Minute))
	if err != nil {
		log.Print(err) // for example ErrNotAcquired: the lock was not free within a minute
	}
}
