package redlatchvalkey_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate ./generate.sh

// TestSourceIsThatOfRueidis but for the names. go generate writes it anew.
func TestSourceIsThatOfRueidis(t *testing.T) {
	if _, err := os.Stat("../rueidis"); err != nil {
		t.Skip("this copy of the module stands alone")
	}
	dir := t.TempDir()
	out, err := exec.Command("./generate.sh", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	files = append(files, filepath.Join(dir, "testdata", "over.go"))
	for _, file := range files {
		name, err := filepath.Rel(dir, file)
		require.NoError(t, err)
		if name == "testdata" {
			continue
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
	}
}
