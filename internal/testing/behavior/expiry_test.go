package behavior_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestNobodyOvertakesTheQueueWhenAKeyComesFree: however that happens. A process that asks for the
// key all the time is refused. Those who wait are served in the order of arrival, and at once: the
// one who asks has the first of them served.
func TestNobodyOvertakesTheQueueWhenAKeyComesFree(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		const ttl = 10 * time.Second
		begin := time.Now()
		for name, free := range map[string]func(*redlatch.Lock) (after time.Duration){
			"its holder has crashed": func(*redlatch.Lock) time.Duration { return ttl },
			"DEL": func(*redlatch.Lock) time.Duration {
				require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
				return time.Since(begin)
			},
			"a long UnlockAfter": func(lock *redlatch.Lock) time.Duration {
				require.NoError(t, lock.UnlockAfter(t.Context(), time.Minute))
				return time.Minute + time.Since(begin)
			},
		} {
			begin = time.Now()
			lock := mustLock(t, w.locker(t, redlatch.WithoutRenewal(), redlatch.WithTTL(ttl)), "k")
			first, second := waitInLine(t, w.locker(t), "k"), waitInLine(t, w.locker(t), "k")
			time.Sleep(time.Second)
			after, eager := free(lock), w.locker(t)
			time.Sleep(after - time.Since(begin) - 50*time.Millisecond)
			for len(first) == 0 {
				_, err := eager.TryLock(t.Context(), "k")
				requireOnly(t, err, redlatch.ErrNotAcquired, name, "overtaken")
				time.Sleep(time.Millisecond)
			}
			require.InDelta(t, after, time.Since(begin), float64(5*time.Millisecond), name)
			require.Empty(t, second, name)
			require.NoError(t, (<-first).Unlock(t.Context()))
			require.NoError(t, await(t, second, name).Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
	})
}

// TestFreeKeyIsServedToThoseWhoListen: an entry of a process that is gone is dropped. One that may
// listen has the key for its claim, as after a release, and then the next caller gets it. The fence
// of a grant is above those that nobody took up.
func TestFreeKeyIsServedToThoseWhoListen(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		queue := "{k}:queue:k"
		if w.name != "SetNXPX" {
			queue = "{k}:permits:k"
		}
		for name, c := range map[string]struct {
			channel string
			claim   time.Duration
		}{"gone": {"redlatch:nobody", 0}, "frozen, or gone from a Cluster": {"-redlatch:nobody", time.Second}} {
			fence := granted(w.locker(t).TryLock(t.Context(), "other"))
			entry := redis.Z{Score: 1, Member: "1000 " + c.channel + " somebody"}
			require.NoError(t, w.Direct.ZAdd(t.Context(), queue, entry).Err())
			begin := time.Now()
			lock, err := w.locker(t).TryLock(t.Context(), "k")
			if c.claim > 0 {
				requireOnly(t, err, redlatch.ErrNotAcquired, name)
				lock, err = w.locker(t).Lock(t.Context(), "k")
			}
			require.NoError(t, err, name)
			require.InDelta(t, c.claim, time.Since(begin), float64(5*time.Millisecond), name)
			require.Greater(t, lock.Fence(), fence.Fence()+64*uint64(c.claim/time.Second), name)
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, fence.Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
	})
}

// TestWaiterTakesAFreeKeyOfAFullRedis: the key comes free without a release. The first in the queue
// gets it when it looks, and the next one by the release.
func TestWaiterTakesAFreeKeyOfAFullRedis(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		mustLock(t, w.locker(t, redlatch.WithoutRenewal()), "k")
		first, second := waitInLine(t, w.locker(t), "k"), waitInLine(t, w.locker(t), "k")
		require.NoError(t, w.Direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
		require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
		require.NoError(t, await(t, first, "it looks").Unlock(t.Context()))
		require.NoError(t, await(t, second, "handed on").Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}

// TestFullRedisEndsNoLock: renewals, Extend and Unlock work, although a free key cannot be acquired.
func TestFullRedisEndsNoLock(t *testing.T) {
	onRedis(t, withReaders(), func(t *testing.T, w *world) {
		var renewed atomic.Int64
		l := w.locker(t, redlatch.WithTTL(4*time.Second), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(context.Context, redlatch.Event) { renewed.Add(1) },
		}))
		lock := mustLock(t, l, "k")
		require.NoError(t, w.Direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
		eventually(t, "a renewal", func() bool { return renewed.Load() > 0 || lock.Err() != nil })
		require.NoError(t, lock.Err())
		until := lock.Until()
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.True(t, lock.Until().After(until))
		_, err := l.TryLock(t.Context(), "free")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.NoError(t, lock.Unlock(t.Context()))
		gone(t, w.Direct, "k")
	})
}
