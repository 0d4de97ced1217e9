//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"cmp"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// lateExtensions delays the replies to the first scripts that do not acquire, up to a number of
// them.
func lateExtensions(most int) redis.Hook {
	var mu sync.Mutex  // guards the variables below
	var acquire string // the first script
	late := func(sha string) bool {
		mu.Lock()
		defer mu.Unlock()
		acquire = cmp.Or(acquire, sha)
		if sha == acquire || most == 0 {
			return false
		}
		most--
		return true
	}
	return redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() == "evalsha" && late(cmd.Args()[1].(string)) {
				defer time.Sleep(1300 * time.Millisecond)
			}
			return next(ctx, cmd)
		}
	})
}

// TestLateFirstExtensionCostsNobodyTheRun: a lock is handed to run, and the reply to its first
// extension comes after the op timeout. Run tries again. If no extension is answered in time until
// -timeout, nothing ran, so the min hold does not keep others out.
func TestLateFirstExtensionCostsNobodyTheRun(t *testing.T) {
	for name, c := range map[string]struct{ late, code int }{"one": {1, 0}, "all": {1000, exitUnavailable}} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				f := &runFlags{ttl: time.Minute, minHold: 20 * time.Second, timeout: 12 * time.Second, key: "k"}
				other := locktest.SetNXPX(t, s.Client(t))
				holder := locktest.MustLock(t, other, "k")
				client := s.Client(t)
				l, err := redlatch.NewSetNXPX(client, f.options(redlatch.Hooks{})...)
				require.NoError(t, err)
				locktest.Warm(t, l)
				client.AddHook(lateExtensions(c.late))
				time.AfterFunc(time.Second, func() { require.NoError(t, holder.Unlock(t.Context())) })
				lock, sig, err := f.acquire(&connection{Locker: l}, make(chan os.Signal), &reporter{})
				require.Zero(t, sig)
				require.Equal(t, c.code, exitOf(err), err)
				if lock != nil {
					require.Greater(t, s.Direct.PTTL(t.Context(), "k").Val(), 50*time.Second)
					require.NoError(t, lock.Unlock(t.Context()))
				}
				time.Sleep(2 * time.Second) // the release has reached Redis
				next, err := other.TryLock(t.Context(), "k")
				require.NoError(t, err, "nothing ran")
				require.NoError(t, next.Unlock(t.Context()))
			})
		})
	}
}

// TestTimeoutBoundsTheWholeWait: another owner holds the lock, or Redis is silent, or the first attempts fail. It also
// bounds the first extension. The error says how long run waited.
func TestTimeoutBoundsTheWholeWait(t *testing.T) {
	const timeout = 5 * time.Second
	healthy := func(*locktest.Tap) {}
	silent := func(tap *locktest.Tap) { tap.Late(30 * time.Second) }
	silentSoon := func(tap *locktest.Tap) { time.AfterFunc(time.Second, func() { silent(tap) }) }
	refusedAtFirst := func(tap *locktest.Tap) {
		tap.Cut()
		time.AfterFunc(time.Second, tap.Heal)
	}
	for name, c := range map[string]struct {
		held  bool
		fault func(*locktest.Tap)
		code  int
		text  string
	}{
		"then held":   {true, refusedAtFirst, exitBusy, `^waited 5s, but Redis was unavailable for the first 1\.\d+s: redlatch: lock "k": waited [34]\.\d+s: the last attempt: held by "`},
		"held":        {true, healthy, exitBusy, `^redlatch: lock "k": waited 5s: the last attempt: held by "`},
		"then silent": {true, silentSoon, exitUnavailable, `^redlatch: lock "k": waited 5s: the last attempt: no reply`},
		"silent":      {false, silent, exitUnavailable, "^waited 5s: .*: no reply"},
		"refused":     {false, (*locktest.Tap).Cut, exitUnavailable, "^waited 5s: .*: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				if c.held {
					locktest.MustLock(t, locktest.SetNXPX(t, s.Client(t)), "k", locktest.LongTTL)
				}
				f := &runFlags{ttl: time.Minute, timeout: timeout, key: "k"}
				client, tap := locktest.Tapped(t, s)
				l, err := redlatch.NewSetNXPX(client, f.options(redlatch.Hooks{})...)
				require.NoError(t, err)
				locktest.Warm(t, l)
				c.fault(tap)
				began := time.Now()
				_, _, err = f.acquire(&connection{Locker: l}, make(chan os.Signal), &reporter{})
				require.WithinDuration(t, began.Add(timeout), time.Now(), 2*time.Millisecond)
				require.Equal(t, c.code, exitOf(err), err)
				require.Regexp(t, c.text, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				tap.Heal()
				time.Sleep(2 * time.Minute) // late replies have come, and releases have reached Redis
			})
		})
	}
}

// TestMinHoldOutlastsACrashOfRun: redlatch is killed while COMMAND runs, and the lock lasts for its
// min hold.
func TestMinHoldOutlastsACrashOfRun(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		p := redlatchRun(t, s.url, []string{"-ttl", "3s", "-min-hold", "1h"}, `echo $$; exec sleep 60`)
		p.group()
		require.NoError(t, p.Process.Kill())
		require.NotZero(t, p.code())
		require.Greater(t, s.client.PTTL(t.Context(), "k").Val(), 50*time.Minute)
	})
}
