package redistest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServerDoesNotOutliveItsBinary runs itself once more, with a server that is paused, and kills
// that process.
func TestServerDoesNotOutliveItsBinary(t *testing.T) {
	const toBeKilled = "REDISTEST_TO_BE_KILLED"
	s := Start(t)
	if os.Getenv(toBeKilled) != "" {
		s.Pause()
		fmt.Println("dir " + s.dir)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	binary := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	binary.Env = append(os.Environ(), toBeKilled+"=1")
	stdout, err := binary.StdoutPipe()
	require.NoError(t, err)
	stdin, err := binary.StdinPipe() // it stays open
	require.NoError(t, err)
	defer stdin.Close()
	require.NoError(t, binary.Start())
	said, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	dir := strings.TrimSpace(strings.TrimPrefix(said, "dir "))
	require.DirExists(t, dir)
	require.NoError(t, binary.Process.Kill())
	require.Error(t, binary.Wait())
	until(t, "the guard has removed it, after the server has exited", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}
