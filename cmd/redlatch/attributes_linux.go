package main

import "syscall"

// attributes has the command lead a group of its own, and die with redlatch.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
