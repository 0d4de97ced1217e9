package behavior_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/ahead"
)

// inspected is the status of k.
func inspected(t *testing.T, l redlatch.Locker) redlatch.Status {
	t.Helper()
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	return st
}

// TestInspectNamesTheWaiters: with how long each has waited, the longest wait first.
func TestInspectNamesTheWaiters(t *testing.T) {
	test := func(t *testing.T, w *world) {
		l := w.locker(t)
		require.Nil(t, inspected(t, l).Queue)
		lock := mustLock(t, l, "k", longTTL)
		require.Nil(t, inspected(t, l).Queue)
		names := []string{"first", "second", "third"}
		var line []<-chan *redlatch.Lock
		begin := time.Now()
		for _, name := range names {
			line = append(line, waitInLine(t, w.locker(t, redlatch.WithOwner(name)), "k"))
			time.Sleep(20 * time.Millisecond)
		}
		st := inspected(t, l)
		require.Equal(t, 3, st.Waiters)
		require.Len(t, st.Queue, 3)
		for i, waiter := range st.Queue {
			require.Equal(t, names[i], waiter.Owner)
			require.GreaterOrEqual(t, waiter.Waited, time.Duration(3-i)*20*time.Millisecond-time.Millisecond)
			require.Less(t, waiter.Waited, time.Since(begin)+time.Millisecond)
		}

		require.NoError(t, lock.Unlock(t.Context()))
		first := await(t, line[0], "its turn")
		st = inspected(t, l)
		require.Equal(t, "first", st.Owner)
		require.WithinRange(t, st.Since, begin.Add(-time.Millisecond), begin.Add(time.Since(begin)), "its call began then")
		require.Equal(t, []string{"second", "third"}, []string{st.Queue[0].Owner, st.Queue[1].Owner})
		require.NoError(t, first.Unlock(t.Context()))
		for _, next := range line[1:] {
			require.NoError(t, await(t, next, "its turn").Unlock(t.Context()))
		}
	}
	t.Run("miniredis", func(t *testing.T) { onEvery(t, queues, test) })
	t.Run("redis", func(t *testing.T) { onRedis(t, queues, test) })
}

// TestInspectNamesAHundredWaiters: it counts the others.
func TestInspectNamesAHundredWaiters(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		queue := map[string]string{"SetNXPX": "{k}:queue:k", "Semaphore": "{k}:permits:k", "Write": "{k}:permits:k"}[w.name]
		token := string(mustLock(t, w.locker(t), "k").Token())
		for i := range 150 {
			entry := redis.Z{Score: float64(ahead.Now().UnixMicro() + int64(i) - 1e6), Member: fmt.Sprintf("2000 away w %d/%s", i, token[len(token)-36:])}
			require.NoError(t, w.Direct.ZAdd(t.Context(), queue, entry).Err())
		}
		require.NoError(t, w.Direct.ZAdd(t.Context(), queue, redis.Z{Score: 1, Member: "odd"}, redis.Z{Score: 1e18, Member: "ahead"}).Err())
		st := inspected(t, w.locker(t))
		require.Equal(t, 152, st.Waiters)
		require.Len(t, st.Queue, 100)
		require.Equal(t, "", st.Queue[0].Owner)
		require.Equal(t, "w 0", st.Queue[1].Owner)
		require.Equal(t, "w 98", st.Queue[99].Owner)
	})
}

// TestMigrationNamesTheWaitersOfBothSides: the longest wait first.
func TestMigrationNamesTheWaitersOfBothSides(t *testing.T) {
	onEvery(t, map[string]maker{"Migration": everyLocker()["Migration"]}, func(t *testing.T, w *world) {
		from, to := newLocker(t, w.Client(t)), newLocker(t, w.Client(t), redlatch.WithKeyPrefix("v2:"))
		held := []*redlatch.Lock{mustLock(t, from, "k"), mustLock(t, to, "k")}
		var line []<-chan *redlatch.Lock
		for i, l := range []redlatch.Locker{to, from, to} {
			line = append(line, waitInLine(t, l, "k", alone, redlatch.WithOwner(fmt.Sprint(i))))
			time.Sleep(time.Millisecond)
		}
		st := inspected(t, w.locker(t))
		require.Equal(t, 3, st.Waiters)
		for i, waiter := range st.Queue {
			require.Equal(t, fmt.Sprint(i), waiter.Owner)
		}
		require.Len(t, st.Queue, 3)
		for i, lock := range []*redlatch.Lock{held[1], held[0]} {
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, await(t, line[i], "its turn").Unlock(t.Context()))
		}
		require.NoError(t, await(t, line[2], "its turn").Unlock(t.Context()))
	})
}

// requireHolding requires that Status.Holding has these locks, in this order.
func requireHolding(t *testing.T, st redlatch.Status, locks ...*redlatch.Lock) {
	t.Helper()
	require.Len(t, st.Holding, len(locks))
	for i, h := range st.Holding {
		require.Equal(t, locks[i].Token(), h.Token)
		require.Equal(t, strings.HasPrefix(string(h.Token), "!"), h.Writes)
		require.Equal(t, ownerIn(strings.TrimPrefix(string(h.Token), "!")), h.Owner)
		require.WithinRange(t, h.Since, time.Now().Add(-time.Hour), time.Now())
		require.WithinRange(t, locks[i].Until(), time.Now(), time.Now().Add(h.TTL), "Redis gives it away later")
	}
}

// TestRefusalHasWhatIsKnownOfTheHolder: who it is, since when it holds the key, and for how long,
// also if it is a caller of the same Locker.
func TestRefusalHasWhatIsKnownOfTheHolder(t *testing.T) {
	onEvery(t, map[string]maker{"SetNXPX": everyStrategy["SetNXPX"], "Redlock": everyStrategy["Redlock"]}, func(t *testing.T, w *world) {
		l, begin := w.locker(t, longTTL, redlatch.WithOwner("me")), time.Now()
		lock := granted(l.Lock(t.Context(), "k"))
		time.Sleep(time.Second)
		var waits heard
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Waiting: waits.add}))
		require.Len(t, waits.all(), 1)
		for name, refusal := range map[string]error{"the error": err, "Hooks.Waiting": waits.all()[0].Err} {
			var held *redlatch.HeldError
			require.ErrorAs(t, refusal, &held, name)
			require.Equal(t, "me", held.Owner, name)
			require.WithinDuration(t, begin, held.Since, time.Millisecond, name)
			require.InDelta(t, time.Until(lock.Until()), held.TTL, float64(time.Minute), name)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestKeyWithoutTTLNeverEnds: it is no lock of redlatch, and its TTL is negative.
func TestKeyWithoutTTLNeverEnds(t *testing.T) {
	onEvery(t, map[string]maker{"SetNXPX": everyStrategy["SetNXPX"], "Redlock": everyStrategy["Redlock"]}, func(t *testing.T, w *world) {
		l := w.locker(t)
		require.NoError(t, w.Direct.Set(t.Context(), "k", "foreign", 0).Err())
		st := inspected(t, l)
		require.True(t, st.Held)
		require.Negative(t, st.TTL)
		_, err := l.TryLock(t.Context(), "k")
		var held *redlatch.HeldError
		require.ErrorAs(t, err, &held)
		require.LessOrEqual(t, held.TTL, time.Duration(0), "nothing is left of it that would end")
	})
}

// TestInspectNamesTheHolders: of a semaphore, the earliest first, each with its token. One of them
// can be released by it, and the others stay. A permit that is kept has no holder.
func TestInspectNamesTheHolders(t *testing.T) {
	test := func(t *testing.T, w *world) {
		of := func(name string, opts ...redlatch.Option) redlatch.Locker {
			return made(redlatch.NewSemaphore(w.Client(t), 200, append(opts, redlatch.WithOwner(name))...))
		}
		l := of("")
		require.Nil(t, inspected(t, l).Holding)
		var locks []*redlatch.Lock
		for i, name := range []string{"first", "second", "third"} {
			locks = append(locks, mustLock(t, of(name, redlatch.WithTTL(time.Duration(3-i)*time.Minute)), "k"))
			time.Sleep(2 * time.Millisecond)
		}
		st := inspected(t, l)
		requireHolding(t, st, locks...)
		require.Equal(t, "third", st.Owner, "its lease ends first")
		require.NoError(t, granted(l.Adopt(t.Context(), "k", st.Holding[1].Token, redlatch.WithoutRenewal())).Unlock(t.Context()))
		requireHolding(t, inspected(t, l), locks[0], locks[2])
		require.NoError(t, locks[2].UnlockAfter(t.Context(), time.Second))
		st = inspected(t, l)
		requireHolding(t, st, locks[0])
		require.Equal(t, 1, st.Holders)
		for range 120 {
			mustLock(t, l, "k")
		}
		require.Len(t, inspected(t, l).Holding, 100)
		require.Equal(t, 121, inspected(t, l).Holders)

		locks = []*redlatch.Lock{mustLock(t, of("kept"), "kept"), mustLock(t, of("held"), "kept")}
		require.NoError(t, locks[0].UnlockAfter(t.Context(), time.Hour))
		st, err := l.Inspect(t.Context(), "kept")
		require.NoError(t, err)
		requireHolding(t, st, locks[1])
		require.Equal(t, []any{true, false, 1, "held"}, []any{st.Held, st.Kept, st.Holders, st.Owner})
		require.NoError(t, locks[1].Unlock(t.Context()))
		st, err = l.Inspect(t.Context(), "kept")
		require.NoError(t, err)
		require.Equal(t, []any{false, true, 0, ""}, []any{st.Held, st.Kept, st.Holders, st.Owner})
		require.Greater(t, st.TTL, 50*time.Minute)
		require.Nil(t, inspected(t, newLocker(t, w.Client(t), redlatch.WithKeyPrefix("lock:"))).Holding)
	}
	kinds := map[string]maker{"Semaphore": everyStrategy["Semaphore"]}
	t.Run("miniredis", func(t *testing.T) { onEvery(t, kinds, test) })
	t.Run("redis", func(t *testing.T) { onRedis(t, kinds, test) })
}

// TestForgetEndsEachKeptPermit: so as many can hold the semaphore as before.
func TestForgetEndsEachKeptPermit(t *testing.T) {
	onEvery(t, map[string]maker{"Semaphore": everyStrategy["Semaphore"]}, func(t *testing.T, w *world) {
		l := made(redlatch.NewSemaphore(w.Client(t), 3))
		for range 2 {
			for range 3 {
				require.NoError(t, mustLock(t, l, "k").UnlockAfter(t.Context(), time.Hour))
			}
			require.NoError(t, redlatch.Forget(t.Context(), l, "k"))
			onlyFences(t, w.Direct)
		}
	})
}
