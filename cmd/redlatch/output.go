package main

import "os"

// output is stdout. It keeps the first error: the disk may be full.
type output struct{ err error }

// stdout is for all that the commands print, but for COMMAND, which has stdout itself.
var stdout output

func (o *output) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}
