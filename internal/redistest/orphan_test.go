package redistest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deathWish, if set, makes this test binary start servers, print their directories, and wait to be killed.
const deathWish = "REDISTEST_DEATH_WISH"

func TestDyingBinary(t *testing.T) {
	if os.Getenv(deathWish) == "" {
		t.Skip("run by TestServerDoesNotOutliveItsBinary only")
	}
	paused := Start(t)
	paused.Pause()
	tell := func(s *Server) { _, _ = os.Stdout.WriteString("dir " + s.dir + "\n") }
	tell(Shared(t))
	tell(paused)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestServerDoesNotOutliveItsBinary(t *testing.T) {
	mustBeInstalled(t)
	binary := exec.Command(os.Args[0], "-test.run=^TestDyingBinary$")
	binary.Env = append(os.Environ(), deathWish+"=1")
	stdout, err := binary.StdoutPipe()
	require.NoError(t, err)
	stdin, err := binary.StdinPipe() // it stays open
	require.NoError(t, err)
	defer stdin.Close()
	require.NoError(t, binary.Start())
	var dirs []string
	for lines := bufio.NewScanner(stdout); len(dirs) < 2 && lines.Scan(); {
		if dir, ok := strings.CutPrefix(lines.Text(), "dir "); ok {
			require.DirExists(t, dir)
			dirs = append(dirs, dir)
		}
	}
	require.Len(t, dirs, 2)
	require.NoError(t, binary.Process.Kill())
	require.Error(t, binary.Wait())
	for _, dir := range dirs { // the guard removes it after the server has exited
		require.Eventually(t, func() bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		}, 10*time.Second, 5*time.Millisecond, dir)
	}
}
