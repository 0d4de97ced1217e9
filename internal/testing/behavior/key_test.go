package behavior_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestRefusalsHaveTheKeyOfTheCaller: without the prefix, of a first attempt, of a wait, and of a
// caller of the same Locker. So do errors about a key that cannot be locked.
func TestRefusalsHaveTheKeyOfTheCaller(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		var events heard
		l, prefix := w.locker(t, redlatch.WithHooks(redlatch.Hooks{Waiting: events.add})), redlatch.WithKeyPrefix("app:")
		if w.name == "Migration" {
			l, prefix = w.locker(t, prefix, redlatch.WithHooks(redlatch.Hooks{Waiting: events.add})), alone
		}
		lock := mustLock(t, l, "k", prefix)
		_, tried := l.TryLock(t.Context(), "k", prefix)
		_, waited := l.Lock(t.Context(), "k", prefix, redlatch.WithMaxWait(time.Second))
		_, separate := l.Lock(t.Context(), "k", prefix, redlatch.WithMaxWait(time.Second), redlatch.WithTTL(time.Minute))
		for _, err := range []error{tried, waited, separate} {
			var held *redlatch.HeldError
			require.ErrorAs(t, err, &held)
			require.Equal(t, "k", held.Key)
			require.NotContains(t, err.Error(), "app:")
		}
		require.NotEmpty(t, events.all())
		for _, e := range events.all() {
			var held *redlatch.HeldError
			require.ErrorAs(t, e.Err, &held)
			require.Equal(t, "k", held.Key)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	for prefix, want := range map[string]string{"app:": `key "a}": with a }`, "a}pp:": `WithKeyPrefix("a}pp:"): key "a": with a }`} {
		key := map[string]string{"app:": "a}", "a}pp:": "a"}[prefix]
		_, err := newLocker(t, cluster, redlatch.WithKeyPrefix(prefix)).TryLock(t.Context(), key)
		requireOnly(t, err, redlatch.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	_, err := newLocker(t, cluster, redlatch.WithKeyPrefix("{app}:")).TryLock(t.Context(), "redlatch:fence")
	require.ErrorContains(t, err, `key "redlatch:fence": the fences`)
}
