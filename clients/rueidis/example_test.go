package redlatchrueidis_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	redlatchrueidis "github.com/redlatch/redlatch/clients/rueidis"
)

func ExampleNew() {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer m.Close()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{m.Addr()}, ForceSingleClient: true, DisableCache: true, // miniredis has no cache
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(redlatchrueidis.New(client))
	if err != nil {
		panic(err)
	}
	err = redlatch.Do(context.Background(), locker, "orders:42", func(_ context.Context, lock *redlatch.Lock) error {
		fmt.Println("only this process works on", lock.Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// only this process works on orders:42
	// <nil>
}

// newLocker has the code of README.md.
func newLocker() (redlatch.Locker, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		return nil, err
	}
	return redlatch.NewSetNXPX(redlatchrueidis.New(client))
}

var _ = newLocker
