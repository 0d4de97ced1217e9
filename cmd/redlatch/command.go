//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"github.com/redlatch/redlatch"
)

// command is COMMAND: a process that leads a process group of its own.
type command struct {
	cmd   *exec.Cmd
	group int // also the pid of the process

	exited  chan syscall.WaitStatus // receives one value, at the end
	stopped chan syscall.Signal     // receives the signal of each stop
}

// find looks up the executable of a command. It starts nothing.
func find(argv []string) (*command, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return &command{cmd: cmd, exited: make(chan syscall.WaitStatus, 1), stopped: make(chan syscall.Signal)}, nil
}

// exitOfStart returns the exit status for a command that could not be started, as shells do.
func exitOfStart(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitCannotRun
}

// start starts the command, with lock in its environment. It must run in the main goroutine.
func (c *command) start(lock *redlatch.Lock) error {
	c.cmd.Env = append(os.Environ(),
		"REDLATCH_KEY="+lock.Key(), "REDLATCH_TOKEN="+string(lock.Token()),
		"REDLATCH_FENCE="+strconv.FormatUint(lock.Fence(), 10), heldVariable+"="+withHeld(lock.Token()))
	c.cmd.SysProcAttr = attributes()
	// Linux kills the command when the thread that started it ends. The thread of the main
	// goroutine ends with the process.
	runtime.LockOSThread()
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", c.cmd.Args[0], err)
	}
	c.group = c.cmd.Process.Pid
	_ = c.cmd.Process.Release() // Process.Wait does not report stops
	go c.wait()
	return nil
}

// wait reports every stop of the process, and its end, for which watch waits. It also reaps orphans
// of the process, which redlatch inherits as PID 1 of a container. It returns when redlatch has no
// child left.
func (c *command) wait() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case pid != c.group:
		case status.Stopped():
			c.stopped <- status.StopSignal()
		default:
			c.exited <- status
		}
	}
}

// signal sends s to all processes of the group.
func (c *command) signal(s syscall.Signal) {
	_ = syscall.Kill(-c.group, s) // fails if no process is left
}

// empty reports whether no process of the group is left. Zombies count: their parent may never reap
// them.
func (c *command) empty() bool { return syscall.Kill(-c.group, 0) != nil }

// codeOf returns the exit status of a process, as shells do.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// pass delivers signals to a channel. Signals that are ignored stay ignored, also for the command.
func pass(to chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}
