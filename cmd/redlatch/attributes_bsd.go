//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import "syscall"

// attributes makes the command the leader of a process group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
