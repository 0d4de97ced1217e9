package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one change of a file.
type mutant struct {
	file     string // below the root of the repository, with slashes
	function string // in which it is; empty: in none
	line     int
	source   string // the whole file, unchanged
	from, to int    // what is replaced
	with     string
}

// changed returns the whole file with the change.
func (m *mutant) changed() string { return m.source[:m.from] + m.with + m.source[m.to:] }

// lines returns the lines that the change touches, before and after it.
func (m *mutant) lines() (before, after string) {
	begin := strings.LastIndexByte(m.source[:m.from], '\n') + 1
	end := len(m.source)
	if next := strings.IndexByte(m.source[m.to:], '\n'); next >= 0 {
		end = m.to + next
	}
	return m.source[begin:end], m.source[begin:m.from] + m.with + m.source[m.to:end]
}

// diff returns the change for a reader.
func (m *mutant) diff() string {
	before, after := m.lines()
	text := fmt.Sprintf("%s:%d %s\n", m.file, m.line, m.function)
	for line := range strings.Lines(before) {
		text += "\t-" + strings.TrimSuffix(line, "\n") + "\n"
	}
	if strings.TrimSpace(after) == "" {
		return text
	}
	for line := range strings.Lines(after) {
		text += "\t+" + strings.TrimSuffix(line, "\n") + "\n"
	}
	return text
}

// what names the change by the file, the function and the first line that it touches, so that it is known
// when the code around it has moved.
func (m *mutant) what() change {
	before, after := m.lines()
	return change{m.file, m.function, firstLine(before), firstLine(after)}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// mutated are the files that mutantsOf changes.
var mutated = []string{
	"*.go", "*.lua", "internal/node/*.go", "internal/inbox/*.go", "internal/lease/*.go", "internal/line/*.go",
	"internal/lua/*.lua",
}

// mutantsOf returns all mutants of the repository at root, in the order of the files.
func mutantsOf(root string) (all []mutant, err error) {
	var files []string
	for _, pattern := range mutated {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		file = filepath.ToSlash(file)
		of := luaMutants(file, string(text))
		if strings.HasSuffix(file, ".go") {
			if of, err = goMutants(file, string(text)); err != nil {
				return nil, err
			}
		}
		all = append(all, of...)
	}
	return all, nil
}
