package behavior_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// everyScript has a hook of client see each script before it is sent.
func everyScript(client *redis.Client, see func(ctx context.Context, cmd redis.Cmder)) {
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				see(ctx, cmd)
			}
			return next(ctx, cmd)
		}
	}))
}

// TestHookOfTheClientThatPanicsIsAnOutage: the process lives, and the error and Hooks.Trouble say what panicked and where. A lock
// that is held meanwhile is renewed when the hook works again.
func TestHookOfTheClientThatPanicsIsAnOutage(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		var broken atomic.Bool
		var h heard
		client := w.Client(t)
		everyScript(client, func(context.Context, redis.Cmder) {
			if broken.Load() {
				panic("no audit log")
			}
		})
		l := w.over(t, client, redlatch.WithHooks(redlatch.Hooks{Trouble: h.add}))
		held := mustLock(t, l, "held")
		broken.Store(true)
		lock, err := l.TryLock(t.Context(), "k", redlatch.WithOpTimeout(100*time.Millisecond))
		require.Nil(t, lock)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "no audit log (at behavior_test.TestHookOfTheClientThatPanics")
		require.NotContains(t, err.Error(), "\n")
		require.Equal(t, "panic", h.all()[0].Cause)
		broken.Store(false)
		require.NoError(t, held.Extend(t.Context(), time.Hour))
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
	})
}
