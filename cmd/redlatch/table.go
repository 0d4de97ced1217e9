package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A table has rows of cells. The first names the columns. A row may be shorter than others.
type table [][]string

// writeTo writes the table in columns. It cuts the table to the columns and the rows of a screen,
// unless they are 0: the middles of long first cells, and the last rows.
func (t table) writeTo(w io.Writer, columns, rows int) {
	hidden := 0
	if rows > 0 && len(t) > rows {
		hidden = len(t) - (rows - 1)
		t = t[:rows-1]
	}
	widths := t.widths()
	if columns > 0 && len(widths) > 0 {
		rest := 0
		for _, width := range widths[1:] {
			rest += len(gap) + width
		}
		widths[0] = min(widths[0], max(columns-1-rest, leastOfKey))
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			if i == 0 {
				cell = middleCut(cell, widths[0])
			} else {
				line.WriteString(gap)
			}
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	if hidden > 0 {
		fmt.Fprintf(w, "and %s more\n", thousands(hidden))
	}
}

const (
	gap        = "  " // between columns
	leastOfKey = 9    // columns of a screen for the first cells
	leastRows  = 3    // of a screen: the names of the columns, a row, and how many more there are
)

// widths returns the width of each column.
func (t table) widths() (widths []int) {
	for _, row := range t {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// middleCut cuts text in the middle to a number of characters.
func middleCut(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	tail := (most - 1) / 2
	return string(runes[:most-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// screenRows returns how many rows of a screen the lines of text take.
func screenRows(text string, columns int) (rows int) {
	for line := range strings.Lines(text) {
		rows++
		if columns > 0 {
			rows += (utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) - 1) / columns
		}
	}
	return rows
}
