//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// patient has the flags for tests in which no lock expires, and brief those for tests that wait
// until a loss is noticed.
var (
	patient = []string{"-ttl", "1m"}
	brief   = []string{"-ttl", "6s"}
)

// TestExitStatusOfTheCommandIsThatOfRun: also if a signal killed the command.
func TestExitStatusOfTheCommandIsThatOfRun(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -KILL $$": 137, "kill -TERM $$": 143} {
			p := redlatchRun(t, s.url, patient, script)
			require.Equal(t, want, p.code(), script)
			require.Empty(t, p.errors())
			s.isClean(t)
		}
	})
}

// TestLockIsHeldWhileTheCommandRuns: the command also has its arguments, its environment and its
// streams.
func TestLockIsHeldWhileTheCommandRuns(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		cmd := redlatchCmd(t, s.url, "run", "-ttl", "1m", "-owner", "nightly report", "k", "--", "sh", "-c",
			`echo "$REDLATCH_KEY"; echo "$REDLATCH_TOKEN"; echo "$REDLATCH_FENCE"; echo "$0 $1"; read -r line; echo "got $line"; echo oops >&2`,
			"two words", "")
		in := pipe(t, cmd)
		p := start(t, cmd)
		require.Equal(t, "k", p.line())
		token := p.line()
		require.Equal(t, s.holds(t), token)
		require.True(t, strings.HasPrefix(token, "nightly report/"))
		require.Regexp(t, `^[1-9]\d*$`, p.line())
		require.Equal(t, "two words ", p.line())
		_, err := in.Write([]byte("input\n"))
		require.NoError(t, err)
		require.Equal(t, "got input", p.line())
		require.Zero(t, p.code())
		require.Equal(t, "oops\n", p.errors())
		s.isClean(t)
	})
}

// TestBusyKeyIsNotWaitedForForever: the status is 75 with -try and after -timeout, and nothing is
// left in Redis.
func TestBusyKeyIsNotWaitedForForever(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
		p := redlatchRun(t, s.url, []string{"-ttl", "1m", "-try"}, "echo no")
		require.Equal(t, exitBusy, p.code())
		require.Contains(t, p.errors(), `redlatch: try lock "k": held by "other"`)
		p = redlatchRun(t, s.url, []string{"-ttl", "1m", "-timeout", "4s"}, "echo no")
		require.Equal(t, exitBusy, p.code())
		require.Contains(t, p.errors(), `redlatch: lock "k": waited 4s: the last attempt: held by "other"`)
		p.gone()
		require.NoError(t, lock.Unlock(t.Context()))
		s.isClean(t)
	})
}

// TestUnavailableRedisEndsATry: the status is 69, and the one error is not one that run continues
// after.
func TestUnavailableRedisEndsATry(t *testing.T) {
	t.Parallel()
	p := redlatchRun(t, nowhere, []string{"-try"}, "echo no")
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), "connection refused")
	require.NotContains(t, p.errors(), "continuing")
	p.gone()

	s := onMiniredis(t)
	silent := faultproxy.New(t, "tcp", strings.TrimPrefix(s.url, "redis://"))
	silent.Silence()
	p = redlatchRun(t, "redis://"+silent.Addr(), []string{"-timeout", "400ms"}, "echo no")
	require.Equal(t, exitUnavailable, p.code())
	require.NotContains(t, p.errors(), "continuing")
	p.gone()
}

// TestCommandThatCannotRunTakesNoLock: if run finds out only at the start of the command, it
// releases the lock.
func TestCommandThatCannotRunTakesNoLock(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for path, want := range map[string]int{
		"no-such-command": exitNotFound, "/no/such/command": exitNotFound, plain: exitCannotRun, t.TempDir(): exitCannotRun,
	} {
		p := start(t, redlatchCmd(t, nowhere, "run", "k", "--", path))
		require.Equal(t, want, p.code(), path)
		require.NotEmpty(t, p.errors())
	}

	s := onMiniredis(t)
	p := start(t, redlatchCmd(t, s.url, "run", "k", "--", notExecutable(t)))
	require.Equal(t, exitCannotRun, p.code())
	s.isClean(t)
}

// notExecutable returns a path to a file that is found, but cannot be started.
func notExecutable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "odd")
	require.NoError(t, os.WriteFile(path, []byte{0}, 0o700)) //nolint:gosec // it is to be run
	return path
}

// TestRunsTakeTurns: the second run gets the lock when the command of the first has ended.
func TestRunsTakeTurns(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		script := `echo "$REDLATCH_FENCE"; read -r line`
		cmd := redlatchCmd(t, s.url, "run", "-ttl", "1m", "k", "--", "sh", "-c", script)
		in := pipe(t, cmd)
		first := start(t, cmd)
		fence := first.line()
		next := redlatchRun(t, s.url, patient, `echo "$REDLATCH_FENCE"`)
		s.awaitWaiters(t, 1)
		require.Empty(t, next.lines)
		require.NoError(t, in.Close())
		require.Less(t, fence, next.line())
		require.NotZero(t, first.code()) // read fails at the end of stdin
		require.Zero(t, next.code())
		s.isClean(t)
	})
}

// awaitWaiters waits until n queue for k.
func (s *server) awaitWaiters(t *testing.T, n int) {
	t.Helper()
	l := s.locker(t)
	locktest.Eventually(t, "queued", func() bool {
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		return st.Waiters == n
	})
}

// TestCleanUpHasTimeToBegin: the wait that a signal ends may have been quiet for long.
func TestCleanUpHasTimeToBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &traffic{}
		c := &connection{nodes: []*traffic{{}, node}}
		node.begin()
		node.end(redis.NewCmd(t.Context()))
		time.Sleep(time.Minute)
		done := make(chan time.Time, 1)
		go func() {
			c.settle()
			done <- time.Now()
		}()
		time.Sleep(quiet / 2)
		require.Empty(t, done)
		node.begin()
		time.Sleep(time.Second)
		require.Empty(t, done)
		ended := time.Now()
		node.end(redis.NewCmd(t.Context()))
		require.Greater(t, (<-done).Sub(ended), quiet/2)
	})
}

// TestSignalEndsTheWait: nothing is left in Redis.
func TestSignalEndsTheWait(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
			p := redlatchRun(t, s.url, patient, "echo no")
			s.awaitWaiters(t, 1)
			p.signal(sig)
			require.Equal(t, exitSignal+int(sig), p.code())
			require.Empty(t, p.errors())
			st, err := s.locker(t).Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Zero(t, st.Waiters)
		}
		require.NoError(t, lock.Unlock(t.Context()))
		s.isClean(t)
	})
}

// TestSignalsReachTheWholeGroup: the children of the command get the signals too.
func TestSignalsReachTheWholeGroup(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	for name, sig := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		p := redlatchRun(t, s.url, patient, `
			echo $$
			(trap "echo child; exit" `+name+`; sleep 60 & echo ready; wait) &
			trap "echo leader; wait; exit 7" `+name+`
			echo ready
			wait`)
		p.group()
		p.expect("ready", "ready")
		p.signal(sig)
		p.expect("leader", "child")
		require.Equal(t, 7, p.code())
	}
	p := redlatchRun(t, s.url, patient, `echo $$; exec sleep 60`)
	p.group()
	p.signal(syscall.SIGINT)
	require.Equal(t, 130, p.code())
	s.isClean(t)
}

// TestIgnoredSignalStaysIgnored: so nohup works.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	cmd := redlatchCmd(t, s.url)
	cmd.Args = []string{"sh", "-c", `trap "" HUP; exec "$0" run k -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo alive'`, cmd.Path}
	cmd.Path = "/bin/sh"
	p := start(t, cmd)
	p.expect("alive")
	require.Zero(t, p.code())
}

// TestCommandMayLeaveProcesses: the lock is released when the command ends, and its background
// processes continue.
func TestCommandMayLeaveProcesses(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	p := redlatchRun(t, s.url, patient, `echo $$; (sleep 60 & trap "echo child; exit" TERM; echo ready; wait) & read -r x; exit 0`)
	group := p.group()
	p.expect("ready")
	require.Zero(t, p.code())
	s.isClean(t)
	require.NoError(t, syscall.Kill(-group, syscall.SIGTERM))
	p.expect("child")
	p.gone()
}

// TestCrontabOnSeveralHosts: three hosts start one command at the same time. With -try and
// -min-hold it runs once, although it ends at once. Without -try it runs three times. With -timeout
// and a longer -min-hold it runs once.
func TestCrontabOnSeveralHosts(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		runs  int
	}{
		"with -try":     {[]string{"-try", "-q", "-min-hold", "1m"}, 1},
		"without -try":  {nil, 3},
		"with -timeout": {[]string{"-timeout", "2s", "-q", "-min-hold", "1m"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onMiniredis(t)
			var hosts []*program
			for range 3 {
				hosts = append(hosts, redlatchRun(t, s.url, c.flags, "exit 0"))
			}
			runs := 0
			for _, host := range hosts {
				switch code := host.code(); code {
				case 0:
					runs++
				case exitBusy:
				default:
					require.Fail(t, "unexpected status", "%d: %s", code, host.errors())
				}
			}
			require.Equal(t, c.runs, runs)
		})
	}
}

// TestMinHoldKeepsTheKey: nobody else gets the lock, although the command has ended.
func TestMinHoldKeepsTheKey(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		require.Zero(t, redlatchRun(t, s.url, []string{"-min-hold", "1h", "-owner", "job"}, "exit 0").code())
		p := redlatchRun(t, s.url, []string{"-try"}, "exit 0")
		require.Equal(t, exitBusy, p.code())
		require.Regexp(t, `nobody holds it, but a min hold keeps others out for another (1h0m0s|59m\d+\.?\d*s)\n$`, p.errors())
		require.NotContains(t, p.errors(), "job", "it has ended")
	})
}

// TestKeepAfterFollowsSuccess: nobody else gets the lock after a command that succeeded. After one
// that failed it is free.
func TestKeepAfterFollowsSuccess(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		require.Equal(t, 3, redlatchRun(t, s.url, []string{"-keep-after", "1h"}, "exit 3").code())
		require.Zero(t, redlatchRun(t, s.url, []string{"-try", "-keep-after", "1h"}, "exit 0").code())
		require.Equal(t, exitBusy, redlatchRun(t, s.url, []string{"-try"}, "exit 0").code())
	})
}

// TestUnconfirmedReleaseIsAWarning: the command ran under the lock, so its exit status counts.
func TestUnconfirmedReleaseIsAWarning(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		proxy := faultproxy.New(t, s.network, s.addr)
		cmd := redlatchCmd(t, "redis://"+proxy.Addr(), "run", "-ttl", "1m", "k", "--", "sh", "-c", "echo ready; read -r x; exit 3")
		in := pipe(t, cmd)
		p := start(t, cmd)
		p.expect("ready")
		proxy.Refuse()
		require.NoError(t, in.Close())
		require.Equal(t, 3, p.code())
		require.Contains(t, p.errors(), `redlatch: unlock "k": `)
	})
}

// TestTroubleIsReportedWhileRunWaits: stderr says that there is an outage.
func TestTroubleIsReportedWhileRunWaits(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	proxy := faultproxy.New(t, s.network, s.addr)
	lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
	p := redlatchRun(t, "redis://"+proxy.Addr(), patient, "exit 0")
	s.awaitWaiters(t, 1)
	proxy.Refuse()
	locktest.Eventually(t, "reported", func() bool { return strings.Contains(p.errors(), "continuing despite an error") })
	proxy.Heal()
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, p.code())
}
