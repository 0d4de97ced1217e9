package sim

import (
	"flag"
	"fmt"
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

// race is what a patch breaks that only the race detector sees, as it prints it.
const race = "WARNING"

// foundWithin is how long it may take to find a fault, on an idle machine.
const foundWithin = time.Minute

// TestPlantsAreFound: each patch in testdata/plants adds a fault to the library, and one of the rules
// that its first line names is the first to be broken.
func TestPlantsAreFound(t *testing.T) {
	if !*plantsFlag {
		t.Skip("it takes minutes: -plants")
	}
	patches, err := filepath.Glob("testdata/plants/*.patch")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(patches), 12)
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			rules := broken(t, patch)
			build := exec.Command("go", "test", "-c", "-o", "planted", fmt.Sprintf("-race=%v", slices.Contains(rules, race)), ".") //nolint:gosec // of Go
			build.Dir = filepath.Join(planted(t, patch), "sim")
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			begin := time.Now()
			run := exec.Command("./planted", "-test.run", "Soak", "-test.timeout", "0", "-for", foundWithin.String(), "-stop") //nolint:gosec // built here
			if run.Dir = build.Dir; slices.Contains(rules, race) {
				run.Args = append(run.Args, "-themes", "cohort")
			}
			out, err = run.CombinedOutput()
			require.ErrorAs(t, err, new(*exec.ExitError), "it was not found: %s", out)
			rule := slices.IndexFunc(rules, func(rule string) bool { return strings.Contains(string(out), rule+": ") })
			require.GreaterOrEqual(t, rule, 0, "another rule was broken: %s", out)
			t.Logf("after %v: %s", time.Since(begin).Round(time.Second), rules[rule])
		})
	}
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
	apply := exec.Command("git", "apply", patch)
	apply.Dir = to
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}
