package report

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The lines between which the README's table stands.
const (
	beginMark = "<!-- benchmarks:begin -->"
	endMark   = "<!-- benchmarks:end -->"
)

// highlight is a row of the README's table.
type highlight struct {
	title, section, group, name, metric string
	span                                bool // of the rounds, where it is wider than the libraries differ
}

// columns are the peers of the README's table.
var columns = []string{"redlatch", "redsync", "bsm/redislock", "rueidislock"}

var highlights = []highlight{
	{
		"Lock and unlock a free key, 1 goroutine: pairs a second, from the slowest to the fastest round",
		"pairs", "Plain client", "1 goroutine", "rate", true,
	},
	{"16 goroutines: pairs a second", "pairs", "Plain client", "16 goroutines", "rate", false},
	{"client CPU a pair", "pairs", "Plain client", "16 goroutines", "client", false},
	{"256 goroutines: pairs a second", "pairs", "Plain client", "256 goroutines", "rate", false},
	{
		"256 goroutines, AutoPipeline client: pairs a second",
		"pairs", "AutoPipeline client", "256 goroutines", "rate", false,
	},
	{
		"256 goroutines, Cluster of three masters: pairs a second",
		"pairs", "Cluster of three masters", "256 goroutines", "rate", false,
	},
	{
		"Round trip of 1 ms, 16 callers: a pair, median",
		"distance", "Free keys, round trip of 1 ms", "16 callers", "pair50", false,
	},
	{"as multiple of two raw commands", "distance", "Free keys, round trip of 1 ms", "16 callers", "ratio", false},
	{"One key, 64 clients: hand-offs a second", "hotkey", "No hold", "64×1", "rate", false},
	{"fairness (1: all are served alike)", "hotkey", "No hold", "64×1", "jain", false},
	{"longest wait, of at most the 2 s of a run", "hotkey", "No hold", "64×1", "longest", false},
	{"not served within the 2 s", "hotkey", "No hold", "64×1", "never", false},
	{"1,024 waiters, held for 5 ms: not served within 7.7 s", "hotkey", "Held for 5 ms", "256×4", "never", false},
	{"Redlock, 5 nodes: lock, median", "redlock", "", "healthy", "lock50", false},
	{"one of them hung: lock, median", "redlock", "", "one hung", "lock50", false},
	{"10,000 locks renewed: goroutines", "renewal", "", "10,000 locks", "goroutines", false},
	{"10,000 locks renewed: memory a lock", "renewal", "", "10,000 locks", "heap", false},
}

// Summary returns the README's table. It has the rows whose sections were run, and fails if there
// are none.
func (r *Report) Summary() (string, error) {
	var rows [][]string
	for _, h := range highlights {
		t := r.find(h.section)
		if t == nil {
			continue
		}
		m, ok := t.metric(h.metric)
		if !ok {
			return "", fmt.Errorf("section %s has no figure %s", h.section, h.metric)
		}
		row, found := []string{h.title}, false
		for _, peer := range columns {
			cell := "–"
			if f, ok := t.figure(h.group, h.name, peer, h.metric); ok {
				cell, found = m.Unit.format(f.Median), true
				if h.span {
					cell = m.Unit.format(slices.Min(f.Rounds)) + "–" + m.Unit.format(slices.Max(f.Rounds))
				}
			}
			row = append(row, cell)
		}
		if !found {
			return "", fmt.Errorf("section %s has no case %s %s", h.section, h.group, h.name)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("no section that the summary needs was run")
	}
	return tabulate(append([]string{""}, columns...), rows, 1) + "\n" + r.circumstances() + ".\n", nil
}

// pictures returns the charts of the README, which are in results.
func (r *Report) pictures() string {
	var b strings.Builder
	for _, c := range r.drawn() {
		if c.readme {
			fmt.Fprintf(&b, "\n![%s](results/%s)\n", c.title, c.file)
		}
	}
	return b.String()
}

// Embed puts the summary and charts between the marks in file, and touches nothing else in it.
func (r *Report) Embed(file string) error {
	summary, err := r.Summary()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := replace(string(text), summary+r.pictures())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

// replace returns text with summary between the marks, which must be there once, in order.
func replace(text, summary string) (string, error) {
	if strings.Count(text, beginMark) != 1 || strings.Count(text, endMark) != 1 {
		return "", fmt.Errorf("want %s and %s, each once", beginMark, endMark)
	}
	before, rest, _ := strings.Cut(text, beginMark)
	_, after, ok := strings.Cut(rest, endMark)
	if !ok {
		return "", fmt.Errorf("%s stands before %s", endMark, beginMark)
	}
	return before + beginMark + "\n" + summary + endMark + after, nil
}
