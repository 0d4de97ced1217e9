package locktest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	part  = "REDLATCH_TEST_PART"
	voice = "child: "
)

// A Process is the test binary, run again as another program.
type Process struct {
	In   io.WriteCloser
	Said <-chan string // the lines of Say; closed when the process ends

	cmd *exec.Cmd
}

// Start runs the test function of t in a new process, in which Part returns what. The process is killed at the end
// of t.
func Start(t *testing.T, what string) *Process {
	t.Helper()
	test := strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^")
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), part+"="+what)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said := make(chan string, 100)
	go func() { // ends with the process
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if text, ours := strings.CutPrefix(lines.Text(), voice); ours {
				said <- text
			}
		}
	}()
	return &Process{In: in, Said: said, cmd: cmd}
}

// Part returns what was given to Start, and "" in the tests themselves.
func Part() string { return os.Getenv(part) }

// Say sends a line to the process that has started this one.
func Say(words ...any) { fmt.Print(voice, fmt.Sprintln(words...)) }

// Wait waits until the process has ended, and fails if its test failed.
func (p *Process) Wait(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Wait())
}

// Kill ends the process as kill -9 does, unless it has ended, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it reports the signal
}
