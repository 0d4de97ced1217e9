//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// watch waits for a command that runs under a lock. It passes signals on, stops when a shell stops
// the command, and ends the command when the lock is lost:
//
//	SIGTERM = end of the lease − grace − reserve, or when the lock is lost in another way
//	SIGKILL = SIGTERM + grace, or end of the lease − reserve if that is earlier
//
// The reserve gives a busy machine time to carry out SIGKILL before Redis can give the key to
// another owner.
type watch struct {
	lock           *redlatch.Lock
	command        *command
	signals        chan os.Signal
	reporter       *reporter
	grace, reserve time.Duration
	maxHold        time.Duration // 0: no limit

	terminal *terminal
	ending   bool // the group must end
}

// left returns the time until the end of the lease, minus the reserve.
func (w *watch) left() time.Duration { return max(time.Until(w.lock.Until())-w.reserve, 0) }

// prepare asks for the signals of job control. They wait until the command has started. One that came
// earlier would stop redlatch, which renews the lock, and not the command.
func (w *watch) prepare() {
	w.terminal = openTerminal()
	pass(w.signals, syscall.SIGTSTP, syscall.SIGWINCH)
	if w.terminal == nil { // else the shell continues redlatch, see suspend
		pass(w.signals, syscall.SIGCONT)
	}
}

// wait waits for the command and returns its exit status. If the lock is lost, it waits until the
// whole group has ended or was sent SIGKILL.
func (w *watch) wait() int {
	defer w.terminal.reclaim(w.command.group)
	// reclaim changes the foreground group from a background group, which raises SIGTTOU. COMMAND
	// is not affected.
	signal.Ignore(syscall.SIGTTOU)

	lost := w.lock.Done()
	notice := time.NewTimer(w.left() - w.grace)
	defer notice.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	look.Stop()
	defer look.Stop()
	var kill <-chan time.Time
	exited, killed, code := false, false, 0
	for {
		select {
		case status := <-w.command.exited:
			exited, code = true, codeOf(status)
			if !w.ending || killed || w.command.empty() {
				return code
			}
			look.Reset(10 * time.Millisecond)
		case <-look.C: // the end of a grandchild raises no signal
			if w.command.empty() {
				return code
			}
		case s := <-w.command.stopped:
			w.follow(s)
		case s := <-w.signals:
			if s != syscall.SIGCONT || w.lock.Err() == nil { // without the lock it must not continue
				w.command.signal(s.(syscall.Signal))
			}
		case <-lost:
			lost = nil
			if !w.ending {
				kill = w.end()
			}
		case <-notice.C:
			switch left := w.left() - w.grace; {
			case w.ending:
			case left > 0: // it was renewed
				notice.Reset(left)
			default:
				kill = w.end()
			}
		case <-kill:
			w.command.signal(syscall.SIGKILL)
			killed = true
			if exited {
				return code
			}
		}
	}
}

// end sends SIGTERM to the group if there is time for a grace. The channel receives when SIGKILL is
// due.
func (w *watch) end() <-chan time.Time {
	w.ending = true
	grace, why := w.grace, w.lock.Err()
	if why == nil {
		grace = min(grace, w.left())
		why = w.approaching()
	}
	if grace > 0 {
		w.command.signal(syscall.SIGTERM)
	}
	complain(fmt.Errorf("run %q: %w: ending COMMAND, with SIGKILL after %v",
		w.lock.Key(), why, grace.Round(time.Millisecond)))
	return time.After(grace)
}

// approaching returns why a lock that is still held is about to end.
func (w *watch) approaching() error {
	failed := w.reporter.renewal()
	switch {
	case failed != nil:
		return fmt.Errorf("the lock is about to be lost: it could not be renewed: %w", failed)
	case w.maxHold > 0:
		return fmt.Errorf("the lock is about to end: -max-hold is %v", w.maxHold)
	}
	return errors.New("the lock is about to be lost: it could not be renewed")
}

// follow does what job control requires when the command was stopped.
func (w *watch) follow(stop syscall.Signal) {
	foreground := w.terminal.foreground()
	switch {
	case w.terminal == nil, stop == syscall.SIGSTOP:
		// Whoever stopped it has to continue it.
	case stop != syscall.SIGTSTP && (foreground == syscall.Getpgrp() || foreground == w.command.group):
		w.terminal.give(w.command.group)
		w.command.signal(syscall.SIGCONT)
	case w.ending:
		// SIGKILL comes soon.
	case w.terminal.jobControl():
		w.suspend(foreground == w.command.group)
	default: // nobody could continue it
		w.command.signal(syscall.SIGCONT)
	}
}

// suspend stops redlatch after its command was stopped. When a shell continues redlatch, it
// continues the command. had means that the command had the terminal.
func (w *watch) suspend(had bool) {
	w.terminal.reclaim(w.command.group)
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(0, syscall.SIGSTOP) // to the group, as the terminal does. Not SIGTSTP: Go cannot undo its Notify
	select {
	case <-resumed: // SIGCONT may come a moment after Kill
	case <-time.After(time.Second):
	}
	if w.lock.Err() != nil {
		return // the command must not continue: wait ends it
	}
	if had && w.terminal.foreground() == syscall.Getpgrp() {
		w.terminal.give(w.command.group)
	}
	w.command.signal(syscall.SIGCONT)
}
