package redlatch_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// A bank has accounts, each of which is protected by the lock on its name.
type bank struct {
	locker   redlatch.Locker
	accounts map[string]*int
}

// transfer moves an amount. The order of the two names does not matter: all callers acquire the keys in one order.
func (b *bank) transfer(ctx context.Context, from, to string, amount int) error {
	return redlatch.DoAll(ctx, b.locker, []string{from, to}, func(context.Context, []*redlatch.Lock) error {
		*b.accounts[from] -= amount
		*b.accounts[to] += amount
		return nil
	})
}

// Transfers in both directions lock the same two accounts, and do not deadlock. The Redis of this example is inside the
// process.
func Example_transfer() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("account:"))
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the client ends with the process
	}

	b := &bank{locker, map[string]*int{"ada": new(int), "bob": new(int)}}
	var transfers sync.WaitGroup
	for range 10 {
		for _, pair := range [][2]string{{"ada", "bob"}, {"bob", "ada"}} {
			transfers.Go(func() {
				if err := b.transfer(context.Background(), pair[0], pair[1], 5); err != nil {
					log.Print(err)
				}
			})
		}
	}
	transfers.Wait()
	fmt.Println("ada:", *b.accounts["ada"], "bob:", *b.accounts["bob"])
	// Output: ada: 0 bob: 0
}
