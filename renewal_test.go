package redlatch

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestHourOfRenewals holds a lock through an hour of renewals every TTL/3, as rule 12 wants it,
// and leaves nothing behind. Rule 6.
func TestHourOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		var renewals atomic.Int64
		l, err := NewSetNXPX(client, WithHooks(Hooks{Renewed: func(Event) { renewals.Add(1) }}))
		require.NoError(t, err)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, lock.Err())
		require.InDelta(t, 3600/(10.0/3), float64(renewals.Load()), 60)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, []string{"redlatch:fence"}, m.Keys())
		time.Sleep(25 * time.Hour)
		require.Empty(t, m.Keys(), "the fence register expires, too")
	})
}

// bubbleRedis returns a miniredis whose keys expire by the bubble's clock, and a client of it.
func bubbleRedis(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return m, bubbleClient(t, m)
}

// bubbleClient returns a client of m, as another process would have.
func bubbleClient(t *testing.T, m *miniredis.Miniredis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestRenewalComesBeforeTheEnd: a lock is renewed before its lease ends, even if the drift leaves less than a third
// of the TTL or the TTL is only 4 ms.
func TestRenewalComesBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range [][]Option{{WithDrift(0.7)}, {WithTTL(4 * time.Millisecond)}} {
			lock := granted(t, scriptedLocker(t, &scripted{}), opts...)
			time.Sleep(time.Minute)
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestRenewalsGoOnWhileTheLeaseIsLong is rules 4 and 12: a lock that lasts for longer than its TTL is renewed as often as any
// other. So a deleted key is noticed as soon. No renewal shortens the lease.
func TestRenewalsGoOnWhileTheLeaseIsLong(t *testing.T) {
	for name, opts := range map[string][]Option{
		"after Extend":                nil,
		"of WithMinHold":              {WithMinHold(time.Hour)},
		"after Extend to WithMaxHold": {WithMaxHold(time.Hour)},
		"after Extend, before a tick": {WithTTL(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				l, err := NewSetNXPX(client)
				require.NoError(t, err)
				lock := granted(t, l, opts...)
				ttl := lock.lease.r.cfg.ttl
				if ttl == 10*time.Second {
					time.Sleep(9 * time.Second)
				}
				if lock.lease.r.cfg.minHold == 0 {
					require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
				}
				until := lock.Until()
				time.Sleep(30 * time.Minute)
				require.Equal(t, until, lock.Until())
				require.WithinDuration(t, until, time.Now().Add(m.TTL("k")), 2*time.Minute)
				m.Del("k")
				deleted := time.Now()
				<-lock.Done()
				require.ErrorIs(t, lock.Err(), ErrLost)
				require.LessOrEqual(t, time.Since(deleted), ttl/3)
			})
		})
	}
}

// TestUnclearRenewalIsRetriedUntilTheEnd is rule 12.
func TestUnclearRenewalIsRetriedUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int64
		var fixed atomic.Bool
		s := &scripted{onExtend: func(context.Context, *extendParams) error {
			if fixed.Load() {
				return nil
			}
			return errors.New("connection reset")
		}}
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second), WithHooks(Hooks{
			RenewFailed: func(Event) { failed.Add(1) },
		}))
		until := lock.Until()
		time.Sleep(9 * time.Second)
		require.NoError(t, lock.Err())
		require.Equal(t, until, lock.Until())
		require.Greater(t, failed.Load(), int64(5))
		require.Less(t, failed.Load(), int64(50), "the renewal does not spin")
		fixed.Store(true)
		time.Sleep(time.Hour)
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestDefiniteAnswerEndsTheLeaseAtOnce is rule 12.
func TestDefiniteAnswerEndsTheLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onExtend: func(context.Context, *extendParams) error { return ErrLost }}
		begin := time.Now()
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		<-lock.Done()
		require.Less(t, time.Since(begin), 4*time.Second)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestUnlockWaitsForARenewalInFlight is rule 11: the release is sent at once. Unlock returns after
// the release and the renewal, and no other renewal starts.
func TestUnlockWaitsForARenewalInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{})
		s := &scripted{onExtend: func(context.Context, *extendParams) error { <-answered; return nil }}
		lock := granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		time.Sleep(4 * time.Second)
		require.Equal(t, int64(1), s.extensions.Load())
		done := make(chan error)
		go func() { done <- lock.Unlock(context.Background()) }()
		synctest.Wait()
		require.Equal(t, int64(1), s.releases.Load())
		require.ErrorIs(t, lock.Err(), ErrReleased)
		select {
		case err := <-done:
			require.Failf(t, "Unlock returned before the renewal", "with %v", err)
		default:
		}
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrReleased)
		close(answered)
		require.NoError(t, <-done)
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.extensions.Load())
	})
}

// TestUnlockRacesRenewals is rule 11, 100,000 times: no renewal starts after Unlock has
// returned, and nothing is left running.
func TestUnlockRacesRenewals(t *testing.T) {
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var broken atomic.Int64
	for range 8 {
		wg.Go(func() {
			var unlocking atomic.Bool
			s := &scripted{onExtend: func(context.Context, *extendParams) error {
				if unlocking.Load() {
					runtime.Gosched() // in flight already: it may run after the release
				}
				return nil
			}}
			l := scriptedLocker(t, s)
			for range 12_500 {
				unlocking.Store(false)
				lock := granted(t, l)
				l := lock.lease
				l.mu.Lock()
				l.renewAt = 0
				l.mu.Unlock()
				var racing sync.WaitGroup
				racing.Go(l.tick)
				racing.Go(func() { _ = lock.Extend(context.Background(), time.Hour) })
				unlocking.Store(true)
				if err := lock.Unlock(context.Background()); err != nil {
					broken.Add(1)
				}
				started := s.extensions.Load()
				racing.Wait()
				if s.extensions.Load() != started || !errors.Is(lock.Err(), ErrReleased) {
					broken.Add(1)
				}
			}
			if s.releases.Load() != 12_500 {
				broken.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, broken.Load())
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 20*time.Second, time.Millisecond)
}

// TestForgottenLockIsRenewedNoMore is rule 13. In a bubble the load of the machine does not matter.
func TestForgottenLockIsRenewedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		granted(t, scriptedLocker(t, s), WithTTL(10*time.Second))
		time.Sleep(4 * time.Second)
		require.Equal(t, int64(1), s.extensions.Load())
		runtime.GC()
		time.Sleep(time.Hour)
		require.Equal(t, int64(1), s.extensions.Load())
	})
}

// TestFailingExtendsPutNoRenewalOff is rule 12: calls of Extend that fail do not delay renewals.
func TestFailingExtendsPutNoRenewalOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onExtend: func(_ context.Context, c *extendParams) error {
			if c.ttl == time.Hour {
				time.Sleep(3 * time.Millisecond)
				return errors.New("no route")
			}
			return nil
		}}
		lock := granted(t, scriptedLocker(t, s, WithTTL(2*time.Second)))
		for range 2000 {
			require.ErrorContains(t, lock.Extend(t.Context(), time.Hour), "no route")
			require.Greater(t, time.Until(lock.Until()), time.Second)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestShortExtendsPutNoRenewalOff is rule 12: an Extend that does not move the end does not move the next renewal either.
func TestShortExtendsPutNoRenewalOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := granted(t, scriptedLocker(t, &scripted{}, WithTTL(10*time.Second)))
		for range 60 {
			time.Sleep(time.Second) // in the time of the bubble
			require.NoError(t, lock.Extend(t.Context(), 2*time.Second))
			require.Greater(t, time.Until(lock.Until()), 6*time.Second)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
