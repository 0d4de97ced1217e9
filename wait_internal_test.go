package redlatch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/handoff"
)

// TestKeyExpiresWhileAScriptRuns is rule 18: unlike Redis, miniredis may expire a key between two commands of a
// script. The attempt counts as refused, and a waiter looks again at once.
func TestKeyExpiresWhileAScriptRuns(t *testing.T) {
	t.Parallel()
	for before, newLocker := range map[string]func(redis.UniversalClient) (Locker, error){
		"GET":    func(c redis.UniversalClient) (Locker, error) { return NewSetNXPX(c) },
		"PTTL":   func(c redis.UniversalClient) (Locker, error) { return NewSetNXPX(c) },
		"ZSCORE": func(c redis.UniversalClient) (Locker, error) { return NewSemaphore(c, 1) },
	} {
		t.Run("before "+before, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				defer time.Sleep(time.Minute) // the subscription ends
				l, err := newLocker(client)
				require.NoError(t, err)
				expire := func() {
					_, err := l.Lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
					require.NoError(t, err)
					time.Sleep(990 * time.Millisecond)
					var once sync.Once
					m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
						if cmd == before {
							once.Do(func() { time.Sleep(20 * time.Millisecond) })
						}
						return false
					})
				}

				expire()
				_, err = l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, ErrNotAcquired)
				require.False(t, m.Exists("k"))

				for range 2 { // the second Lock asks for a place in the queue at once
					expire()
					begin := time.Now()
					lock, err := l.Lock(t.Context(), "k")
					require.NoError(t, err)
					require.Less(t, time.Since(begin), 40*time.Millisecond)
					require.NoError(t, lock.Unlock(t.Context()))
				}

				expire()
				st, err := l.Inspect(t.Context(), "k")
				require.NoError(t, err)
				require.GreaterOrEqual(t, st.TTL, time.Duration(0), "a negative TTL never ends")
			})
		})
	}
}

// TestPollersAreServedInTheEnd is rule 32: 8 processes poll for a quorum, each holds the lock for 200 ms and wants it again at
// once. Nobody waits for longer than four times a fair turn.
func TestPollersAreServedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes, hold = 8, 200 * time.Millisecond
		var clients []redis.UniversalClient
		for range 3 {
			_, client := bubbleRedis(t)
			clients = append(clients, client)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var mu sync.Mutex // guards the fields below
		var longest time.Duration
		var grants int
		var wg sync.WaitGroup
		per := make([]int, processes)
		for i := range processes {
			l, err := NewRedlock(clients)
			require.NoError(t, err)
			wg.Go(func() {
				for ctx.Err() == nil {
					begin := time.Now()
					lock, err := l.Lock(ctx, "k")
					mu.Lock()
					longest = max(longest, time.Since(begin))
					grants++
					per[i]++
					mu.Unlock()
					if err != nil {
						return
					}
					time.Sleep(hold)
					_ = lock.Unlock(ctx)
				}
			})
		}
		wg.Wait()
		t.Log(per)
		t.Logf("%d grants, the longest wait was %v", grants, longest)
		require.Less(t, longest, 4*processes*hold)
		require.Greater(t, grants, 75)
		time.Sleep(time.Minute)
	})
}

// TestWantedKeyIsYielded is rule 32: a process that has released a key on a quorum lets others who want it go first.
// A key that nobody else wants is granted at once.
func TestWantedKeyIsYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client})
		require.NoError(t, err)
		other, err := NewRedlock([]redis.UniversalClient{client})
		require.NoError(t, err)
		again := func() time.Duration {
			begin := time.Now()
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			defer lock.Unlock(t.Context()) //nolint:errcheck // only the time matters
			return time.Since(begin)
		}
		again()
		require.Less(t, again(), longestPause/4)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		_, err = other.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, lock.Unlock(t.Context()))
		require.GreaterOrEqual(t, again(), longestPause/2)
		time.Sleep(time.Second)
		require.Less(t, again(), longestPause/4)
		time.Sleep(time.Minute)
	})
}

// TestWhoeverWaitsLongerAsksSooner is rule 32: pauses get shorter with each change of hands, and longer again
// while the key stays with one holder.
func TestWhoeverWaitsLongerAsksSooner(t *testing.T) {
	e, cfg := &engine{}, defaults()
	r := &request{cfg: &cfg, attempts: 10}
	var p pace
	longest := func(holder string) (d time.Duration) {
		for range 10 {
			d = max(d, e.pause(&p, r, acquireReply{Refusal: handoff.Refusal{Holder: holder}}))
		}
		return d
	}
	first := longest("0")
	require.Greater(t, first, longestPause/2)
	for i := range 40 {
		longest(string(rune('a' + i)))
	}
	require.Less(t, longest("z"), first/4)
	for range 20 {
		longest("z")
	}
	require.Greater(t, longest("z"), longestPause/2)
	cfg.backoff = func(int) time.Duration { return time.Hour }
	require.Equal(t, time.Hour, longest("z"))
}
