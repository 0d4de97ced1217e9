package field_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce = 16 // most of them wait for seconds
	redistest.Main(m)
}

const (
	childsPart = "REDLATCH_TEST_PART"
	voice      = "child: "
)

// A child is the test binary, run again as another program.
type child struct {
	*exec.Cmd
	said <-chan string // the lines of say; closed when the process ends
}

// startChild runs the test function of t in a new process, in which the variable childsPart is
// part. The process is killed at the end of t.
func startChild(t *testing.T, part string) child {
	t.Helper()
	test := strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^")
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), childsPart+"="+part)
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
	return child{cmd, said}
}

// say sends a line to the process that has started this one.
func say(words ...any) { fmt.Print(voice, fmt.Sprintln(words...)) }

// signal stops the process by STOP, and lets it run again by CONT.
func (c child) signal(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, redistest.Signal(strconv.Itoa(c.Process.Pid), name))
}
