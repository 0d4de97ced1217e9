package sim

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var plantsFlag = flag.Bool("plants", false, "show that the faults in testdata/plants are found")

// foundWithin is how long it may take to find a fault, on an idle machine.
const foundWithin = time.Minute

// TestPlantsAreFound: each patch in testdata/plants adds a fault to the library, and one of the rules
// that its first line names is the first to be broken.
func TestPlantsAreFound(t *testing.T) {
	if !*plantsFlag {
		t.Skip("it takes minutes: -plants")
	}
	for _, patch := range plants(t) {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			rules, dir := broken(t, patch), planted(t, patch)
			digests := exec.Command("go", "test", "./internal/lua", "-update") // of scripts that the patch changes
			digests.Dir = dir
			out, err := digests.CombinedOutput()
			require.NoError(t, err, "%s", out)
			build := exec.Command("go", "test", "-c", "-o", "planted", ".")
			build.Dir = filepath.Join(dir, "sim")
			out, err = build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			begin := time.Now()
			run := exec.Command("./planted", "-test.run", "Soak", "-test.timeout", "0", "-for", foundWithin.String(), "-stop") //nolint:gosec // built here
			run.Dir = build.Dir
			out, err = run.CombinedOutput()
			require.ErrorAs(t, err, new(*exec.ExitError), "it was not found: %s", out)
			rule := slices.IndexFunc(rules, func(rule string) bool { return strings.Contains(string(out), rule+": ") })
			require.GreaterOrEqual(t, rule, 0, "another rule was broken: %s", out)
			t.Logf("after %v: %s", time.Since(begin).Round(time.Second), rules[rule])
		})
	}
}

// TestPlantsApply: a change of the library that moves what a patch changes needs a new patch.
func TestPlantsApply(t *testing.T) {
	for _, patch := range plants(t) {
		planted(t, patch)
	}
}

// plants returns the patches.
func plants(t *testing.T) (patches []string) {
	t.Helper()
	patches, err := filepath.Glob("testdata/plants/*.patch")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(patches), 20)
	return patches
}

// broken returns the rules that the first line of a patch names.
func broken(t *testing.T, patch string) []string {
	t.Helper()
	text, err := os.ReadFile(patch)
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	_, rules, found := strings.Cut(line, "Breaks ")
	require.True(t, found, line)
	return strings.Split(rules, ", ")
}

// planted returns a copy of the repository with a patch.
func planted(t *testing.T, patch string) string {
	t.Helper()
	patch, err := filepath.Abs(patch)
	require.NoError(t, err)
	to := t.TempDir()
	for _, part := range []string{"internal", "sim"} {
		require.NoError(t, os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join("..", part))))
	}
	names, err := filepath.Glob("../*.*")
	require.NoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil { // it is no directory
			require.NoError(t, os.WriteFile(filepath.Join(to, filepath.Base(name)), text, 0o600))
		}
	}
	apply := exec.Command("git", "apply", "-C1", patch)
	apply.Dir = to
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}
