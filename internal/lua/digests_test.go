package lua

import (
	"crypto/sha1"
	"flag"
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

var update = flag.Bool("update", false, "write digests.go and protocol/scripts anew")

// scriptTexts returns the text of each script, by its file. What others include is no script.
func scriptTexts(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	texts, included := map[string]string{}, map[string]bool{}
	for _, path := range append(found, "../../release.lua") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		texts[filepath.Base(path)] = string(text)
		for line := range strings.Lines(string(text)) {
			if file, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
				included[file] = true
			}
		}
	}
	maps.DeleteFunc(texts, func(file, _ string) bool { return included[file] })
	return texts
}

// TestDigestsAreThoseOfTheScripts: digests.go has the SHA-1 of each script. A wrong one would cost
// a round trip a call.
func TestDigestsAreThoseOfTheScripts(t *testing.T) {
	const file, begins = "digests.go", "= map[string]string{\n"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	head, _, found := strings.Cut(string(text), begins)
	require.True(t, found)
	out, texts := head+begins, scriptTexts(t)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		out += fmt.Sprintf("\t%q: \"%x\",\n", name, sha1.Sum([]byte(expand(texts[name]))))
	}
	want, err := format.Source([]byte(out + "}\n"))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
		return
	}
	require.Equal(t, string(want), string(text), "-update writes it anew")
}
