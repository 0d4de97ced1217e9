//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import "syscall"

// attributes has the command lead a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
