package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// work stands in for what is done under a lock.
func work(ctx context.Context) error {
	fmt.Println("alone")
	return ctx.Err()
}

// workAlone is what docs/migrating.md writes in the place of redsync's and redislock's calls.
func workAlone(ctx context.Context, locker redlatch.Locker) error {
	turn, cancel := context.WithTimeout(ctx, 5*time.Second) // how long to wait
	defer cancel()
	lock, err := locker.Lock(turn, "orders:42", redlatch.WithTTL(30*time.Second))
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	} else if err != nil {
		return err // Redis is in trouble
	}
	return errors.Join(work(lock.Context(ctx)), lock.Unlock(ctx))
}

var errBusy = errors.New("somebody else is at it")

func ExampleLocker_Lock() {
	_, client, end := embedded()
	defer end()
	fmt.Println(workAlone(context.Background(), made(redlatch.NewSetNXPX(client))))
	// Output:
	// alone
	// <nil>
}

// generations are the Lockers of a fleet that moves from the timestamps of SETNX and GETSET to SetNXPX.
func generations(client redis.UniversalClient) (one, two, three redlatch.Locker, err error) {
	from, err := redlatch.NewLegacySetNX(client) // generation 1 uses this one alone
	if err != nil {
		return nil, nil, nil, err
	}
	to, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("v2:")) // generation 3 this one
	if err != nil {
		return nil, nil, nil, err
	}
	both, err := redlatch.NewMigration(from, to) // and generation 2 holds every key under both
	if err != nil {
		return nil, nil, nil, err
	}
	return from, both, to, nil
}

// A fleet moves to another kind of lock while it works: a process of the generation in between excludes
// those of the one before and of the one after.
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

// TestMigratingCodeIsCompiled: each block of Go code in the guide stands in an example.
func TestMigratingCodeIsCompiled(t *testing.T) {
	names, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, name := range names {
		source.WriteString(trimmed(mustRead(t, name)))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(mustRead(t, "docs/migrating.md"), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, source.String(), trimmed(block[1]))
	}
}
