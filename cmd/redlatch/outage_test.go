//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"io"
	"log"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

const riding = "redlatch: continuing despite an error: "

// TestRunRidesOutAnOutage: Redis is unavailable from the first attempt on. stderr says so once.
func TestRunRidesOutAnOutage(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		for name, fail := range map[string]func(*faultproxy.Proxy){"refuses": (*faultproxy.Proxy).Refuse, "is silent": (*faultproxy.Proxy).Silence} {
			t.Run(name, func(t *testing.T) {
				proxy := faultproxy.New(t, s.network, s.addr)
				fail(proxy)
				p := redlatchRun(t, "redis://"+proxy.Addr(), patient, "exit 3")
				locktest.Eventually(t, "reported", func() bool { return p.errors() != "" })
				proxy.Heal()
				require.Equal(t, 3, p.code())
				require.Equal(t, 1, strings.Count(p.errors(), riding), p.errors())
				require.Equal(t, 1, strings.Count(p.errors(), "\n"), p.errors())
				s.isClean(t)
			})
		}
	})
}

// TestOutageEndsAWaitOnlyWithItsTimeout: the status is 69 then, and that of a signal if one ends
// the wait.
func TestOutageEndsAWaitOnlyWithItsTimeout(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	p := redlatchRun(t, nowhere, []string{"-timeout", "2s"}, "echo no")
	require.Equal(t, exitUnavailable, p.code())
	require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
	require.Equal(t, 1, strings.Count(p.errors(), riding), p.errors())
	require.Contains(t, p.errors(), "\nredlatch: ")
	require.Contains(t, p.errors(), "connection refused")
	p.gone()

	p = redlatchRun(t, nowhere, nil, "echo no")
	locktest.Eventually(t, "reported", func() bool { return p.errors() != "" })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), p.code())
}

// TestReasonOfASilenceIsShown: the Sentinels cannot be reached, or the certificate of the server is
// not known. Each error is on one line.
func TestReasonOfASilenceIsShown(t *testing.T) {
	t.Parallel()
	unknown := httptest.NewUnstartedServer(nil)
	unknown.Config.ErrorLog = log.New(io.Discard, "", 0)
	unknown.StartTLS()
	t.Cleanup(unknown.Close)
	for url, reason := range map[string]string{
		"redis+sentinel://127.0.0.1:1,127.0.0.1:2/main":           "all sentinels specified in configuration are unreachable: dial tcp",
		"rediss://" + strings.TrimPrefix(unknown.URL, "https://"): "certificate signed by unknown authority",
	} {
		for _, args := range [][]string{{"status", "k"}, {"run", "-try", "k", "--", "true"}, {"run", "-timeout", "2s", "k", "--", "true"}} {
			t.Run(strings.Join(args, " ")+" says "+reason, func(t *testing.T) {
				t.Parallel()
				locktest.Eventually(t, reason, func() bool { // a busy machine may have no time to find it out
					p := start(t, redlatchCmd(t, url, args...))
					require.Equal(t, exitUnavailable, p.code())
					for line := range strings.SplitSeq(strings.TrimSpace(p.errors()), "\n") {
						require.True(t, strings.HasPrefix(line, "redlatch: "), p.errors())
					}
					return strings.Contains(p.errors(), reason)
				})
			})
		}
	}
}

// TestErrorThatRetryingCannotFixEndsTheWait: the status is 69 at once.
func TestErrorThatRetryingCannotFixEndsTheWait(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	require.NoError(t, s.client.RPush(t.Context(), "k", "x").Err())
	require.Equal(t, exitUnavailable, redlatchRun(t, s.url, nil, "echo no").code())
	require.NoError(t, s.client.ConfigSet(t.Context(), "requirepass", "secret").Err())
	p := redlatchRun(t, s.url, []string{"-try"}, "echo no") // passwords are rotated, so a wait would go on
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), "put the password into the URL")
}

// TestMaxHoldEndsAJobThatHangs: the command gets SIGTERM, and the lock is free for others when it
// has ended.
func TestMaxHoldEndsAJobThatHangs(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		begun := time.Now()
		p := redlatchRun(t, s.url, []string{"-max-hold", "9s"}, `echo $$; trap "echo told; exit 0" TERM; echo ready; sleep 60 & wait`)
		p.group()
		p.expect("ready", "told")
		require.Equal(t, exitLost, p.code())
		require.Greater(t, time.Since(begun), time.Second) // the default of the grace is a third
		require.Regexp(t, `^redlatch: run "k": the lock is about to end: -max-hold is 9s: ending COMMAND, with SIGKILL after [\d.ms]+\n$`, p.errors())
		s.isClean(t)
	})
}

// TestStatusOfABusyKeyCanBeChosen: only that one. With 0, a job that another host does has not
// failed.
func TestStatusOfABusyKeyCanBeChosen(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
	for status, flags := range map[int][]string{0: {"-q", "-try"}, 9: {"-timeout", "4s"}, 255: {"-try"}} {
		flags = append(flags, "-busy-status", strconv.Itoa(status))
		p := redlatchRun(t, s.url, flags, "echo no")
		require.Equal(t, status, p.code())
		require.Equal(t, flags[0] == "-q", p.errors() == "")
		p.gone()
	}
	p := redlatchRun(t, nowhere, []string{"-try", "-busy-status", "0"}, "echo no")
	require.Equal(t, exitUnavailable, p.code())
	require.NoError(t, lock.Unlock(t.Context()))
	p = redlatchRun(t, s.url, []string{"-try", "-busy-status", "0"}, "exit 75")
	require.Equal(t, exitBusy, p.code(), "that of COMMAND")
}

// TestQuietRunSaysNothingOfAnotherOwner: so cron sends no mail. The status is 75 all the same.
func TestQuietRunSaysNothingOfAnotherOwner(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
	for _, flags := range [][]string{{"-q", "-try"}, {"-q", "-timeout", "4s"}} {
		p := redlatchRun(t, s.url, flags, "echo no")
		require.Equal(t, exitBusy, p.code())
		require.Empty(t, p.errors())
		p.gone()
	}
	p := redlatchRun(t, nowhere, []string{"-q", "-try"}, "echo no")
	require.Equal(t, exitUnavailable, p.code())
	require.NotEmpty(t, p.errors())
}

// TestMinHoldIsForCommandsThatRan: a command that cannot be executed leaves no key behind.
func TestMinHoldIsForCommandsThatRan(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		odd := notExecutable(t)
		for _, args := range [][]string{{"run", "-min-hold", "1h", "k"}, {"run", "-min-hold", "1h", "-limit", "2", "sem"}} {
			p := start(t, redlatchCmd(t, s.url, append(args, "--", odd)...))
			require.Equal(t, exitCannotRun, p.code())
			s.isClean(t)
		}
		lock := locktest.MustLock(t, s.locker(t, redlatch.WithTTL(time.Minute)), "k") // a lock that is handed over
		p := start(t, redlatchCmd(t, s.url, "run", "-min-hold", "1h", "k", "--", odd))
		s.awaitWaiters(t, 1)
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, exitCannotRun, p.code())
		s.isClean(t)
	})
}
