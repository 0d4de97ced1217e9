package explore

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testing/race"
)

var (
	rewrite = flag.Bool("rewrite", false, "write the output of the scenarios in testdata")
	wide    = flag.Bool("wide", false, "explore larger worlds too: minutes, and gigabytes")
)

// A Size says how large the worlds to explore are.
type Size int

// Sizes.
const (
	Small Size = iota // with -short or the race detector, which slows a walk down tenfold
	Usual
	Wide
)

// Chosen returns the size of the worlds to explore.
func Chosen() Size {
	switch {
	case *wide:
		return Wide
	case testing.Short() || race.Detector():
		return Small
	}
	return Usual
}

// Parallel lets a test run beside others, unless its world is so large that it wants the memory for
// itself.
func Parallel(t *testing.T) {
	t.Helper()
	if Chosen() != Wide {
		t.Parallel()
	}
}

// Words are those of an event.
type Words []string

// Has reports whether there is such a word.
func (a Words) Has(word string) bool { return slices.Contains(a, word) }

// After returns the word behind another one, or "0".
func (a Words) After(word string) string {
	if i := slices.Index(a, word); i >= 0 && i+1 < len(a) {
		return a[i+1]
	}
	return "0"
}

// Duration returns the duration behind a word.
func (a Words) Duration(word string) time.Duration { return Duration(a.After(word)) }

// Duration reads a duration.
func Duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		panic(err)
	}
	return d
}

// Scenarios plays the files of testdata. A line is an event, and the indented lines behind it are
// what play has returned for its words. A comment begins with #.
func Scenarios(t *testing.T, play func(words []string) (output []string)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "  ") {
					continue
				}
				out.WriteString(line)
				if words := strings.Fields(line); len(words) > 0 && words[0][0] != '#' {
					for _, l := range play(words) {
						out.WriteString("  " + l + "\n")
					}
				}
			}
			switch {
			case *rewrite:
				err = os.WriteFile(file, []byte(out.String()), 0o644)
			case out.String() != string(text):
				t.Errorf("%s: the output differs. With -rewrite it would be:\n%s", file, &out)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
