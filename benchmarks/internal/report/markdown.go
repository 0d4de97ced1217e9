package report

import (
	"fmt"
	"slices"
	"strings"
)

// markdown returns the whole report.
func (r *Report) markdown() string {
	var b strings.Builder
	b.WriteString("# Results\n\nWritten by `go -C benchmarks run ./cmd/compare`; " +
		"[what the figures mean](../README.md).\n\n")
	fmt.Fprintf(&b, "%s.\n", r.circumstances())
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", t.Title, t.About)
		for _, group := range t.groups() {
			if group != "" {
				fmt.Fprintf(&b, "\n### %s\n", group)
			}
			b.WriteString("\n" + t.markdown(group))
		}
		for _, c := range r.drawn() {
			if c.section == t.Section {
				fmt.Fprintf(&b, "\n![%s](%s)\n", c.title, c.file)
			}
		}
	}
	return b.String()
}

// circumstances returns the machine, the versions, the number of rounds and the date.
func (r *Report) circumstances() string {
	var versions []string
	for _, v := range r.Versions {
		versions = append(versions, v.Name+" "+v.Version)
	}
	wake := ""
	if r.Machine.Wake != "" {
		wake = ", " + r.Machine.Wake + " to wake a thread"
	}
	return fmt.Sprintf("%s, %s, %s/%s%s. %s. Medians of %s, %s a measurement and more where a section says so, %s",
		count(r.Machine.Cores, "core"), r.Machine.CPU, r.Machine.OS, r.Machine.Arch, wake,
		strings.Join(versions, ", "), count(r.Rounds, "round"), r.Duration, r.Date)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// markdown returns the table of a group. A case is named in its first row only, and a figure that no
// row has is left out.
func (t *Table) markdown(group string) string {
	head := []string{"", ""}
	metrics := t.measured(group)
	for _, m := range metrics {
		head = append(head, m.Title)
	}
	var rows [][]string
	last := ""
	for _, row := range t.Rows {
		if row.Group != group {
			continue
		}
		cells := []string{row.Case, row.Peer}
		if row.Case == last {
			cells[0] = ""
		}
		last = row.Case
		for _, m := range metrics {
			cells = append(cells, row.cell(m))
		}
		rows = append(rows, cells)
	}
	return tabulate(head, rows, 2)
}

// measured returns the metrics that a row of the group has.
func (t *Table) measured(group string) []Metric {
	return slices.DeleteFunc(slices.Clone(t.Metrics), func(m Metric) bool {
		return !slices.ContainsFunc(t.Rows, func(row Row) bool {
			_, ok := row.Figures[m.Key]
			return ok && row.Group == group
		})
	})
}

// cell returns a figure of the row, or a dash.
func (r Row) cell(m Metric) string {
	f, ok := r.Figures[m.Key]
	if !ok {
		return "–"
	}
	return m.Unit.format(f.Median)
}

// tabulate returns a Markdown table whose first columns are text, and the others figures.
func tabulate(head []string, rows [][]string, text int) string {
	var b strings.Builder
	line := func(cells []string) {
		for i, cell := range cells {
			cells[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
		if i >= text {
			rule[i] = "---:"
		}
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
