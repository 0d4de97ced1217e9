//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// terminal is the controlling terminal of redlatch. It is nil if there is none.
type terminal struct{ fd int }

func openTerminal() *terminal {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

// foreground returns the foreground process group, or 0 if there is none.
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

// reclaim takes the foreground from group, if it has it, and gives it to redlatch's own group.
func (t *terminal) reclaim(group int) {
	if t.foreground() == group {
		t.give(syscall.Getpgrp())
	}
}

// jobControl reports whether a shell can continue redlatch. A shell that can leads the session, and
// runs its jobs in other groups than its own.
func (t *terminal) jobControl() bool { return t.session() != syscall.Getpgrp() }

func foregroundOf(fd int) (int, bool) {
	var g int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&g)))
	return int(g), errno == 0
}

// sizeOf returns the size of the terminal f, or zeros if it is unknown.
func sizeOf(f *os.File) (columns, rows int) {
	var size struct{ rows, columns, width, height uint16 }
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	return int(size.columns), int(size.rows)
}

// isTerminal reports whether f is the controlling terminal, where a user can answer.
func isTerminal(f *os.File) bool {
	_, ok := foregroundOf(int(f.Fd()))
	return ok
}
