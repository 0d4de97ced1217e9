package redlatch_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// generations returns the Lockers of a fleet that migrates from the timestamps of SETNX and GETSET to SetNXPX.
func generations(client redis.UniversalClient) (one, two, three redlatch.Locker, err error) {
	from, err := redlatch.NewLegacySetNX(client) // generation 1 uses only this one
	if err != nil {
		return nil, nil, nil, err
	}
	to, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("v2:")) // generation 3 uses only this one
	if err != nil {
		return nil, nil, nil, err
	}
	both, err := redlatch.NewMigration(from, to) // generation 2 holds every key under both
	if err != nil {
		return nil, nil, nil, err
	}
	return from, both, to, nil
}

// A fleet migrates to another kind of lock without a stop. A process of generation 2 excludes processes of
// generations 1 and 3.
func ExampleNewMigration() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	old, both, next, err := generations(client)
	must(err)

	lock := granted(both.Lock(ctx, "orders:42"))
	fmt.Println("both keys:", server.Exists("orders:42"), server.Exists("v2:orders:42"))
	_, err = old.TryLock(ctx, "orders:42")
	fmt.Println(err)
	_, err = next.TryLock(ctx, "orders:42")
	fmt.Println(err)

	must(lock.Unlock(ctx))
	fmt.Println("both keys:", server.Exists("orders:42"), server.Exists("v2:orders:42"))
	// Output:
	// both keys: true true
	// redlatch: try lock "orders:42": held by another owner
	// redlatch: try lock "orders:42": held by another owner
	// both keys: false false
}
