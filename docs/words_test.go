package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordsOf counts what has a letter or a digit: a bar of a table is no word.
func wordsOf(text string) int {
	count := 0
	for _, field := range strings.Fields(text) {
		if letters.MatchString(field) {
			count++
		}
	}
	return count
}

var letters = regexp.MustCompile(`[\pL\pN]`)

// guides returns the documents that users read, by name.
func guides(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	texts := map[string]string{}
	for _, name := range append(names, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		texts[name] = mustRead(t, name)
	}
	return texts
}

// TestReadmeIsShort: what needs more words has its own page.
func TestReadmeIsShort(t *testing.T) {
	require.LessOrEqual(t, wordsOf(mustRead(t, "README.md")), 1300)
}

// TestGuidesAreShort: a new page takes its words from pages that say the same.
func TestGuidesAreShort(t *testing.T) {
	total := 0
	for _, text := range guides(t) {
		total += wordsOf(text)
	}
	require.LessOrEqual(t, total, 26000)
}
