package report

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chart shows figures of a section, a row for each peer: as bars from zero, or as dots on a
// logarithmic axis, which has no zero that a bar could begin at.
type chart struct {
	file, title, note string
	section           string
	panels            []panel
	marks             []mark
	unit              Unit
	log               bool
	least             float64 // a dashed line; 0: none
	served            bool    // says until when all were served, or how many were not; in this order
	readme            bool    // stands below the README's table
}

// panel is a case of the section.
type panel struct{ title, group, name string }

// mark is how a figure is drawn.
type mark struct {
	title, key string
	shape      shape
}

type shape int

const (
	dot shape = iota
	ring
	tick
	bar
)

var served = []mark{{"served", "served", bar}}

const servedNote = "Share of the callers that got the key at least once within the time. All lock and unlock it in a loop"

var charts = []chart{
	{
		file: "pairs-plain.svg", title: "Lock and unlock a free key, plain client: pairs a second",
		section: "pairs", panels: cases("Plain client", "1 goroutine", "16 goroutines", "256 goroutines"),
		marks: []mark{{"pairs/s", "rate", bar}}, unit: Rate, note: "Each goroutine has its own key.",
	},
	{
		file: "pairs-autopipeline.svg", title: "Lock and unlock a free key, AutoPipeline client: pairs a second",
		section: "pairs", panels: cases("AutoPipeline client", "1 goroutine", "16 goroutines", "256 goroutines"),
		marks: []mark{{"pairs/s", "rate", bar}}, unit: Rate, note: "Each goroutine has its own key.",
	},
	{
		file: "pairs-cluster.svg", title: "Lock and unlock a free key, Cluster of three masters: pairs a second",
		section: "pairs", panels: cases("Cluster of three masters", "1 goroutine", "16 goroutines", "256 goroutines"),
		marks: []mark{{"pairs/s", "rate", bar}}, unit: Rate, note: "Each goroutine has its own key.",
	},
	{
		file: "pairs-cpu.svg", title: "Lock and unlock a free key, plain client: client CPU a pair",
		section: "pairs", panels: cases("Plain client", "1 goroutine", "16 goroutines", "256 goroutines"),
		marks: []mark{{"CPU", "client", bar}}, unit: Seconds,
		note: "Each goroutine has its own key. CPU time of the whole client process.",
	},
	{
		file: "hotkey-rate.svg", title: "One key, no hold: hand-offs a second", note: "Clients × goroutines, on a logarithmic axis.",
		section: "hotkey", panels: cases("No hold", "1×64", "4×64", "8×8", "64×1", "256×4"),
		marks: []mark{{"hand-offs/s", "rate", dot}}, unit: Rate, log: true,
	},
	{
		file: "hotkey-jain.svg", title: "One key, no hold: fairness", note: "Clients × goroutines. Jain's index: 1 if all are served alike.",
		section: "hotkey", panels: cases("No hold", "1×64", "4×64", "8×8", "64×1", "256×4"),
		marks: []mark{{"Jain", "jain", bar}}, unit: Index,
	},
	{
		file: "hotkey-served.svg", title: "One key, held for 5 ms: callers that get it", note: servedNote + ".",
		section: "hotkey", marks: served, unit: Share, served: true, readme: true,
		panels: []panel{
			{"64 callers for 2 s, a client each", "Held for 5 ms", "64×1"},
			{"1,024 callers for 7.7 s, 256 clients", "Held for 5 ms", "256×4"},
		},
	},
	{
		file: "hotkey-served-no-hold.svg", title: "One key, no hold: callers that get it", note: servedNote + ", for 2 s.",
		section: "hotkey", marks: served, unit: Share, served: true,
		panels: []panel{
			{"64 callers, one client", "No hold", "1×64"},
			{"64 callers, a client each", "No hold", "64×1"},
			{"1,024 callers, 256 clients", "No hold", "256×4"},
		},
	},
	{
		file: "hotkey-commands.svg", title: "One key, no hold: commands that Redis runs a hand-off",
		note:    "Clients × goroutines, with the commands of scripts, on a logarithmic axis.",
		section: "hotkey", panels: cases("No hold", "1×64", "4×64", "8×8", "64×1", "256×4"),
		marks: []mark{{"commands", "commands", dot}}, unit: Count, log: true,
	},
	{
		file: "redlock-lock.svg", title: "Redlock on 5 nodes: time to lock",
		note:    "On a logarithmic axis. One hung node is faster than none: there are fewer replies to handle.",
		section: "redlock", panels: cases("", "healthy", "all at 0.5–1.5 ms", "one at 50 ms", "one hung", "one refused"),
		marks: []mark{{"median", "lock50", dot}, {"99 %", "lock99", ring}}, unit: Seconds, log: true, readme: true,
	},
	{
		file: "distance.svg", title: "Lock and unlock a free key over a network, 16 callers: round trips a pair",
		note:    "Each caller has its own key. Two round trips, the dashed line, are the least. A dash: no lock was granted.",
		section: "distance", unit: Ratio, least: 2, readme: true,
		marks: []mark{{"median", "trips", dot}, {"mean", "mean", tick}, {"99 %", "trips99", ring}},
		panels: []panel{
			{"Round trip of 1 ms", "Free keys, round trip of 1 ms", "16 callers"},
			{"Round trip of 5 ms", "Free keys, round trip of 5 ms", "16 callers"},
			{"Round trip of 20 ms", "Free keys, round trip of 20 ms", "16 callers"},
		},
	},
}

// cases returns a panel for each case of a group, by its name.
func cases(group string, names ...string) []panel {
	var all []panel
	for _, name := range names {
		all = append(all, panel{strings.ReplaceAll(name, "×", " × "), group, name})
	}
	return all
}

// ChartFiles returns the names of all charts.
func ChartFiles() []string {
	var files []string
	for _, c := range charts {
		files = append(files, c.file)
	}
	return files
}

// drawn returns the charts that have a figure to show.
func (r *Report) drawn() []chart {
	return slices.DeleteFunc(slices.Clone(charts), func(c chart) bool {
		t := r.find(c.section)
		return t == nil || len(c.values(t)) == 0
	})
}

// values returns the figures that the chart shows.
func (c chart) values(t *Table) []float64 {
	var all []float64
	for _, m := range c.marks {
		all = append(all, c.valuesOf(t, m)...)
	}
	return all
}

func (c chart) valuesOf(t *Table, m mark) (all []float64) {
	for _, p := range c.panels {
		for _, row := range c.rows(t, p) {
			if f, ok := row.Figures[m.key]; ok {
				all = append(all, f.Median)
			}
		}
	}
	return all
}

// rows returns the rows of a panel.
func (c chart) rows(t *Table, p panel) []Row {
	var rows []Row
	for _, row := range t.Rows {
		if row.Group == p.group && row.Case == p.name {
			rows = append(rows, row)
		}
	}
	if c.served {
		slices.SortStableFunc(rows, func(a, b Row) int {
			return cmp.Compare(a.Figures["never"].Median, b.Figures["never"].Median)
		})
	}
	return rows
}

// draw writes the charts into dir.
func (r *Report) draw(dir string) error {
	for _, c := range r.drawn() {
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.svg(r.find(c.section))), 0o644); err != nil {
			return err
		}
	}
	return nil
}
