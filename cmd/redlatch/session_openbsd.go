package main

import (
	"syscall"
	"unsafe"
)

// session returns the session of redlatch, as its terminal knows it. OpenBSD has no system calls by
// number any more, but ioctl.
func (t *terminal) session() int {
	var session int32
	_, _, _ = syscall.Syscall(
		syscall.SYS_IOCTL, uintptr(t.fd), syscall.TIOCGSID, uintptr(unsafe.Pointer(&session)))
	return int(session)
}
