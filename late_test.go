package redlatch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// keepNext has client not send its next script. It returns a channel that gets the words.
func keepNext(client *redis.Client) <-chan []any {
	var scripts atomic.Int64
	kept := make(chan []any, 1)
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() != "evalsha" || scripts.Add(1) != 1 {
				return next(ctx, cmd)
			}
			kept <- sentWords(cmd)
			<-ctx.Done()
			return context.DeadlineExceeded
		}
	}))
	return kept
}

// sentWords returns the words of a command, to send it again.
func sentWords(cmd redis.Cmder) []any {
	words := slices.Clone(cmd.Args())
	for i, word := range words {
		switch word := word.(type) {
		case *string:
			words[i] = *word
		case *int64:
			words[i] = *word
		case *uint64:
			words[i] = *word
		}
	}
	return words
}

// TestAcquireThatComesTooLateDoesNothing, on every strategy: Redis comes to the acquire when its caller has given up and its release
// has found nothing. It changes nothing, and says what time it is. So does one that would queue.
func TestAcquireThatComesTooLateDoesNothing(t *testing.T) {
	for name, made := range map[string]func(*redis.Client) (Locker, error){
		"SetNXPX":     func(c *redis.Client) (Locker, error) { return NewSetNXPX(c) },
		"Semaphore":   func(c *redis.Client) (Locker, error) { return NewSemaphore(c, 1) },
		"LegacySetNX": func(c *redis.Client) (Locker, error) { return NewLegacySetNX(c) },
		"Redlock":     func(c *redis.Client) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}) },
	} {
		for what, held := range map[string]bool{"a free key": false, "a held key": true} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				client, direct := s.Client(t), s.Client(t)
				l, err := made(client)
				require.NoError(t, err)
				require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts and the clock are known")
				e := l.(*engine)
				if held && e.channel != nil {
					other, err := made(s.Client(t))
					require.NoError(t, err)
					defer func(lock *Lock) { _ = lock.Unlock(context.Background()) }(granted(t, other, WithTTL(time.Hour)))
				} else if held {
					return // without a queue nothing can be created
				}
				before := everyKey(t, direct)
				late := keepNext(client)
				if held {
					a := newEntry(t, l)
					_, err = a.post(t, false)
				} else {
					_, err = l.TryLock(t.Context(), "k")
				}
				require.ErrorIs(t, marked(err), ErrUnavailable)
				reply, err := direct.Do(t.Context(), <-late...).Slice()
				require.NoError(t, err)
				require.Len(t, reply, 3)
				require.Equal(t, "late", reply[0])
				require.InDelta(t, time.Now().Unix(), reply[1], 5)
				require.Equal(t, before, everyKey(t, direct))
			})
		}
	}
}

// TestHeldKeyTellsTheTime, on the strategies that poll: a process that has never got the lock knows the time of Redis after its first
// attempt, and does not send the source of the script any more.
func TestHeldKeyTellsTheTime(t *testing.T) {
	for name, made := range map[string]func(*redis.Client) (Locker, error){
		"LegacySetNX": func(c *redis.Client) (Locker, error) { return NewLegacySetNX(c) },
		"Redlock":     func(c *redis.Client) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}) },
	} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			connect := func() *redis.Client {
				client := redis.NewClient(&redis.Options{Addr: m.Addr()})
				t.Cleanup(func() { _ = client.Close() })
				return client
			}
			holder, err := made(connect())
			require.NoError(t, err)
			lock := granted(t, holder)
			client := connect()
			var sources atomic.Int64
			client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context, cmd redis.Cmder) error {
					if cmd.Name() == "eval" {
						sources.Add(1)
					}
					return next(ctx, cmd)
				}
			}))
			l, err := made(client)
			require.NoError(t, err)
			for range 5 {
				_, err := l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, ErrNotAcquired)
			}
			require.Equal(t, int64(2), sources.Load(), "the first attempt, which came too late, and its resend")
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
}

// everyKey returns the keys of a server but the registers of fences, and what is in them.
func everyKey(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, key := range c.Keys(t.Context(), "*").Val() {
		all[key] = c.Dump(t.Context(), key).Val()
	}
	return all
}

// TestRestoreThatComesTooLateDoesNothing, on a quorum: an extension that would restore the lock on a node that has lost it.
func TestRestoreThatComesTooLateDoesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client, direct := s.Client(t), s.Client(t)
	l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Second), WithoutRenewal())
	require.NoError(t, err)
	warm := granted(t, l)
	require.NoError(t, warm.Extend(t.Context(), time.Minute))
	require.NoError(t, warm.Unlock(t.Context()))
	lock := granted(t, l)
	require.NoError(t, direct.Del(t.Context(), "k").Err())
	late := keepNext(client)
	require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), ErrUnavailable)
	reply, err := direct.Do(t.Context(), <-late...).Slice()
	require.NoError(t, err)
	require.Equal(t, "late", reply[0])
	require.Zero(t, direct.Exists(t.Context(), "k").Val())
}

// TestResentAcquireIsReleasedTwice: an acquire was sent twice. The first send may be carried out until the timeout has passed, so
// the token is released again then, whether the second send was granted, refused, or got no reply.
func TestResentAcquireIsReleasedTwice(t *testing.T) {
	for name, answer := range map[string]error{"granted": nil, "refused": ErrNotAcquired, "unknown": node.ErrOtherData} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var released []time.Duration
				var mu sync.Mutex
				begin := time.Now()
				s := &scripted{
					onAcquire: func(context.Context, *leaseParams) (acquireReply, error) { return acquireReply{resent: true}, answer },
					onRelease: func(context.Context, *releaseParams) error {
						mu.Lock()
						defer mu.Unlock()
						released = append(released, time.Since(begin))
						return nil
					},
				}
				lock, err := scriptedLocker(t, s, WithOpTimeout(time.Second)).TryLock(t.Context(), "k")
				require.ErrorIs(t, err, answer)
				if err == nil {
					require.NoError(t, lock.Unlock(t.Context()))
				}
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, []time.Duration{0, time.Second}, released)
			})
		})
	}
}

// TestCtxEndsOnlyTheWait, on TryLock, Adopt, Inspect and Extend: each returns at once when ctx ends. What it has left under way is
// carried out: an attempt is released, an extension counts.
func TestCtxEndsOnlyTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func() { time.Sleep(900 * time.Millisecond) }
		s := &scripted{}
		l := scriptedLocker(t, s, WithOpTimeout(time.Second), WithoutRenewal())
		lock := granted(t, l)
		until := lock.Until()
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) { slow(); return acquireReply{fence: 1}, nil }
		s.onExtend = func(context.Context, *leaseParams) error { slow(); return nil }
		for what, call := range map[string]func(context.Context) error{
			"TryLock": func(ctx context.Context) error { return second(l.TryLock(ctx, "k")) },
			"Lock":    func(ctx context.Context) error { return second(l.Lock(ctx, "another")) },
			"Adopt":   func(ctx context.Context) error { return second(l.Adopt(ctx, "k", "token")) },
			"Extend":  func(ctx context.Context) error { return lock.Extend(ctx, time.Hour) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			begin := time.Now()
			err := call(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, what)
			require.ErrorIs(t, err, ErrUnavailable, what)
			require.NotErrorIs(t, err, ErrNotAcquired, what)
			require.Equal(t, 100*time.Millisecond, time.Since(begin), what)
		}
		time.Sleep(time.Minute)
		require.Equal(t, int64(2), s.releases.Load(), "of TryLock and Lock")
		require.Greater(t, lock.Until().Sub(until), 50*time.Minute)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
