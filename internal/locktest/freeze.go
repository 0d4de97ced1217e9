//go:build unix

package locktest

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Freeze stops the process until Continue, and waits until all its threads stand still.
func (p *Process) Freeze(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
}

// Continue lets a frozen process run again.
func (p *Process) Continue(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
}
