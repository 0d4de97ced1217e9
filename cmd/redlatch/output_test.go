//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// printed returns the stdout of redlatch with these arguments, which prints nothing else.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var text strings.Builder
	p := start(t, redlatchCmd(t, "", args...))
	for line := range p.lines {
		text.WriteString(line + "\n")
	}
	require.Zero(t, p.code(), p.errors())
	require.Empty(t, p.errors())
	return text.String()
}

// TestOutputThatCannotBeWrittenIsAFailure: on a full disk a script would take what is missing for
// keys that nobody holds.
func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no full disk here: ", err)
	}
	t.Cleanup(func() { _ = full.Close() })
	t.Parallel()
	s := onRedis(t)
	locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
	toFull := func(t *testing.T, args ...string) *program {
		t.Helper()
		cmd := redlatchCmd(t, s.url, args...)
		cmd.Stdout = full
		return start(t, cmd)
	}
	for _, args := range [][]string{
		{"list"}, {"list", "-json"}, {"list", "-watch"}, {"status", "k"}, {"status", "-json", "k"}, {"version"}, {"run", "-h"}, {"-h"},
	} {
		p := toFull(t, args...)
		require.Equal(t, exitOutput, p.code(), "%q", args)
		require.Contains(t, p.errors(), "no space left on device", "%q", args)
	}
	watch := toFull(t, "watch")
	locktest.Eventually(t, "it watches", func() bool { return strings.Contains(watch.errors(), "watching hand-overs") })
	s.handOver(t, "w", "a", "b")
	require.Equal(t, exitOutput, watch.code())
	require.Equal(t, 3, toFull(t, "run", "k2", "--", "sh", "-c", "exit 3").code(), "the output of COMMAND is its own")
	_, err = s.locker(t).TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
}
