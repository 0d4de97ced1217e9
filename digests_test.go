package redlatch

import (
	"crypto/sha1"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scriptFiles returns the files of lua/, and release.lua, that no other one includes.
func scriptFiles(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	texts := map[string]bool{}
	for _, path := range append(found, "release.lua") {
		texts[filepath.Base(path)] = true
	}
	for _, path := range append(found, "release.lua") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
				delete(texts, included)
			}
		}
	}
	return slices.Sorted(maps.Keys(texts))
}

// TestDigestsAreThoseOfTheScripts: digests.go has the SHA-1 of each script. A wrong one would cost
// a round trip a call.
func TestDigestsAreThoseOfTheScripts(t *testing.T) {
	const file, begins = "digests.go", "= map[string]string{\n"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	head, _, found := strings.Cut(string(text), begins)
	require.True(t, found)
	out := head + begins
	for _, name := range scriptFiles(t) {
		out += fmt.Sprintf("\t%q: \"%x\",\n", name, sha1.Sum([]byte(source(name))))
	}
	want, err := format.Source([]byte(out + "}\n"))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
		return
	}
	require.Equal(t, string(want), string(text), "-update writes it anew")
}
