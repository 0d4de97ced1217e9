package main

import "syscall"

// attributes makes the command the leader of a process group, and has Linux kill it when redlatch
// dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
