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

// deathWish, if set, makes this test binary start servers, print their directories, and panic when
// its stdin ends.
const deathWish = "REDISTEST_DEATH_WISH"

func TestDyingBinary(t *testing.T) {
	if os.Getenv(deathWish) == "" {
		t.Skip("run by TestServerDoesNotOutliveItsBinary only")
	}
	paused := Start(t)
	paused.Pause()
	tell := func(s *Server) { _, _ = os.Stdout.WriteString("dir " + s.dir + "\n") }
	tell(Shared(t))
	tell(Start(t))
	tell(StartTCP(t))
	tell(paused)
	_, _ = io.Copy(io.Discard, os.Stdin)
	panic("as wished")
}

func TestServerDoesNotOutliveItsBinary(t *testing.T) {
	mustBeInstalled(t)
	for name, end := range map[string]func(binary *os.Process, stdin io.Closer) error{
		"panic":  func(_ *os.Process, stdin io.Closer) error { return stdin.Close() },
		"killed": func(binary *os.Process, _ io.Closer) error { return binary.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			binary := exec.Command(os.Args[0], "-test.run=^TestDyingBinary$")
			binary.Env = append(os.Environ(), deathWish+"=1")
			stdin, err := binary.StdinPipe()
			require.NoError(t, err)
			stdout, err := binary.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, binary.Start())

			var dirs []string
			for lines := bufio.NewScanner(stdout); len(dirs) < 4 && lines.Scan(); {
				if dir, ok := strings.CutPrefix(lines.Text(), "dir "); ok {
					require.DirExists(t, dir)
					dirs = append(dirs, dir)
				}
			}
			require.Len(t, dirs, 4)
			require.NoError(t, end(binary.Process, stdin))
			require.Error(t, binary.Wait())

			// The guard removes the directory after the server has exited.
			for _, dir := range dirs {
				require.Eventually(t, func() bool {
					_, err := os.Stat(dir)
					return os.IsNotExist(err)
				}, 10*time.Second, 5*time.Millisecond, dir)
			}
		})
	}
}
