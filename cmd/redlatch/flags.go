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
const redisUsage = `  -redis URL     a Redis; repeat it to lock on a quorum of servers (Redlock)
  -prefix TEXT   stands before KEY in Redis; the default is none

Without -redis, REDIS_URL in the environment names the Redis, or several with
spaces in between. Use it for URLs with passwords.
`

// redisFlags are the flags of all commands.
type redisFlags struct {
	urls   []string
	prefix string
}

func (f *redisFlags) addTo(set *flag.FlagSet) {
	set.Func("redis", "", func(url string) error { // parsed later: package flag prints what cannot be parsed
		f.urls = append(f.urls, url)
		return nil
	})
	set.StringVar(&f.prefix, "prefix", "", "")
}

// errHelped says that the usage was asked for and printed.
var errHelped = errors.New("helped")

// parse parses args and returns those behind the flags. The usage is printed if it was asked for.
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

// misuse returns the error of arguments that cannot work.
func misuse(command, what string) error {
	return fmt.Errorf("%s: %s: see redlatch %s -h", command, withoutURL(what), command)
}

// withoutURL cuts off what stands behind the scheme of a URL: it may be a password.
func withoutURL(text string) string {
	if before, _, found := strings.Cut(text, "://"); found {
		return before + "://…"
	}
	return text
}
