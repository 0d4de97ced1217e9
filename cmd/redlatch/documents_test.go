//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// documented returns the lines of redlatch in the code of all documents: as a shell reads them, but with programs from
// PATH, and without the questions that nobody answers.
func documented(t *testing.T) (lines []string) {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	var text strings.Builder
	for _, path := range append(paths, "../../README.md", "../../SECURITY.md", "doc.go") {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		text.Write(page)
	}
	code := regexp.MustCompile(`(?m)^(?://\t)?(?:\$ |0 3 \* \* \* /usr/local/bin/|command: \[)?(redlatch[ ,]+(?:run|list|status|unlock|watch)\b.*)$`)
	for _, found := range code.FindAllStringSubmatch(text.String(), -1) {
		line := found[1]
		if strings.HasPrefix(found[0], "command:") { // a list of YAML
			line = strings.ReplaceAll(strings.TrimSuffix(line, "]"), ", ", " ")
		}
		if strings.ContainsAny(line, "[") || strings.Contains(found[0], "//\tredlatch") { // the usage
			continue
		}
		line = strings.ReplaceAll(line, "/usr/local/bin/", "")
		lines = append(lines, strings.Replace(line, "redlatch unlock", "redlatch unlock -f", 1))
	}
	return lines
}

// TestDocumentedCommandsWork: a shell reads each line of the documents, and redlatch carries it out.
func TestDocumentedCommandsWork(t *testing.T) {
	t.Parallel()
	lines := documented(t)
	require.GreaterOrEqual(t, len(lines), 13)
	programs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(programs, "make-report"), []byte("#!/bin/sh\n"), 0o700)) //nolint:gosec // it is run
	seen := map[string]bool{}
	for _, line := range lines {
		seen[strings.Fields(line)[1]] = true
		s := onMiniredis(t)
		cmd := redlatchCmd(t, s.url)
		path := "PATH=" + filepath.Dir(cmd.Path) + ":" + programs + ":" + os.Getenv("PATH")
		cmd.Path, cmd.Args, cmd.Env = "/bin/sh", []string{"sh", "-c", line}, append(cmd.Env, path)
		watches := strings.HasPrefix(line, "redlatch watch") // for ever
		if watches {
			cmd.Args[2] = "exec " + line // so that start ends it
		}
		p := start(t, cmd)
		if watches {
			locktest.Eventually(t, line, func() bool { return strings.Contains(p.errors(), "watching") })
			continue
		}
		require.Equal(t, 0, p.code(), "%s: %s", line, p.errors())
	}
	for _, command := range []string{"run", "list", "status", "unlock", "watch"} {
		require.True(t, seen[command], command)
	}
}

// TestDocumentedQuestionIsAsked: docs/operations.md shows what unlock says before it releases a lock.
func TestDocumentedQuestionIsAsked(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var asked bytes.Buffer
	seen := redlatch.Status{Held: true, Owner: "api-7:4711", TTL: 8100 * time.Millisecond, Waiters: 2}
	require.False(t, confirmed(strings.NewReader(""), &asked, "import", seen))
	require.Contains(t, string(page), "$ redlatch unlock import\n"+strings.TrimSpace(asked.String())+"\n```")
}

// TestDocumentsNameFlagsThatExist: where a sentence mentions a command with flags, its usage has them.
func TestDocumentsNameFlagsThatExist(t *testing.T) {
	t.Parallel()
	usages := map[string]string{"run": runUsage, "list": listUsage, "status": statusUsage, "unlock": unlockUsage, "watch": watchUsage}
	paths, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	mentioned := 0
	for _, path := range append(paths, "../../README.md", "../../SECURITY.md", "../../CHANGELOG.md") {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, mention := range regexp.MustCompile("`redlatch (run|list|status|unlock|watch)((?: [^`]*)?)`").FindAllStringSubmatch(string(page), -1) {
			own, _, _ := strings.Cut(mention[2], " -- ")
			for _, name := range regexp.MustCompile(` -[a-z-]+`).FindAllString(own, -1) {
				require.Contains(t, usages[mention[1]], "\n "+name, "%s: %s", path, mention[0])
				mentioned++
			}
		}
	}
	require.Positive(t, mentioned)
}
