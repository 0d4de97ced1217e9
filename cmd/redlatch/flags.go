package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// redisUsage describes the flags of redisFlags.
const redisUsage = `  -redis URL     a Redis server; repeat it to lock on a quorum (Redlock)
  -prefix TEXT   put TEXT before KEY in Redis; the default is none

Without -redis, the environment variable REDIS_URL names the server, or several
separated by spaces. Use it for URLs with passwords.
`

// redisFlags are the flags that all commands have.
type redisFlags struct {
	urls   []string
	prefix string
}

func (f *redisFlags) addTo(set *flag.FlagSet) {
	set.Func("redis", "", func(url string) error { // parsed later: an error of package flag would contain the URL
		f.urls = append(f.urls, url)
		return nil
	})
	set.StringVar(&f.prefix, "prefix", "", "")
}

// errHelped means that args asked for the usage, and that it was printed.
var errHelped = errors.New("helped")

// parse parses the flags in args and returns the arguments after them. It prints usage if args ask for it.
func parse(set *flag.FlagSet, usage string, args []string) ([]string, error) {
	set.SetOutput(io.Discard)
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, usage)
		return nil, errHelped
	case err != nil:
		return nil, misuse(set.Name(), err.Error())
	}
	return set.Args(), nil
}

// misuse returns the error for invalid arguments.
func misuse(command, what string) error {
	return fmt.Errorf("%s: %s: see redlatch %s -h", command, withoutURL(what), command)
}

// withoutURL cuts text off after the scheme of a URL, since the rest may contain a password.
func withoutURL(text string) string {
	if before, _, found := strings.Cut(text, "://"); found {
		return before + "://…"
	}
	return text
}
