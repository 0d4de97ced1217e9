package node

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestRepeatsAreBounded: while a server is dead, a node holds 10,000 calls that nobody waits for at
// most. They are sent when the server is back.
func TestRepeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 10_000
		var well atomic.Bool
		var sent atomic.Int64
		n := answered(t, func(each commands) error {
			if !well.Load() {
				return errDial
			}
			sent.Add(int64(len(each)))
			return nil
		})
		for range 3 * calls {
			c := within(Command("del"), time.Second)
			c.Insists = true
			n.Post(t.Context(), c)
		}
		time.Sleep(30 * time.Second)
		n.mu.Lock()
		require.Len(t, n.looks, calls)
		n.mu.Unlock()
		well.Store(true)
		time.Sleep(3 * lastPause)
		require.EqualValues(t, calls, sent.Load())
		requireIdle(t, n)
	})
}

// TestRepeatKeepsNothingOfItsCaller: neither what its token is a part of, nor its ctx. It has the
// words of the first send.
func TestRepeatKeepsNothingOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type lock struct {
			_     [1 << 16]byte // so that it is collected by itself
			token string
		}
		var last atomic.Value                                                                          // commands
		n := answered(t, nil, hook(func(_ context.Context, cmds []redis.Cmder, _ func() error) error { // unlike a fake it keeps nothing
			last.Store(said(cmds))
			return io.EOF
		}))
		held := func() (token, ctx weak.Pointer[lock]) {
			l, value := &lock{token: "secret"}, new(lock)
			c := within(Eval(increase, 1, "k", &l.token), time.Second)
			c.Insists = true
			got := reply(c)
			n.Post(context.WithValue(t.Context(), lock{}, value), c)
			require.Error(t, (<-got).Err)
			return weak.Make(l), weak.Make(value)
		}
		token, ctx := held()
		time.Sleep(10 * time.Second)
		runtime.GC()
		require.Nil(t, token.Value())
		require.Nil(t, ctx.Value())
		require.Equal(t, commands{{"evalsha", increase.sha.(string), "1", "k", "secret"}}, last.Load())
		time.Sleep(insistFor)
		requireIdle(t, n)
	})
}
