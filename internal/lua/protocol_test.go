package lua

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProtocolHasTheScriptsAsTheyAreSent: other clients read them in protocol/scripts, without includes.
func TestProtocolHasTheScriptsAsTheyAreSent(t *testing.T) {
	const dir = "../../protocol/scripts"
	texts := scriptTexts(t)
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, text := range texts {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(expand(text)), 0o644))
		}
	}
	there, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for i, path := range there {
		there[i] = filepath.Base(path)
	}
	require.Equal(t, slices.Sorted(maps.Keys(texts)), there, "-update writes them anew")
	for name, text := range texts {
		sent, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, expand(text), string(sent), "%s: -update writes it anew", name)
	}
}
