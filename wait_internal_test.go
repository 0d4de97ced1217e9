package redlatch

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/redistest"
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
	cfg := defaults()
	w := &waiters{engine: &engine{}, r: &request{cfg: &cfg}, tries: 10}
	longest := func(holder string) (d time.Duration) {
		for range 10 {
			d = max(d, w.pollPause(acquireReply{Refusal: handoff.Refusal{Holder: holder}}))
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

// TestShortWaitsDoNotQueueWhenCommandsAreSlow is rule 31: a waiter whose ctx leaves less than ten times what a command
// takes at the moment polls, without an entry in the queue. So it has nothing to remove when it leaves. A waiter with
// more time queues.
func TestShortWaitsDoNotQueueWhenCommandsAreSlow(t *testing.T) {
	for name, c := range map[string]struct {
		command time.Duration
		entries int64
	}{"quick": {time.Millisecond, 1}, "slow": {20 * time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				var sent atomic.Int64
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						sent.Add(1)
						time.Sleep(c.command) // the bubble's time
						return next(ctx, cmd)
					}
				}))
				made, err := NewSetNXPX(client, WithBackoff(func(int) time.Duration { return 25 * time.Millisecond }))
				require.NoError(t, err)
				l := made.(*engine)
				l.channel.Join()
				defer time.Sleep(10 * time.Second) // the subscription ends
				defer l.channel.Leave()
				time.Sleep(time.Second)
				require.True(t, l.channel.State().Ready)
				l.observe(8*c.command, nil) // the first of a moving average over eight
				holder := granted(t, l)
				var most atomic.Int64 // entries in the queue
				wait := func(patience time.Duration) (leaving int64) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					time.AfterFunc(patience-time.Millisecond, func() {
						members, _ := m.ZMembers("{k}:queue:k")
						most.Store(int64(len(members)))
					})
					_, err := l.Lock(ctx, "k")
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, ErrNotAcquired)
					leaving = -sent.Load()
					time.Sleep(time.Second) // its entry leaves the queue
					return leaving + sent.Load()
				}
				before := sent.Load()
				require.Zero(t, wait(130*time.Millisecond)*(1-c.entries), "there is no entry to remove")
				require.Equal(t, c.entries, most.Load())
				require.LessOrEqual(t, sent.Load()-before, int64(3), "it pauses between its attempts")
				wait(2 * time.Second)
				require.Equal(t, int64(1), most.Load())
				go func() { // ends with its sleep
					time.Sleep(20 * time.Millisecond)
					_ = holder.Unlock(context.Background())
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 190*time.Millisecond)
				defer cancel()
				lock, err := l.Lock(ctx, "k")
				require.NoError(t, err, "it is served")
				require.NoError(t, lock.Unlock(t.Context()))
			})
		})
	}
}

// TestUnansweredAttemptsDoNotLookQuick is rule 31: an attempt that its ctx cut short would have taken longer. It does not
// lower the average of what commands take, and may raise it.
func TestUnansweredAttemptsDoNotLookQuick(t *testing.T) {
	e := &engine{}
	e.observe(80*time.Millisecond, nil)
	require.Equal(t, int64(10*time.Millisecond), e.commandTime.Load())
	e.observe(2*time.Millisecond, context.DeadlineExceeded)
	require.Equal(t, int64(10*time.Millisecond), e.commandTime.Load())
	e.observe(18*time.Millisecond, context.DeadlineExceeded)
	require.Equal(t, int64(11*time.Millisecond), e.commandTime.Load())
	e.observe(3*time.Millisecond, ErrNotAcquired)
	require.Equal(t, int64(10*time.Millisecond), e.commandTime.Load())
}
