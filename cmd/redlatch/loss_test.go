//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestLossEndsTheCommand: the status is 70, whatever the command returns. If another owner has the
// key, it keeps it.
func TestLossEndsTheCommand(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		p := redlatchRun(t, s.url, brief, `echo $$; trap "echo told; exit 0" TERM; echo ready; sleep 60 & wait`)
		p.group()
		p.expect("ready")
		require.NoError(t, s.client.Del(t.Context(), "k").Err())
		p.expect("told")
		require.Equal(t, exitLost, p.code())
		require.Contains(t, p.errors(), "lock lost")
		p.gone()

		p = redlatchRun(t, s.url, brief, `echo $$; echo ready; exec sleep 60`)
		p.group()
		p.expect("ready")
		require.NoError(t, s.client.Set(t.Context(), "k", "thief", time.Hour).Err())
		require.Equal(t, exitLost, p.code())
		require.Equal(t, "thief", s.holds(t))
	})
}

// TestLossThatTheCommandDidNotLiveToSee: the command ended before run noticed the loss. It may have
// worked while another owner had the key, so the status is 70.
func TestLossThatTheCommandDidNotLiveToSee(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		cmd := redlatchCmd(t, s.url, "run", "-ttl", "1h", "k", "--", "sh", "-c", "echo ready; read -r x; exit 0")
		in := pipe(t, cmd)
		p := start(t, cmd)
		p.expect("ready")
		require.NoError(t, s.client.Set(t.Context(), "k", "thief", time.Hour).Err())
		require.NoError(t, in.Close())
		require.Equal(t, exitLost, p.code())
		require.Contains(t, p.errors(), `redlatch: unlock "k": lock lost`)
		require.Equal(t, "thief", s.holds(t))
	})
}

// stubborn returns a script whose child ignores SIGTERM for a minute. leader is the script's own
// trap for SIGTERM.
func stubborn(leader string) string {
	return `
		echo $$
		(trap "" TERM; echo ready; exec sleep 60) &
		trap "` + leader + `" TERM
		echo ready
		wait; wait`
}

// TestGroupIsKilledAfterTheGrace: SIGKILL ends the processes of the group even if the command
// itself has ended.
func TestGroupIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	for name, leader := range map[string]string{"leader ignores it": "", "leader has ended": "exit 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onMiniredis(t)
			p := redlatchRun(t, s.url, brief, stubborn(leader))
			p.group()
			p.expect("ready", "ready")
			require.NoError(t, s.client.Del(t.Context(), "k").Err())
			require.Equal(t, exitLost, p.code())
			p.gone()
		})
	}
}

// TestCommandHasItsGrace: the command has time to clean up.
func TestCommandHasItsGrace(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	p := redlatchRun(t, s.url, nil, `echo $$; trap "sleep 0.5; echo clean; exit 0" TERM; echo ready; sleep 60 & wait`)
	p.group()
	p.expect("ready")
	require.NoError(t, s.client.Del(t.Context(), "k").Err())
	p.expect("clean")
	require.Equal(t, exitLost, p.code())
}

// TestOutageEndsTheCommandBeforeRedisGivesTheKeyAway: SIGTERM, the grace and SIGKILL all come while
// Redis still has the key.
func TestOutageEndsTheCommandBeforeRedisGivesTheKeyAway(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		proxy := faultproxy.New(t, s.network, s.addr)
		const ttl = 9 * time.Second
		fifo := filepath.Join(t.TempDir(), "fifo")
		require.NoError(t, syscall.Mkfifo(fifo, 0o600))
		p := redlatchRun(t, "redis://"+proxy.Addr(), []string{"-ttl", ttl.String()}, "exec 3>"+fifo+stubborn("echo told"))
		group, err := os.Open(fifo)
		require.NoError(t, err)
		p.group()
		p.expect("ready", "ready")
		proxy.Silence()
		p.expect("told")
		left, err := s.client.PTTL(t.Context(), "k").Result()
		require.NoError(t, err)
		require.Greater(t, left, ttl/5) // the grace is a third of the TTL
		_, err = io.ReadAll(group)      // ends when all processes of the group have ended
		require.NoError(t, err)
		require.NotEmpty(t, s.holds(t))
		require.Equal(t, exitLost, p.code())
		require.Contains(t, p.errors(), "could not be renewed")
	})
}

// TestShortOutageDoesNotEndTheCommand: the lock is renewed in time.
func TestShortOutageDoesNotEndTheCommand(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := onMiniredis(t)
	proxy := faultproxy.New(t, s.network, s.addr)
	cmd := redlatchCmd(t, "redis://"+proxy.Addr(), "run", "-ttl", ttl.String(), "-grace", "500ms", "k", "--", "sh", "-c", "echo ready; read -r x; exit 3")
	in := pipe(t, cmd)
	p := start(t, cmd)
	p.expect("ready")
	left := func() time.Duration { return s.client.PTTL(t.Context(), "k").Val() }
	const renewed, due = ttl * 9 / 10, ttl * 2 / 3
	proxy.Refuse()
	locktest.Eventually(t, "a renewal fails", func() bool { return left() < due-ttl/10 })
	proxy.Heal()
	locktest.Eventually(t, "it is renewed", func() bool { return left() > renewed })
	locktest.Eventually(t, "a renewal is due again", func() bool { return left() < renewed-ttl/10 })
	locktest.Eventually(t, "it is renewed again", func() bool { return left() > renewed })
	require.Empty(t, p.over, p.errors())
	require.NoError(t, in.Close())
	require.Equal(t, 3, p.code())
}

// TestCommandIsKilledWithRedlatch: only Linux can do that.
func TestCommandIsKilledWithRedlatch(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills the command")
	}
	t.Parallel()
	s := onMiniredis(t)
	p := redlatchRun(t, s.url, patient, `echo $$; trap "" TERM HUP; exec sleep 60`)
	p.group()
	p.signal(syscall.SIGKILL)
	p.gone()
	require.NotEmpty(t, s.holds(t))
}
