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
