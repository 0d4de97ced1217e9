//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// terminal is the controlling terminal of redlatch. Nil: it has none.
type terminal struct{ fd int }

func openTerminal() *terminal {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

// foreground returns the foreground group, 0 if there is none.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, _ := foregroundOf(t.fd)
	return group
}

// give makes group the foreground group.
func (t *terminal) give(group int) {
	g := int32(group)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(t.fd), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g)))
}

// reclaim makes redlatch's own group the foreground group if group is that.
func (t *terminal) reclaim(group int) {
	if t.foreground() == group {
		t.give(syscall.Getpgrp())
	}
}

// jobControl reports whether a shell can continue redlatch. Such a shell leads the session, and its jobs are not in
// its own group.
func jobControl() bool {
	session, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	return int(session) != syscall.Getpgrp()
}

func foregroundOf(fd int) (int, bool) {
	var g int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&g)))
	return int(g), errno == 0
}

// isTerminal reports whether f is the controlling terminal, where somebody can answer.
func isTerminal(f *os.File) bool {
	_, ok := foregroundOf(int(f.Fd()))
	return ok
}
