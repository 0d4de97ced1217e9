package redlatch

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestAcquireThatRunsLastIsReleased is rule 4: the client has given up the connection, so nobody learns when the
// acquire is carried out. Here that happens after the clean-up has found nothing.
func TestAcquireThatRunsLastIsReleased(t *testing.T) {
	t.Parallel()
	short := func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Second, time.Second }
	bound := WithOpTimeout(time.Second)
	one := func(c *redis.Client) (Locker, error) { return NewSetNXPX(c, bound) }
	for name, c := range map[string]struct {
		options func(*redis.Options)
		locker  func(*redis.Client) (Locker, error)
		ends    bool // the ctx of the call can end
	}{
		"carried out by its caller": {short, one, false},
		"with a ctx that can end":   {short, one, true},
		"with deadlines from ctx":   {func(o *redis.Options) { o.ContextTimeoutEnabled = true }, one, true},
		"on a legacy key":           {short, func(c *redis.Client) (Locker, error) { return NewLegacySetNX(c, bound) }, true},
		"on a quorum": {
			short, func(c *redis.Client) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}, bound) }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			o := s.Options()
			c.options(o)
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			on := &onItsWay{sent: make(chan []any, 1), cleaned: make(chan struct{}, 1)}
			client.AddHook(redistest.OnProcess(on.ProcessHook))
			l, err := c.locker(client)
			require.NoError(t, err)
			ctx := context.Background()
			if c.ends {
				ctx = t.Context()
			}
			_, err = l.TryLock(ctx, "k")
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrNotAcquired)
			<-on.cleaned
			direct := s.Client(t)
			sent := <-on.sent
			for _, source := range []string{acquireSource, quorumAcquireSource, legacyAcquireSource} {
				require.NoError(t, direct.ScriptLoad(t.Context(), source).Err())
			}
			reply, err := direct.Do(t.Context(), sent...).Result()
			require.NoError(t, err)
			require.IsType(t, int64(0), reply, "it acquires the key")
			require.Eventually(t, func() bool { return direct.Exists(t.Context(), "k").Val() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}

// onItsWay does not send the first script. It reports the words of that script on sent, and fails when ctx ends. It
// reports on cleaned when the next script has been carried out.
type onItsWay struct {
	scripts atomic.Int64
	sent    chan []any
	cleaned chan struct{}
}

func (h *onItsWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		if h.scripts.Add(1) == 1 {
			words := make([]any, len(cmd.Args()))
			for i, word := range cmd.Args() {
				words[i] = word
				if s, ok := word.(*string); ok {
					words[i] = *s
				}
			}
			h.sent <- words
			<-ctx.Done()
			return os.ErrDeadlineExceeded
		}
		defer func() {
			select {
			case h.cleaned <- struct{}{}:
			default:
			}
		}()
		return next(ctx, cmd)
	}
}

// TestLateAcquireIsLeftToUnlock is rule 7: while the lease lasts, the key that a late acquire took is left for Unlock
// to release. After the end of the lease, a clean-up releases the key, even if the acquire is carried out only then.
func TestLateAcquireIsLeftToUnlock(t *testing.T) {
	t.Parallel()
	m, late, state := lateAcquire(t, held)
	late(gaveUpReading)
	late(node.Reply{Value: int64(7), Overtaken: true})
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"), "it is held")

	state.become(over)
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
	require.NoError(t, m.Set("k", "mine"))
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
}

// TestAcquireThatRunsAfterItsReleaseIsReleased is rule 4: the release of an attempt finds nothing, because the
// acquire arrives only after it.
func TestAcquireThatRunsAfterItsReleaseIsReleased(t *testing.T) {
	t.Parallel()
	m, client, _ := oneNode(t)
	l, err := NewSetNXPX(client, WithTTL(time.Hour))
	require.NoError(t, err)
	require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
	var scripts atomic.Int64
	let, done := make(chan struct{}), make(chan struct{})
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() != "evalsha" || scripts.Add(1) != 1 {
				return next(ctx, cmd)
			}
			defer close(done)
			<-let
			return next(context.Background(), cmd) // go-redis ignores ctx once it has sent a command
		}
	}))
	_, err = l.TryLock(t.Context(), "k", WithOpTimeout(500*time.Millisecond))
	require.ErrorContains(t, err, "no reply within 500ms")
	require.False(t, m.Exists("k"))
	close(let)
	<-done
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
}
