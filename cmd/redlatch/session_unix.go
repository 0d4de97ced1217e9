//go:build darwin || dragonfly || freebsd || linux || netbsd

package main

import "syscall"

// session returns the session of redlatch.
func (*terminal) session() int {
	session, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	return int(session)
}
