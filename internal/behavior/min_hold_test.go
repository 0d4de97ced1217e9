package behavior_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// holding are the strategies that can keep a lock after Unlock.
var holding = map[string]func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error){
	"SetNXPX": everyStrategy["SetNXPX"], "Redlock": everyStrategy["Redlock"],
	"Semaphore": everyStrategy["Semaphore"],
}

// TestMinHoldKeepsOthersOut: nobody else gets the lock before the minimum hold has passed since the grant.
// A release after that deletes the key at once.
func TestMinHoldKeepsOthersOut(t *testing.T) {
	t.Parallel()
	const hold = 700 * time.Millisecond
	for name, strategy := range holding {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			l, err := strategy(s.Client(t), patience, redlatch.WithMinHold(hold))
			require.NoError(t, err)
			others, err := strategy(s.Client(t), patience)
			require.NoError(t, err)
			begin := time.Now()
			lock := mustLock(t, l, "k")
			require.NoError(t, lock.Unlock(t.Context()))
			require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
			next, err := others.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(begin), hold)
			require.NoError(t, next.Unlock(t.Context()))
			gone(t, s.Client(t), "k")

			lock = mustLock(t, l, "late")
			<-time.After(hold)
			require.NoError(t, lock.Unlock(t.Context()))
			require.Zero(t, s.Client(t).Exists(t.Context(), "late").Val(), "released at once")
		})
	}
}

// TestMinHoldHandsOnWhenItEnds: when the minimum hold ends, the next waiter is handed the lock before it
// looks again. The test has three tries, since a busy machine is late.
func TestMinHoldHandsOnWhenItEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t))
	for range 3 {
		begin := time.Now()
		lock := mustLock(t, l, "k", redlatch.WithMinHold(200*time.Millisecond))
		waiter := newLocker(t, s.Client(t))
		next := waitInLine(t, waiter, "k")
		require.NoError(t, lock.Unlock(t.Context()))
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		kept := st.Held && st.Token == ""
		second := <-next
		require.NotNil(t, second)
		looked := time.Since(begin) > 290*time.Millisecond // the key lasts for 300 ms
		require.Greater(t, second.Fence(), lock.Fence())
		require.NoError(t, second.Unlock(t.Context()))
		onlyFences(t, s.Client(t))
		if kept && !looked {
			return
		}
	}
	require.Fail(t, "the lock was not kept, or the waiter had to look, in all three tries")
}

// TestMinHoldOutlastsACrash: the TTL is at least as long as the minimum hold.
func TestMinHoldOutlastsACrash(t *testing.T) {
	t.Parallel()
	for name, strategy := range holding {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			l, err := strategy(s.Client(t), patience, redlatch.WithTTL(time.Second), redlatch.WithMinHold(time.Hour))
			require.NoError(t, err)
			mustLock(t, l, "k")
			require.Greater(t, s.Client(t).PTTL(t.Context(), "k").Val(), 59*time.Minute)
		})
	}
}

// TestMinHoldLeavesTheNextOwnerAlone: Unlock of a lost lock reports the loss. The end of a minimum
// hold does not touch the key of the next owner.
func TestMinHoldLeavesTheNextOwnerAlone(t *testing.T) {
	t.Parallel()
	for name, strategy := range holding {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			admin := s.Client(t)
			l, err := strategy(s.Client(t), patience, redlatch.WithMinHold(500*time.Millisecond))
			require.NoError(t, err)
			steal := func() { require.NoError(t, admin.Set(t.Context(), "k", "another", time.Hour).Err()) }
			lock := mustLock(t, l, "k")
			steal()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
			require.NoError(t, admin.Del(t.Context(), "k").Err())

			lock = mustLock(t, l, "k")
			require.NoError(t, lock.Unlock(t.Context()))
			steal()
			end := mustLock(t, l, "other") // its hold ends later
			require.NoError(t, end.Unlock(t.Context()))
			eventually(t, "the holds have ended", func() bool { return admin.Exists(t.Context(), "other").Val() == 0 })
			require.Equal(t, "another", admin.Get(t.Context(), "k").Val())
			require.Greater(t, admin.PTTL(t.Context(), "k").Val(), 59*time.Minute)
		})
	}
}

// TestMinHoldSurvivesLostReplies: the release is sent again, and the key is kept all the same.
func TestMinHoldSurvivesLostReplies(t *testing.T) {
	t.Parallel()
	for name, strategy := range holding {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, client := behindProxy(t)
			l, err := strategy(client, patience, redlatch.WithMinHold(time.Minute), redlatch.WithTTL(time.Hour))
			require.NoError(t, err)
			lock := mustLock(t, l, "k")
			p.LoseReplies(1, "evalsha")
			require.NoError(t, lock.Unlock(t.Context()))
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Greater(t, st.TTL, 50*time.Second)
			require.LessOrEqual(t, st.TTL, time.Minute+100*time.Millisecond)
		})
	}
}

// TestTickOfManyInstancesRunsOnce: five instances try to run a job at each tick, and only one runs it,
// though the job ends at once.
func TestTickOfManyInstancesRunsOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for ticks := 0; ticks < 5; {
		runs := make(chan int, 5)
		done := make(chan error, 5)
		begin := time.Now()
		for i := range 5 {
			l := newLocker(t, s.Client(t), redlatch.WithMinHold(400*time.Millisecond))
			go func() { // ends with its attempt
				<-time.After(time.Duration(i) * 30 * time.Millisecond) // clocks differ
				lock, err := l.TryLock(context.Background(), "job")
				if err == nil {
					runs <- i
					err = lock.Unlock(context.Background())
				}
				done <- err
			}()
		}
		for range 5 {
			if err := <-done; err != nil {
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			}
		}
		if time.Since(begin) < 390*time.Millisecond { // otherwise the machine was too busy, and the hold had ended
			require.Len(t, runs, 1)
			ticks++
		}
		eventually(t, "the hold has ended", func() bool { return s.Client(t).Exists(t.Context(), "job").Val() == 0 })
	}
}

func TestMinHoldFitsItsLock(t *testing.T) {
	client := redistest.Start(t).Client(t)
	_, err := redlatch.NewSetNXPX(client, redlatch.WithMinHold(0))
	require.ErrorContains(t, err, "WithMinHold(0s): below 1ms")
	_, err = redlatch.NewSetNXPX(client, redlatch.WithMinHold(time.Minute), redlatch.WithMaxHold(time.Second))
	require.ErrorContains(t, err, "WithMinHold(1m0s): longer than WithMaxHold(1s)")
	_, err = redlatch.NewLegacySetNX(client, redlatch.WithMinHold(time.Second))
	require.ErrorContains(t, err, "WithMinHold(1s): legacysetnx counts whole seconds")
}

// TestKeptKeyIsNobodysLock: after Unlock, nobody can acquire, adopt or extend what the minimum hold
// keeps, by the token or by the value of the key.
func TestKeptKeyIsNobodysLock(t *testing.T) {
	t.Parallel()
	for name, strategy := range holding {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			keeping, err := strategy(s.Client(t), patience, redlatch.WithMinHold(time.Minute))
			require.NoError(t, err)
			l, err := strategy(s.Client(t), patience)
			require.NoError(t, err)
			lock := mustLock(t, keeping, "k", redlatch.WithOwner("api-7"))
			other, err := l.Adopt(t.Context(), "k", lock.Token())
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))

			value := s.Client(t).Get(t.Context(), "k").Val()
			if name == "Semaphore" {
				value = s.Client(t).ZRange(t.Context(), "k", 0, 0).Val()[0]
			}
			require.NotEqual(t, lock.Token(), value)
			require.ErrorIs(t, other.Extend(t.Context(), time.Minute), redlatch.ErrLost)
			for _, token := range []string{lock.Token(), value} {
				_, err = l.Adopt(t.Context(), "k", token)
				require.ErrorIs(t, err, redlatch.ErrLost)
			}
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Greater(t, st.TTL, 50*time.Second)
			st.TTL = 0
			require.Equal(t, redlatch.Status{Held: true, Holders: 1}, st)
		})
	}
}

// TestKeptLocksKeepTheOrder: waiters keep their places while a lock that was handed over is kept, even if a slow process
// hands it on.
func TestKeptLocksKeepTheOrder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SetNXPX", "Semaphore"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := faultproxy.New(t, s.Network(), s.Addr())
			slow := redis.NewClient(p.Options())
			t.Cleanup(func() { _ = slow.Close() })
			one, err := everyStrategy[name](slow, patience, redlatch.WithMinHold(50*time.Millisecond))
			require.NoError(t, err)
			two, err := everyStrategy[name](s.Client(t), patience, redlatch.WithMinHold(50*time.Millisecond))
			require.NoError(t, err)
			holder := mustLock(t, two, "k")
			order := make(chan int)
			for i := range 6 {
				waiter := waitInLine(t, []redlatch.Locker{one, two}[i%2], "k", alone)
				go func() { // ends when it was served
					lock := <-waiter
					order <- i
					_ = lock.Unlock(context.Background())
				}()
			}
			p.Delay(8 * time.Millisecond)
			require.NoError(t, holder.Unlock(t.Context()))
			for i := range 6 {
				require.Equal(t, i, <-order)
			}
		})
	}
}

// TestMinHoldOutlastsAnOutage: the first send of the acquire gets no reply, a resend is granted, and
// the release gets no reply. What releases a late acquire then does not cut the minimum hold short.
func TestMinHoldOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for name, strategy := range holding {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const hold, timeout = 3 * time.Second, 500 * time.Millisecond
			direct, p, _ := behindProxy(t)
			o := p.Options()
			o.ReadTimeout = timeout / 5 // then the acquire is sent again
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			l, err := strategy(client, redlatch.WithOpTimeout(timeout), redlatch.WithMinHold(hold), redlatch.WithTTL(time.Minute))
			require.NoError(t, err)
			var begin time.Time
			var lock *redlatch.Lock
			for tries := 0; lock == nil; tries++ {
				locktest.LockSoon(t, l, fmt.Sprint("warm", tries))
				p.SilenceOpen()
				begin = time.Now()
				if lock, err = l.TryLock(t.Context(), "k"); err != nil {
					require.Less(t, tries, 10, err)
					p.HealDropping()
					gone(t, direct, "k")
				}
			}
			p.Silence()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
			<-time.After(timeout + timeout/2) // the release continues for as long again
			p.HealDropping()
			gone(t, direct, "k")
			require.GreaterOrEqual(t, time.Since(begin), hold)
		})
	}
}

// TestKeptPermitHidesNoHolder: Inspect names a holder, though the min hold of another permit ends sooner.
func TestKeptPermitHidesNoHolder(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		l := newSemaphore(t, s.Client(t), 2)
		require.NoError(t, mustLock(t, l, "k", redlatch.WithMinHold(time.Minute)).Unlock(t.Context()))
		holder := mustLock(t, l, "k", redlatch.WithTTL(time.Hour))
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, holder.Token(), st.Token)
		require.Equal(t, 2, st.Holders)
		require.Greater(t, st.TTL, 50*time.Minute)
	})
}
