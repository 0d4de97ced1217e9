package field_test

import (
	"context"
	"crypto/sha1"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestLocksUnderStrictFIPS: a program in which SHA-1 is a panic locks, waits, renews and unlocks.
// The server does not have the scripts yet.
func TestLocksUnderStrictFIPS(t *testing.T) {
	t.Parallel()
	if addr := os.Getenv(childsPart); addr != "" {
		require.Panics(t, func() { sha1.Sum(nil) })
		for strategy, locker := range locktest.Strategies {
			one, err := locker(locktest.Closing(t, redis.NewClient(&redis.Options{Addr: addr})))
			require.NoError(t, err)
			other, err := locker(locktest.Closing(t, redis.NewClient(&redis.Options{Addr: addr})))
			require.NoError(t, err)
			lockRenewAndWait(t, one, other, strategy)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childsPart+"="+redistest.StartTCP(t).Addr(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "fips140: FIPS 140-3 mode is") {
		t.Skip("this platform has no FIPS 140-3 mode: test skipped")
	}
	require.NoError(t, err, "%s", out)
}

// lockRenewAndWait holds a key by one Locker until the lock was renewed and the other Locker waits,
// which then gets it.
func lockRenewAndWait(t *testing.T, one, other redlatch.Locker, key string) {
	t.Helper()
	var renewed, waits atomic.Bool
	lock := locktest.MustLock(t, one, key, locktest.Patience, redlatch.WithTTL(locktest.BriefTTL),
		redlatch.WithHooks(redlatch.Hooks{Renewed: func(context.Context, redlatch.Event) { renewed.Store(true) }}))
	locktest.Eventually(t, "renewed", renewed.Load)
	got := make(chan error, 1)
	go func() { // ends with the lock of the other
		got <- redlatch.Do(t.Context(), other, key, func(context.Context, *redlatch.Lock) error { return nil },
			locktest.Patience, redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) { waits.Store(true) }}))
	}()
	locktest.Eventually(t, "it waits", waits.Load)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, <-got)
}
