//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import (
	"errors"
	"os"
)

// run needs process groups.
func run([]string) (int, error) {
	return exitUnavailable, errors.New("run needs Linux, macOS or a BSD")
}

// sizeOf returns zeros: the size of the terminal f is unknown.
func sizeOf(*os.File) (columns, rows int) { return 0, 0 }

// isTerminal reports whether f may be a terminal, where a user can answer.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
