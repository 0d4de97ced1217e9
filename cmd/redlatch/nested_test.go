//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunThatWouldWaitForItselfSaysSo: a script under a lock calls a script that takes the same
// lock, perhaps with another one in between. It must not wait for ever, in silence.
func TestRunThatWouldWaitForItselfSaysSo(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		for name, args := range map[string]string{
			"a lock":              "run k -- $R run k -- true",
			"with a timeout":      "run k -- $R run -timeout 1h k -- true",
			"two around it":       "run k -- $R run other -- $R run k -- true",
			"of the inner":        "run other -- $R run k -- $R run k -- true",
			"a permit":            "run -limit 1 p -- $R run -limit 1 p -- true",
			"a writer":            "run -write w -- $R run -write w -- true",
			"reads what it wrote": "run -write w -- $R run -read w -- true",
			"a name with spaces":  "run -owner 'a b' k -- $R run k -- true",
		} {
			cmd := redlatchCmd(t, s.url)
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "R=" + cmd.Path + "; $R " + args}
			p := start(t, cmd)
			require.Equal(t, exitUsage, p.code(), name)
			require.Contains(t, p.errors(), "it would wait for itself", name)
		}
		s.isClean(t)
		for name, args := range map[string]string{
			"another key":          "run k -- $R run other -- true",
			"another prefix":       "run k -- $R run -prefix v2: k -- true",
			"two permits":          "run -limit 2 p -- $R run -limit 2 p -- true",
			"two readers":          "run -read w -- $R run -read w -- true",
			"it does not wait":     "run k -- sh -c \"(unset REDLATCH_HELD; $R run k -- echo later) &\"",
			"what was held before": "run k -- true && $R run k -- true",
		} {
			cmd := redlatchCmd(t, s.url)
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "R=" + cmd.Path + "; $R " + args}
			p := start(t, cmd)
			require.Zero(t, p.code(), "%s: %s", name, p.errors())
			if strings.Contains(args, "later") {
				require.Equal(t, "later", p.line(), name)
			}
		}
		p := start(t, redlatchCmd(t, s.url, "run", "k", "--", binary(t), "run", "-try", "k", "--", "true"))
		require.Equal(t, exitBusy, p.code(), "it does not wait")
	})
}
