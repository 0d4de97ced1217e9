package behavior_test

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
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

// TestHookOfTheClientThatPanicsIsAnOutage: the process lives, and the error and Hooks.Trouble say
// what panicked and where. A lock that is held meanwhile is renewed when the hook works again.
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
		require.Equal(t, redlatch.CausePanic, h.all()[0].Cause)
		broken.Store(false)
		require.NoError(t, held.Extend(t.Context(), time.Hour))
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// TestHooksOfTheClientSeeStringsAndNumbersAndNoToken: the words of a command are strings and
// integers, and the fourth is the key. What has a token is a pointer, so that a hook that prints
// words, as tracers do, prints no token.
func TestHooksOfTheClientSeeStringsAndNumbersAndNoToken(t *testing.T) {
	token := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		var sent, secret atomic.Int64
		client := w.Client(t)
		everyScript(client, func(_ context.Context, cmd redis.Cmder) {
			sent.Add(1)
			assert.Equal(t, "k", cmd.Args()[3])
			assert.NotRegexp(t, token, cmd.String())
			for _, word := range cmd.Args() {
				switch word := word.(type) {
				case string, int, int64, uint64:
				case *string:
					if token.MatchString(*word) {
						secret.Add(1)
					}
				default:
					assert.Fail(t, "what no hook expects", "%T", word)
				}
			}
		})
		l := w.over(t, client)
		lock := mustLock(t, l, "k")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		got := make(chan *redlatch.Lock, 1)
		locking(t, got, l, "k", alone) // in a line of its own, which queues
		time.Sleep(5 * time.Second)    // it looks
		adopted, err := l.Adopt(t.Context(), "k", lock.Token())
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context()))
		next := await(t, got, "the next lock")
		_, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		if _, keeps := keeping[w.name]; keeps {
			require.NoError(t, next.UnlockAfter(t.Context(), 10*time.Second))
		} else {
			require.NoError(t, next.Unlock(t.Context()))
		}
		require.Greater(t, sent.Load(), int64(8))
		require.Greater(t, secret.Load(), int64(8))
	})
}

// TestHookOfTheClientMayWriteAPrefix into the keys of a command: each send has it once, also those
// that follow a refusal or a broken connection.
func TestHookOfTheClientMayWriteAPrefix(t *testing.T) {
	onEvery(t, everyStrategy, func(t *testing.T, w *world) {
		client := w.Client(t)
		everyScript(client, func(_ context.Context, cmd redis.Cmder) {
			args := cmd.Args()
			for i := 3; i < 3+args[2].(int); i++ {
				args[i] = "app:" + args[i].(string)
			}
		})
		link := linkOf(t, client)
		l := w.over(t, client)
		for range 3 {
			lock := mustLock(t, l, "k") // the first asks for the time, and so does one an hour later
			lost := link.lose(2)
			require.NoError(t, lock.Extend(t.Context(), time.Hour))
			require.EqualValues(t, 2, lost.Load())
			link.heal()
			require.NoError(t, w.Direct.ScriptFlush(t.Context()).Err())
			adopted, err := l.Adopt(t.Context(), "k", lock.Token())
			require.NoError(t, err)
			require.NoError(t, w.Direct.ScriptFlush(t.Context()).Err())
			require.NoError(t, adopted.Unlock(t.Context()))
			require.NoError(t, w.Direct.ScriptFlush(t.Context()).Err())
			time.Sleep(2 * time.Hour)
		}
		lock := mustLock(t, l, "k")
		for _, key := range w.Direct.Keys(t.Context(), "*").Val() {
			require.True(t, strings.HasPrefix(key, "app:"), key)
			require.Equal(t, 1, strings.Count(key, "app:"), key)
		}
		require.NoError(t, lock.Unlock(t.Context()))
	})
}
