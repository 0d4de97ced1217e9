//go:build !unix

package locktest

import "testing"

// Freeze skips the test: a process cannot be stopped here.
func (p *Process) Freeze(t *testing.T) { t.Skip("processes cannot be stopped on this system") }

// Continue does nothing, since Freeze has skipped the test.
func (p *Process) Continue(*testing.T) {}
