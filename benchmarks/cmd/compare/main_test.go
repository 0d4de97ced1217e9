package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/benchmarks/internal/report"
	"github.com/redlatch/redlatch/benchmarks/internal/sections"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// quick measures for long enough to have every figure, and too briefly for any to mean anything.
var quick = sections.Plan{Rounds: 1, Duration: 50 * time.Millisecond, Held: 10_000}

func TestEverySectionGivesEveryFigure(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	redistest.Start(t) // skips the test where there is no redis-server
	r, err := measure(t.Context(), regexp.MustCompile(""), quick)
	require.NoError(t, err)
	require.Len(t, r.Tables, len(sections.All()))
	for _, table := range r.Tables {
		complete := false
		for _, row := range table.Rows {
			if granted(row) {
				complete = complete || ours(row)
				for _, m := range table.Metrics {
					if applies(m.Key, row) {
						require.Contains(t, row.Figures, m.Key, "%s: %s", table.Section, row.Name())
					}
				}
			}
		}
		require.True(t, complete, "%s: redlatch was always refused", table.Section)
	}
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			limit := 1
			_, _ = fmt.Sscanf(row.Case, "limit %d", &limit) // other cases are of locks
			require.LessOrEqual(t, row.Figures["owners"].Median, float64(limit), "%s", row.Name())
			if table.Section == "hotkey" { // the owners of a semaphore overlap
				require.Zero(t, row.Figures["disorder"].Median, "%s", row.Name())
			}
			if ours(row) {
				require.Zero(t, row.Figures["left"].Median, "%s", row.Name())
			}
		}
	}

	// Charts and the summary name sections, groups, cases and figures: all of them exist.
	dir := t.TempDir()
	require.NoError(t, r.Write(dir))
	for _, chart := range report.ChartFiles() {
		require.FileExists(t, filepath.Join(dir, chart))
	}
	_, err = r.Summary()
	require.NoError(t, err)
}

// ours reports whether a row is of this library.
func ours(row report.Row) bool {
	return strings.HasPrefix(row.Peer, "redlatch") || slices.Contains([]string{"NewSetNXPX", "NewSemaphore", "NewReadWrite", "WithoutQueue"}, row.Peer)
}

// applies reports whether a peer has a figure in a case.
func applies(metric string, row report.Row) bool {
	switch metric {
	case "disorder":
		return ours(row)
	case "sides":
		return strings.Contains(row.Case, "beside")
	case "owners":
		return !ofPairs(row) && !strings.Contains(row.Group, "writes") // readers share the key
	case "jain", "never", "lock50", "lock99", "longest", "left":
		return !ofPairs(row)
	case "pair50", "pair99", "trips", "mean", "trips99":
		return ofPairs(row)
	case "ratio":
		return ofPairs(row) && !strings.HasPrefix(row.Group, "Redlock")
	}
	return true
}

// ofPairs reports whether a row is of keys that nobody else wants.
func ofPairs(row report.Row) bool {
	_, ok := row.Figures["pair50"]
	return ok
}

// granted reports whether a peer was granted its locks more than once or twice. rueidislock gives
// up on a Redis that takes longer than 20 ms, and hands on slowly. All peers fail on a machine that
// stalls for a second.
func granted(row report.Row) bool {
	rate, measured := row.Figures["rate"]
	return row.Figures["failed"].Median == 0 && (!measured || rate.Median > 10)
}

func TestResultsAreWrittenAnewFromWhatWasMeasured(t *testing.T) {
	redistest.Start(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	readme := filepath.Join(dir, "README.md")
	marks := "# Title\n\n<!-- benchmarks:begin -->\n<!-- benchmarks:end -->\n"
	require.NoError(t, os.WriteFile(readme, []byte(marks), 0o644))

	require.NoError(t, run(t.Context(), settings{run: "^pairs$", out: first, plan: quick}, io.Discard))
	require.NoError(t, run(t.Context(), settings{from: filepath.Join(first, "results.json"), out: second, readme: readme}, io.Discard))
	for _, file := range []string{"results.md", "results.json", "pairs-cpu.svg"} {
		before, err := os.ReadFile(filepath.Join(first, file))
		require.NoError(t, err)
		after, err := os.ReadFile(filepath.Join(second, file))
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), file)
	}
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "# Title\n\n<!-- benchmarks:begin -->\n|"), "%s", text)
	require.Contains(t, string(text), "Lock and unlock a free key")

	// The results describe the machine, but have neither its name nor a path.
	results, err := os.ReadFile(filepath.Join(first, "results.json"))
	require.NoError(t, err)
	var told struct{ Machine map[string]any }
	require.NoError(t, json.Unmarshal(results, &told))
	require.ElementsMatch(t, []string{"cpu", "cores", "os", "arch", "wake"}, slices.Collect(maps.Keys(told.Machine)))
	require.NotContains(t, string(results), dir)
}

func TestNothingToRunIsAnError(t *testing.T) {
	redistest.Start(t)
	out := filepath.Join(t.TempDir(), "out")
	for _, s := range []settings{
		{run: "no such section", out: out, plan: quick},
		{run: "(", out: out, plan: quick},
		{only: "no such case", out: out, plan: quick},
		{only: "(", out: out, plan: quick},
		{from: out, out: out},
	} {
		require.Error(t, run(t.Context(), s, io.Discard), "%+v", s)
	}
	require.NoDirExists(t, out)
}

func TestOnlyMeasuresOneCaseAndPrintsIt(t *testing.T) {
	redistest.Start(t)
	out := filepath.Join(t.TempDir(), "out")
	var printed strings.Builder
	require.NoError(t, run(t.Context(), settings{run: "hotkey", only: "^No hold, 1x64 beside 8x1, redlatch$", out: out, plan: quick}, &printed))
	require.Regexp(t, `^hotkey: No hold, 1x64 beside 8x1, redlatch: rate=[0-9.]+ [^\n]* left=0 failed=0\n$`, printed.String())
	require.NoDirExists(t, out)
}
