package system_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestPlainClientsExcludeAndAreExcluded: SETNX with EXPIRE, and SET NX EX, share a key with
// SetNXPX. While they hold the key, SetNXPX is refused and leaves the key as it is. While SetNXPX
// holds the key, they are refused.
func TestPlainClientsExcludeAndAreExcluded(t *testing.T) {
	withPlainClients(t, func(t *testing.T, s *locktest.Site, foreign *plain, l redlatch.Locker) {
		require.True(t, foreign.tryLock(t))
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Equal(t, foreign.value, s.Direct.Get(t.Context(), "k").Val())
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, foreign.value, st.Token)
		require.LessOrEqual(t, st.TTL, shortTTL*time.Second)
		require.True(t, foreign.looks(t))
		foreign.del(t)

		lock := locktest.MustLock(t, l, "k")
		require.False(t, foreign.tryLock(t))
		require.NoError(t, lock.Unlock(t.Context()))
		require.True(t, foreign.tryLock(t), "our Unlock leaves the key free")
	})
}

// TestWaitersFollowPlainClients: no message announces their DEL or their crash. A waiter notices a DEL
// by itself within about a second, and a crash when the TTL has passed.
func TestWaitersFollowPlainClients(t *testing.T) {
	withPlainClients(t, func(t *testing.T, s *locktest.Site, foreign *plain, l redlatch.Locker) {
		for name, end := range map[string]func(){
			"released": func() { foreign.del(t) },
			"crashed":  func() {},
		} {
			require.True(t, foreign.tryLock(t), name)
			got := locktest.WaitInLine(t, l, "k")
			end()
			begin := time.Now()
			lock := <-got
			require.NotNil(t, lock, name)
			require.Less(t, time.Since(begin), s.Within(1500*time.Millisecond), name)
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestQueueLeavesPlainClientsNoGap: a lock with a waiter is handed on and never free. So clients that
// poll get it only when none of our waiters queues.
func TestQueueLeavesPlainClientsNoGap(t *testing.T) {
	withPlainClients(t, func(t *testing.T, _ *locktest.Site, foreign *plain, l redlatch.Locker) {
		lock := locktest.MustLock(t, l, "k")
		got := locktest.WaitInLine(t, l, "k")
		require.NoError(t, lock.Unlock(t.Context()))
		require.False(t, foreign.tryLock(t))
		lock = <-got
		require.NotNil(t, lock)
		require.NoError(t, lock.Unlock(t.Context()))
		require.True(t, foreign.tryLock(t))
	})
}

// TestPlainClientsTakeTurnsWithUs counts in a critical section, which only one owner at a time may
// enter.
func TestPlainClientsTakeTurnsWithUs(t *testing.T) {
	const each = 20
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		var total int // written under the lock alone
		var inside atomic.Int32
		var wg sync.WaitGroup
		critical := func() {
			if inside.Add(1) != 1 {
				t.Error("two owners")
			}
			total++
			inside.Add(-1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		members := 0
		member := func(section func() error) {
			members++
			wg.Go(func() {
				for range each {
					if err := section(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 2 {
			for _, newPlain := range plainClients {
				foreign := newPlain(s.Client(t), "k")
				foreign.ttl = 60 // nobody is too slow here
				member(func() error { return foreign.section(ctx, critical) })
			}
			l := locktest.SetNXPX(t, s.Client(t), redlatch.WithTTL(time.Minute))
			member(func() error {
				return redlatch.Do(ctx, l, "k", func(context.Context, *redlatch.Lock) error {
					critical()
					return nil
				})
			})
		}
		wg.Wait()
		require.Equal(t, members*each, total)
	})
}

// TestPlainClientDeletesOurLock: a plain client that was too slow deletes the lock of the next owner.
// A check does not prevent that, since the check and DEL are two commands. Then there are two owners
// until the first one notices: by its next renewal, or by Unlock if it is not renewed. The second has
// the higher fence and is left alone.
func TestPlainClientDeletesOurLock(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{
		"renewed":     {redlatch.WithTTL(3 * time.Second)},
		"not renewed": {redlatch.WithoutRenewal()},
	} {
		t.Run(name, func(t *testing.T) {
			withPlainClients(t, func(t *testing.T, _ *locktest.Site, foreign *plain, l redlatch.Locker) {
				losses := make(chan redlatch.Event, 10)
				hooks := redlatch.WithHooks(redlatch.Hooks{Lost: func(e redlatch.Event) { losses <- e }})

				require.True(t, foreign.tryLock(t))
				require.True(t, foreign.looks(t)) // and then it is paused for longer than its TTL
				lock, err := l.Lock(t.Context(), "k", append(opts, hooks)...)
				require.NoError(t, err)
				foreign.del(t)

				next := locktest.MustLock(t, l, "k")
				require.NoError(t, lock.Err(), "it cannot know yet")
				require.Greater(t, next.Fence(), lock.Fence())
				if name == "renewed" {
					working := lock.Context(t.Context())
					<-working.Done()
					require.ErrorIs(t, context.Cause(working), redlatch.ErrLost)
				}
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				lost := <-losses
				require.ErrorIs(t, lost.Err, redlatch.ErrLost)
				require.Equal(t, lock.Fence(), lost.Fence)
				require.Empty(t, losses)

				require.NoError(t, next.Err())
				require.NoError(t, next.Unlock(t.Context()), "the lock of the second owner is its own")
			})
		})
	}
}

// TestPlainKeyWithoutATTLIsHeldForEver: a client that sends SETNX and EXPIRE one by one leaves such
// a key if it crashes in between. Inspect shows it, and only a DEL by hand frees it.
func TestPlainKeyWithoutATTLIsHeldForEver(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		l := locktest.SetNXPX(t, s.Client(t))
		require.NoError(t, s.Direct.Do(t.Context(), "SETNX", "k", "locked").Err())
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, st.Held)
		require.Negative(t, st.TTL)
		require.EqualValues(t, 1, s.Direct.Del(t.Context(), "k").Val())
		require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	})
}

// TestPlainLockCanBeAdopted: its value is a token like any other, and the adopted lock has a fence.
func TestPlainLockCanBeAdopted(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		foreign := plainClients["SET NX EX, GET and DEL"](s.Client(t), "k")
		l := locktest.SetNXPX(t, s.Client(t))
		require.True(t, foreign.tryLock(t))
		renewed := make(chan struct{}, 100)
		lock, err := l.Adopt(t.Context(), "k", foreign.value, redlatch.WithTTL(3*time.Second),
			redlatch.WithHooks(redlatch.Hooks{Renewed: func(redlatch.Event) { renewed <- struct{}{} }}))
		require.NoError(t, err)
		require.Positive(t, lock.Fence())
		for range 2 { // for longer than its first TTL
			<-renewed
		}
		require.NoError(t, lock.Err())
		require.True(t, foreign.looks(t))
		require.NoError(t, lock.Unlock(t.Context()))
		require.False(t, foreign.looks(t))
	})
}
