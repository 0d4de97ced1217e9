package redlatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
)

// pipelinedBehindProxy is behindProxy with a client that sends its commands in batches.
func pipelinedBehindProxy(t *testing.T) (direct *redis.Client, p *faultproxy.Proxy, pipelined redis.UniversalClient) {
	t.Helper()
	direct, p, client := behindProxy(t)
	pipelined, err := client.AutoPipeline()
	require.NoError(t, err)
	return direct, p, pipelined
}

// TestPipelinedLostReplyIsNotLostOwnership is rules 3 and 7 where no operation has a goroutine.
func TestPipelinedLostReplyIsNotLostOwnership(t *testing.T) {
	direct, p, client := pipelinedBehindProxy(t)
	l := newLocker(t, client)
	warm := mustLock(t, l, "warm") // the scripts are loaded
	require.NoError(t, warm.Extend(t.Context(), time.Second))
	require.NoError(t, warm.Unlock(t.Context()))

	for name, operation := range map[string]func(k string) error{
		"acquire": func(k string) error {
			_, err := l.TryLock(t.Context(), k)
			return err
		},
		"extend": func(k string) error {
			lock := mustLock(t, l, k)
			p.LoseReplies(1, "evalsha")
			return lock.Extend(t.Context(), time.Hour)
		},
		"release": func(k string) error {
			lock := mustLock(t, l, k)
			p.LoseReplies(1, "evalsha")
			return lock.Unlock(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			lost := p.Lost()
			if name == "acquire" {
				p.LoseReplies(1, "evalsha")
			}
			require.NoError(t, operation(name))
			require.Equal(t, lost+1, p.Lost())
			if name == "release" {
				require.Zero(t, direct.Exists(t.Context(), name).Val())
			}
		})
	}
}

// TestPipelinedRefusalIsNoFault is rule 7: what Redis answers ends an operation, and it is not sent
// again.
func TestPipelinedRefusalIsNoFault(t *testing.T) {
	direct, _, client := pipelinedBehindProxy(t)
	l := newLocker(t, client)
	lock := mustLock(t, l, "k")
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NoError(t, direct.Del(t.Context(), "k").Err())
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
}

// TestPipelinedCallIsBounded is rules 4 and 8: a server that says nothing holds nobody up, and what
// it does when it wakes is undone, or was what the caller wanted.
func TestPipelinedCallIsBounded(t *testing.T) {
	direct, p, client := pipelinedBehindProxy(t)
	l := newLocker(t, client, longTTL, redlatch.WithOpTimeout(100*time.Millisecond))
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	held := mustLock(t, l, "held")

	p.Delay(700 * time.Millisecond)
	begin := time.Now()
	require.ErrorContains(t, held.Unlock(t.Context()), "no reply within 100ms")
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorContains(t, err, "no reply within 100ms")
	require.Less(t, time.Since(begin), 500*time.Millisecond)
	eventually(t, "the straggler lands", func() bool { return direct.Exists(t.Context(), "{k}:fence:k").Val() == 1 })
	gone(t, direct, "k")
	gone(t, direct, "held")
}

// TestPipelinedReleaseIsCarriedOutAfterItsCallerLeft is rule 8: the connection dies under a release
// that nobody waits for any more.
func TestPipelinedReleaseIsCarriedOutAfterItsCallerLeft(t *testing.T) {
	direct, p, client := pipelinedBehindProxy(t)
	l := newLocker(t, client, longTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(100*time.Millisecond))
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	lock := mustLock(t, l, "k")
	p.Silence()
	require.ErrorContains(t, lock.Unlock(t.Context()), "no reply within 100ms")
	require.Equal(t, int64(1), direct.Exists(t.Context(), "k").Val())
	p.Cut()
	p.Heal()
	gone(t, direct, "k")
}

// TestPipelinedClientIsSharedByMany is for the race detector: jobs are used again, whether their
// callers stay or leave.
func TestPipelinedClientIsSharedByMany(t *testing.T) {
	direct, _, client := pipelinedBehindProxy(t)
	l := newLocker(t, client)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			key := fmt.Sprint("k", g/2) // two for each
			for i := range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*100*time.Microsecond)
				if lock, err := l.TryLock(ctx, key); err == nil {
					_ = lock.Unlock(t.Context())
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for g := range 8 {
		gone(t, direct, fmt.Sprint("k", g))
	}
}
