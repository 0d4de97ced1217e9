package docs_test

import (
	"go/version"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// workflows returns the text of each workflow by its path.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	texts := map[string]string{}
	for _, path := range paths {
		texts[path] = mustRead(t, path)
	}
	return texts
}

// TestDependabotKnowsEveryModule, once.
func TestDependabotKnowsEveryModule(t *testing.T) {
	var known, modules []string
	for _, list := range regexp.MustCompile(`package-ecosystem: gomod\n\s+directories: \[(.*)\]`).FindAllStringSubmatch(mustRead(t, ".github/dependabot.yml"), -1) {
		known = append(known, strings.Split(list[1], ", ")...)
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "testdata" {
			return fs.SkipDir
		}
		if err == nil && entry.Name() == "go.mod" {
			modules = append(modules, filepath.ToSlash(filepath.Join("/", filepath.Dir(path))))
		}
		return err
	}))
	require.ElementsMatch(t, modules, known)
}

// TestWorkflowsHaveAGoThatTheModuleAllows: an older one would download another, so nobody would see
// what was tested.
func TestWorkflowsHaveAGoThatTheModuleAllows(t *testing.T) {
	floor := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(mustRead(t, "go.mod"))
	require.NotNil(t, floor)
	for path, text := range workflows(t) {
		numbers := 0
		for _, setting := range regexp.MustCompile(`(?m)\bgo(?:-version)?: (.*)$`).FindAllStringSubmatch(text, -1) {
			for _, number := range regexp.MustCompile(`1\.\d+`).FindAllString(setting[1], -1) {
				require.True(t, version.Compare("go"+number, version.Lang("go"+floor[1])) >= 0, "%s has Go %s, and go.mod %s", path, number, floor[1])
				numbers++
			}
		}
		require.Positive(t, numbers, path)
	}
}

// TestActionsArePinned to commits, each to one.
func TestActionsArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^([\w-]+/[\w-]+)(?:/[\w-]+)*@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	commits := map[string]string{}
	for path, text := range workflows(t) {
		for _, uses := range regexp.MustCompile(`(?m)\buses: (.*)$`).FindAllStringSubmatch(text, -1) {
			action := pinned.FindStringSubmatch(uses[1])
			require.NotNil(t, action, "%s: %s", path, uses[1])
			_, commit, _ := strings.Cut(uses[1], "@")
			if before, known := commits[action[1]]; known {
				require.Equal(t, before, commit, "%s: %s", path, action[1])
			}
			commits[action[1]] = commit
		}
	}
	require.NotEmpty(t, commits)
}

// TestBugFormAsksForEachConstructor that the README has.
func TestBugFormAsksForEachConstructor(t *testing.T) {
	form := mustRead(t, ".github/ISSUE_TEMPLATE/bug.yml")
	constructors := regexp.MustCompile("(?m)^\\| `(New\\w+)` \\|").FindAllStringSubmatch(mustRead(t, "README.md"), -1)
	require.NotEmpty(t, constructors)
	for _, constructor := range constructors {
		require.True(t, strings.Contains(form, "\n        - "+constructor[1]+"\n"), constructor[1])
	}
}

// TestWhoMayPublishRunsNoCodeOfOthers: in the workflow of a release, a job that may write or sign publishes what other
// jobs have tested and built. It checks out, installs and compiles nothing.
func TestWhoMayPublishRunsNoCodeOfOthers(t *testing.T) {
	_, jobs, found := strings.Cut(workflows(t)[".github/workflows/release.yml"], "\njobs:\n")
	require.True(t, found)
	starts := regexp.MustCompile(`(?m)^  (\w+):$`).FindAllStringSubmatchIndex(jobs, -1)
	var names, writers []string
	for i, start := range starts {
		end := len(jobs)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		name, job := jobs[start[2]:start[3]], jobs[start[1]:end]
		names = append(names, name)
		if !strings.Contains(job, ": write") {
			continue
		}
		writers = append(writers, name)
		require.Contains(t, job, "\n    needs: [test, build]\n")
		require.Contains(t, job, "sha256sum --check")
		for _, code := range []string{".ci/", "actions/checkout", "setup-go", "go run", "go install", "go build"} {
			require.NotContains(t, job, code)
		}
	}
	require.Equal(t, []string{"test", "build", "publish"}, names)
	require.Equal(t, []string{"publish"}, writers)
}

// TestChangelogLinksItsVersions: the heading of each leads to its changes.
func TestChangelogLinksItsVersions(t *testing.T) {
	changes := mustRead(t, "CHANGELOG.md")
	versions := regexp.MustCompile(`(?m)^## (\[.*\])( - \d{4}-\d\d-\d\d)?$`).FindAllStringSubmatch(changes, -1)
	require.NotEmpty(t, versions)
	for _, version := range versions {
		require.Equal(t, version[1] == "[Unreleased]", version[2] == "", version[0])
		require.Contains(t, changes, "\n"+version[1]+": "+ours+"/")
	}
}
