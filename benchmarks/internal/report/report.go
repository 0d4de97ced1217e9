// Package report keeps the results of a comparison and writes them: as JSON, as Markdown, as
// charts, and as the short table of the README.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
)

// Report is one run of the comparison.
type Report struct {
	Date     string    `json:"date"`
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`
	Rounds   int       `json:"rounds"`
	Duration string    `json:"duration"` // of one measurement, as -d said
	Tables   []Table   `json:"tables"`
}

// Table is what one section has found.
type Table struct {
	Section string   `json:"section"`
	Title   string   `json:"title"`
	About   string   `json:"about"`
	Metrics []Metric `json:"metrics"`
	Rows    []Row    `json:"rows"`
}

// Metric is a column.
type Metric struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	Unit  Unit   `json:"unit"`
}

// Row is what was found about one peer in one case.
type Row struct {
	Group   string            `json:"group,omitempty"`
	Case    string            `json:"case"`
	Peer    string            `json:"peer"`
	Figures map[string]Figure `json:"figures"` // by key of the metric
}

// Name returns group, case and peer, with an x for each ×, which is hard to type.
func (r Row) Name() string {
	name := r.Case + ", " + r.Peer
	if r.Group != "" {
		name = r.Group + ", " + name
	}
	return strings.ReplaceAll(name, "×", "x")
}

// Figure is the median of what the rounds gave.
type Figure struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

// Sample is the result of one measurement, by key of the metric. NaN says that there is no value,
// such as the latency of a call that never succeeded.
type Sample map[string]float64

// Add adds the sample of another round, to six digits.
func (r *Row) Add(sample Sample) {
	if r.Figures == nil {
		r.Figures = make(map[string]Figure)
	}
	for key, value := range sample {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		f := r.Figures[key]
		f.Rounds = append(f.Rounds, sixDigits(value))
		f.Median = sixDigits(measure.Median(f.Rounds))
		r.Figures[key] = f
	}
}

func sixDigits(value float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 6, 64), 64)
	return rounded
}

// find returns the table of a section, or nil.
func (r *Report) find(section string) *Table {
	i := slices.IndexFunc(r.Tables, func(t Table) bool { return t.Section == section })
	if i < 0 {
		return nil
	}
	return &r.Tables[i]
}

// metric returns the metric with that key.
func (t *Table) metric(key string) (Metric, bool) {
	i := slices.IndexFunc(t.Metrics, func(m Metric) bool { return m.Key == key })
	if i < 0 {
		return Metric{}, false
	}
	return t.Metrics[i], true
}

// figure returns what was found about a peer in a case.
func (t *Table) figure(group, name, peer, key string) (Figure, bool) {
	for _, row := range t.Rows {
		if row.Group == group && row.Case == name && row.Peer == peer {
			f, ok := row.Figures[key]
			return f, ok
		}
	}
	return Figure{}, false
}

// groups returns the groups of the rows, each once and in their order.
func (t *Table) groups() []string {
	var all []string
	for _, row := range t.Rows {
		if !slices.Contains(all, row.Group) {
			all = append(all, row.Group)
		}
	}
	return all
}

// Write writes results.json, results.md and the charts into dir.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := r.draw(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "results.md"), []byte(r.markdown()), 0o644)
}

// Print writes a line for each row: the section, the name of the row, and the medians by key, in
// the base unit.
func (r *Report) Print(to io.Writer) {
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			fmt.Fprintf(to, "%s: %s:", t.Section, row.Name())
			for _, m := range t.Metrics {
				if f, ok := row.Figures[m.Key]; ok {
					fmt.Fprintf(to, " %s=%v", m.Key, f.Median)
				}
			}
			fmt.Fprintln(to)
		}
	}
}

// Read reads a results.json.
func Read(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}
