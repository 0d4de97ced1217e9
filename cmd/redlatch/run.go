//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

const runUsage = `usage: redlatch run [flags] KEY -- COMMAND [ARG...]

Waits until KEY is free, holds the lock while COMMAND runs, and exits with the
status of COMMAND. It exits with 75 if KEY is held, 69 if Redis is unavailable,
and 70 if the lock was lost. COMMAND gets REDLATCH_KEY, REDLATCH_TOKEN and
REDLATCH_FENCE in its environment.

  -try           do not wait
  -timeout D     wait for at most D, such as 30s; the default is no limit
  -ttl D         how long the lock lasts if nothing renews it; the default is 10s
  -grace D       the time between SIGTERM and SIGKILL when the lock is lost, at
                 most a third of -ttl; the default is a third, up to 5s
  -min-hold D    keep others out for D, even if COMMAND ends sooner
  -owner NAME    the name of the holder; the default has the host and the pid
` + redisUsage

const (
	defaultTTL   = 10 * time.Second
	longestGrace = 5 * time.Second // limits the default of -grace
)

// runFlags are the flags and arguments of run.
type runFlags struct {
	redisFlags
	try                          bool
	timeout, ttl, grace, minHold time.Duration
	owner                        string

	key  string
	argv []string
}

// parseRun parses the arguments of run.
func parseRun(args []string) (*runFlags, error) {
	f := &runFlags{}
	set := flag.NewFlagSet("run", flag.ContinueOnError)
	f.addTo(set)
	set.BoolVar(&f.try, "try", false, "")
	set.DurationVar(&f.timeout, "timeout", 0, "")
	set.DurationVar(&f.ttl, "ttl", defaultTTL, "")
	set.DurationVar(&f.grace, "grace", 0, "")
	set.DurationVar(&f.minHold, "min-hold", 0, "")
	set.StringVar(&f.owner, "owner", hostAndPid(), "")
	rest, err := parse(set, runUsage, args)
	if err != nil {
		return nil, err
	}
	given := make(map[string]bool)
	set.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	if !given["grace"] {
		f.grace = min(f.ttl/3, longestGrace)
	}
	switch {
	case len(rest) < 3 || rest[1] != "--":
		return nil, misuse("run", "the arguments must have the form KEY -- COMMAND")
	case f.try && given["timeout"]:
		return nil, misuse("run", "-try and -timeout cannot be combined")
	case f.timeout < 0, given["timeout"] && f.timeout == 0:
		return nil, misuse("run", "-timeout must be positive")
	case f.grace < 0 || f.grace > f.ttl/3:
		return nil, misuse("run", fmt.Sprintf("-grace %v must be between 0 and a third of -ttl %v", f.grace, f.ttl))
	}
	f.key, f.argv = rest[0], rest[2:]
	return f, nil
}

// hostAndPid returns the default of -owner.
func hostAndPid() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}

// options returns the options of the Locker that the flags ask for.
func (f *runFlags) options(hooks redlatch.Hooks) []redlatch.Option {
	opts := []redlatch.Option{redlatch.WithTTL(f.ttl), redlatch.WithOwner(f.owner), redlatch.WithHooks(hooks)}
	if f.minHold != 0 {
		opts = append(opts, redlatch.WithMinHold(f.minHold))
	}
	return opts
}

// run holds a lock while a command runs.
func run(args []string) (int, error) {
	f, err := parseRun(args)
	if err != nil {
		return exitUsage, err
	}
	cmd, err := find(f.argv)
	if err != nil {
		return exitOfStart(err), err
	}
	signals := make(chan os.Signal, 16)
	pass(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	// A stderr that nobody reads must not end redlatch. COMMAND is not affected.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	var r reporter
	c, err := f.connect("run", f.options(r.hooks())...)
	if err != nil {
		return exitUsage, err
	}
	lock, sig, err := f.acquire(c, signals)
	if c.quorum || sig != 0 || errors.Is(err, context.DeadlineExceeded) {
		defer c.settle() // clean-up on slow nodes of a quorum, or after a wait that was cut short
	}
	switch {
	case sig != 0:
		return exitSignal + int(sig), nil
	case err != nil:
		return exitOf(err), err
	}
	return f.hold(lock, cmd, signals, &r)
}

// acquire waits until the lock is granted, the timeout has passed or a signal arrives. It returns the signal.
func (f *runFlags) acquire(c *connection, signals <-chan os.Signal) (*redlatch.Lock, syscall.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if f.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
	}
	defer cancel()
	var lock *redlatch.Lock
	var err error
	over := make(chan struct{})
	go func() { // ends with ctx; acquire waits for it
		defer close(over)
		if f.try {
			lock, err = c.TryLock(ctx, f.key)
		} else {
			lock, err = c.Lock(ctx, f.key)
		}
	}()
	select {
	case <-over:
		return lock, 0, err
	case s := <-signals:
		cancel()
		<-over
		if lock != nil {
			err = lock.Unlock(context.Background())
		}
		return nil, s.(syscall.Signal), err
	}
}

// hold runs cmd under lock and releases the lock, whatever happens.
func (f *runFlags) hold(lock *redlatch.Lock, cmd *command, signals chan os.Signal, r *reporter) (int, error) {
	err := cmd.start(lock)
	if err != nil {
		_ = lock.Unlock(context.Background()) // if this fails, the lock ends with its TTL
		return exitOfStart(err), err
	}
	w := &watch{lock: lock, command: cmd, signals: signals, reporter: r, grace: f.grace, reserve: f.ttl / 20}
	code := w.wait()
	lost := lock.Err()
	err = lock.Unlock(context.Background())
	switch {
	case w.ending:
		return exitLost, nil // it was reported
	case lost != nil:
		return exitLost, lost
	case errors.Is(err, redlatch.ErrLost):
		return exitLost, err
	}
	return code, err // if the release failed, the lock ends with its TTL
}

// reporter reports on stderr what a Locker retries or tolerates. It also keeps the result of the last renewal.
type reporter struct {
	mu     sync.Mutex // guards the fields below
	causes map[string]bool
	failed error // why the last renewal failed; nil if it succeeded
}

// hooks returns the hooks of the lock. Each cause on each node is reported once.
func (r *reporter) hooks() redlatch.Hooks {
	return redlatch.Hooks{
		Trouble: func(e redlatch.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.causes == nil {
				r.causes = make(map[string]bool)
			}
			if at := e.Node + " " + e.Cause; !r.causes[at] {
				r.causes[at] = true
				complain(fmt.Errorf("continuing despite an error: %w", e.Err))
			}
		},
		RenewFailed: func(e redlatch.Event) { r.renewed(e.Err) },
		Renewed:     func(redlatch.Event) { r.renewed(nil) },
	}
}

func (r *reporter) renewed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
}

// renewal returns why the last renewal failed. It is nil if the renewal succeeded.
func (r *reporter) renewal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
