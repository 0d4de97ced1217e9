package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// line shows the progress of a section: on a terminal one line that changes, elsewhere one line for
// each tenth.
type line struct {
	to       *os.File
	terminal bool
	width    int // of the text that is shown
	tenth    int
}

func newLine(to *os.File) *line {
	info, err := to.Stat()
	return &line{to: to, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, tenth: -1}
}

func (l *line) show(done, total int, what string) {
	text := fmt.Sprintf("%3d/%d %s", done+1, total, what)
	switch tenth := 10 * done / total; {
	case l.terminal:
		length := utf8.RuneCountInString(text)
		fmt.Fprintf(l.to, "\r%s%s", text, strings.Repeat(" ", max(l.width-length, 0)))
		l.width = length
	case tenth != l.tenth:
		l.tenth = tenth
		fmt.Fprintln(l.to, text)
	}
}

func (l *line) end() {
	if l.terminal && l.width > 0 {
		fmt.Fprintf(l.to, "\r%s\r", strings.Repeat(" ", l.width))
	}
}
