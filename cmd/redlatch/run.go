//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
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
  -q             print nothing if KEY is held
  -busy-status N exit with N in place of 75 if KEY is held
  -ttl D         how long the lock lasts if nothing renews it; the default is 10s
  -grace D       the time between SIGTERM and SIGKILL when the lock is lost, at
                 most a third of -ttl and of -max-hold; the default is that
                 third, up to 5s
  -min-hold D    keep others out for D, even if COMMAND ends sooner
  -keep-after D  keep others out for D after COMMAND has ended with status 0
  -max-hold D    end COMMAND before it has run for D; the default is no limit
  -owner NAME    the name of the holder; the default is HOST:PID
  -limit N       KEY is a semaphore with up to N holders, on one Redis server
  -read          KEY has many readers or one writer: be a reader; it needs one
                 Redis server
  -write         the same: be a writer
` + redisUsage

const (
	defaultTTL   = 10 * time.Second
	shortestTTL  = 3 * time.Millisecond // that of redlatch.WithTTL
	longestGrace = 5 * time.Second      // limits the default of -grace
)

// runFlags are the flags and arguments of run.
type runFlags struct {
	redisFlags
	try, quiet                                       bool
	busyStatus                                       int
	timeout, ttl, grace, minHold, keepAfter, maxHold time.Duration
	owner                                            []redlatch.Option // of -owner; empty: the default of the library

	key  string
	argv []string
}

// durationVar defines a flag whose error says what is wrong with a duration. That of
// flag.DurationVar does not.
func durationVar(set *flag.FlagSet, d *time.Duration, name string) {
	set.Func(name, "", func(text string) (err error) {
		*d, err = time.ParseDuration(text)
		return err
	})
}

// parseRun parses the arguments of run.
func parseRun(args []string) (*runFlags, error) {
	f := &runFlags{ttl: defaultTTL, busyStatus: exitBusy}
	set := flag.NewFlagSet("run", flag.ContinueOnError)
	f.addServersTo(set)
	f.addKindTo(set)
	set.BoolVar(&f.try, "try", false, "")
	set.BoolVar(&f.quiet, "q", false, "")
	set.Func("busy-status", "", func(text string) (err error) {
		f.busyStatus, err = strconv.Atoi(text)
		if err != nil || f.busyStatus < 0 || f.busyStatus > 255 {
			return errors.New("must be from 0 to 255")
		}
		return nil
	})
	durationVar(set, &f.timeout, "timeout")
	durationVar(set, &f.ttl, "ttl")
	durationVar(set, &f.grace, "grace")
	durationVar(set, &f.minHold, "min-hold")
	durationVar(set, &f.keepAfter, "keep-after")
	durationVar(set, &f.maxHold, "max-hold")
	set.Func("owner", "", func(name string) error {
		f.owner = []redlatch.Option{redlatch.WithOwner(name)}
		return nil
	})
	rest, err := parse(set, runUsage, args)
	if err != nil {
		return nil, err
	}
	given := make(map[string]bool)
	set.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	if !given["grace"] {
		f.grace = min(f.lease()/3, longestGrace)
	}
	switch {
	case len(rest) < 3 || rest[1] != "--":
		return nil, misuse("run", "the arguments must have the form KEY -- COMMAND")
	case f.try && given["timeout"]:
		return nil, misuse("run", "-try and -timeout cannot be combined")
	case f.timeout < 0, given["timeout"] && f.timeout == 0:
		return nil, misuse("run", "-timeout must be positive")
	case f.ttl < shortestTTL:
		return nil, misuse("run", fmt.Sprintf("-ttl %v is below %v", f.ttl, shortestTTL))
	case f.minHold != 0 && f.minHold < time.Millisecond:
		return nil, misuse("run", fmt.Sprintf("-min-hold %v is below 1ms", f.minHold))
	case given["keep-after"] && f.keepAfter < time.Millisecond:
		return nil, misuse("run", fmt.Sprintf("-keep-after %v is below 1ms", f.keepAfter))
	case given["max-hold"] && f.maxHold < time.Millisecond:
		return nil, misuse("run", fmt.Sprintf("-max-hold %v is below 1ms", f.maxHold))
	case f.maxHold > 0 && f.minHold > f.maxHold:
		return nil, misuse("run", fmt.Sprintf("-min-hold %v is longer than -max-hold %v", f.minHold, f.maxHold))
	case f.grace < 0 || f.grace > f.lease()/3:
		return nil, misuse("run",
			fmt.Sprintf("-grace %v must be between 0 and a third of -ttl and of -max-hold", f.grace))
	}
	f.key, f.argv = rest[0], rest[2:]
	return f, nil
}

// lease returns how long the lock lasts at most if nothing renews it.
func (f *runFlags) lease() time.Duration {
	if f.maxHold > 0 {
		return min(f.ttl, f.maxHold)
	}
	return f.ttl
}

// options returns the options of the Locker that the flags ask for.
func (f *runFlags) options(hooks redlatch.Hooks) []redlatch.Option {
	opts := append([]redlatch.Option{redlatch.WithTTL(f.ttl), redlatch.WithHooks(hooks)}, f.owner...)
	if f.maxHold > 0 {
		opts = append(opts, redlatch.WithMaxHold(f.maxHold))
	}
	if f.timeout > 0 {
		opts = append(opts, redlatch.WithMaxWait(f.timeout))
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
	lock, sig, err := f.acquire(c, signals, &r)
	if sig != 0 || err != nil && (f.timeout > 0 || c.quorum) {
		defer c.settle() // clean-up after a wait that was cut short, or on slow nodes of a quorum
	}
	switch code := exitOf(err); {
	case sig != 0:
		return exitSignal + int(sig), nil
	case code == exitBusy && f.quiet:
		return f.busyStatus, nil
	case code == exitBusy:
		return f.busyStatus, err
	case err != nil:
		return code, err
	}
	return f.hold(c, lock, cmd, signals, &r)
}

// hold runs cmd under lock and releases the lock, whatever happens.
func (f *runFlags) hold(
	c *connection, lock *redlatch.Lock, cmd *command, signals chan os.Signal, r *reporter,
) (int, error) {
	began := time.Now()
	w := &watch{
		lock: lock, command: cmd, signals: signals, reporter: r,
		grace: f.grace, reserve: f.lease() / 20, maxHold: f.maxHold,
	}
	w.prepare()
	err := cmd.start(lock)
	if err != nil {
		_ = c.release(lock, 0)
		return exitOfStart(err), err
	}
	code := w.wait()
	lost := lock.Err()
	after := max(f.minHold-time.Since(began), 0)
	if code == 0 {
		after = max(after, f.keepAfter)
	}
	err = c.release(lock, after)
	switch {
	case w.ending:
		return exitLost, nil // it was reported
	case lost != nil:
		return exitLost, fmt.Errorf("run %q: %w", f.key, lost)
	case errors.Is(err, redlatch.ErrLost):
		return exitLost, err
	}
	return code, err // if the release failed, the lock ends with its TTL
}
