package protocol_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

// TestReadmeHasAllScripts: each has a row with its keys, arguments and replies.
func TestReadmeHasAllScripts(t *testing.T) {
	paths, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	var there, rows []string
	for _, path := range paths {
		there = append(there, filepath.Base(path))
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+\\.lua)` \\|").FindAllStringSubmatch(readme(t), -1) {
		rows = append(rows, row[1])
	}
	require.ElementsMatch(t, there, rows)
}

// TestAllNameOneProtocol: the README, the vectors and the client in Python have the same number.
func TestAllNameOneProtocol(t *testing.T) {
	require.Contains(t, readme(t), fmt.Sprintf("**protocol %d**", version))
	client, err := os.ReadFile("python/redlatch.py")
	require.NoError(t, err)
	require.Contains(t, string(client), fmt.Sprintf("\nPROTOCOL = %d ", version))
	for script := range allCases() {
		readVectors(t, script)
	}
}

// TestProgramOfTheReadmeRuns: unchanged, except for the address of the server, and where the client is copied to with its scripts.
func TestProgramOfTheReadmeRuns(t *testing.T) {
	t.Parallel()
	interpreter := mustHavePython(t)
	_, program, found := strings.Cut(readme(t), "```python\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```")
	const addr = `host="localhost", port=6379`
	require.Contains(t, program, addr)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "scripts"), os.DirFS("scripts")))
	client, err := os.ReadFile("python/redlatch.py")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redlatch.py"), client, 0o600))
	program = strings.Replace(program, addr, fmt.Sprintf("unix_socket_path=%q", redistest.Start(t).Addr()), 1)
	program = strings.Replace(program, "socket_timeout=1", "socket_timeout=4", 1) // a busy machine
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(program), 0o600))
	out, err := exec.CommandContext(t.Context(), interpreter, filepath.Join(dir, "main.py")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "only this process works on orders:42\n", string(out))
}
