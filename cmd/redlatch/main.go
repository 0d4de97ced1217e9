package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// The exit statuses of redlatch itself. They follow sysexits.h and the shells.
const (
	exitDeclined    = 1
	exitUsage       = 64 // EX_USAGE
	exitUnavailable = 69 // EX_UNAVAILABLE
	exitLost        = 70 // EX_SOFTWARE
	exitOutput      = 74 // EX_IOERR
	exitBusy        = 75 // EX_TEMPFAIL
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // + the number of the signal
)

const usage = `usage: redlatch run [flags] KEY -- COMMAND [ARG...]
       redlatch list [flags]
       redlatch watch [flags]
       redlatch status [flags] KEY...
       redlatch unlock [flags] KEY
       redlatch version

run holds a lock in Redis while COMMAND runs. list shows all locks, and status
some of them by name. watch prints hand-overs as they happen. unlock releases a
lock. "redlatch run -h" shows the flags of run, and so on.
`

func main() {
	code, err := dispatch(os.Args[1:])
	if err != nil {
		complain(err)
	}
	os.Exit(code)
}

// dispatch runs the command that args name. It returns the exit status and the error to print, if
// any. Output that could not be written is an error.
func dispatch(args []string) (int, error) {
	stdout = output{}
	code, err := carryOut(args)
	if stdout.err != nil {
		return exitOutput, stdout.err
	}
	return code, err
}

func carryOut(args []string) (int, error) {
	commands := map[string]func(args []string) (int, error){
		"run": run, "list": list, "status": status, "watch": watchMessages, "unlock": unlock, "version": version,
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	command := commands[name]
	switch {
	case name == "-h", name == "-help", name == "--help", name == "help" && len(args) == 1:
		fmt.Fprint(&stdout, usage)
		return 0, nil
	case name == "help" && commands[args[1]] != nil:
		command, args = commands[args[1]], []string{"", "-h"}
	case command == nil && name == "":
		fmt.Fprint(os.Stderr, usage)
		return exitUsage, nil
	case command == nil:
		return exitUsage, errors.New(withoutURL(fmt.Sprintf("unknown command %q: see redlatch -h", name)))
	}
	code, err := command(args[1:])
	if errors.Is(err, errHelped) {
		return 0, nil
	}
	return code, err
}

const versionUsage = `usage: redlatch version

Prints the version of redlatch, of Go and of the platform.
`

// version prints what the build recorded.
func version(args []string) (int, error) {
	rest, err := parse(flag.NewFlagSet("version", flag.ContinueOnError), versionUsage, args)
	if err == nil && len(rest) > 0 {
		err = misuse("version", "it has no arguments")
	}
	if err != nil {
		return exitUsage, err
	}
	number := "(unknown)"
	if build, ok := debug.ReadBuildInfo(); ok {
		number = cmp.Or(versionOf(build.Main), number)
	}
	fmt.Fprintln(&stdout, "redlatch", number, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return 0, nil
}

// versionOf returns the version of a module, or "". Code that replaces a version is not that
// version.
func versionOf(m debug.Module) string {
	if m.Replace != nil {
		return m.Replace.Version
	}
	return m.Version
}

// complain prints err on stderr, on one line.
func complain(err error) { note(os.Stderr, err) }

// note writes err on one line. The prefix "redlatch: " appears only once.
func note(w io.Writer, err error) {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "redlatch: "), "\n", " ")
	text = inFlags(strings.ReplaceAll(text, ": redlatch: ", ": "))
	var answer redis.Error
	if errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "MOVED ") {
		text += " (a Redis Cluster needs a redis+cluster URL)"
	}
	fmt.Fprintln(w, "redlatch: "+text)
}

// exitOf returns the exit status for an error of a Locker.
func exitOf(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, redlatch.ErrInvalid):
		return exitUsage
	case errors.Is(err, redlatch.ErrNotAcquired):
		return exitBusy
	}
	return exitUnavailable
}
