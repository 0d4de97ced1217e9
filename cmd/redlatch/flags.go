package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// redisUsage describes the flags of redisFlags.
const redisUsage = `  -redis URL     a Redis server, its Sentinels, or a Redis Cluster; repeat it
                 for each server of a quorum (Redlock)
  -prefix TEXT   put TEXT before KEY in Redis; the default is none
  -cert FILE     a certificate for TLS, if the servers ask for one
  -cert-key FILE its private key, if that is not in the same file

Without -redis, the environment variable REDIS_URL names the server, or several
separated by spaces. Use it for URLs with passwords.
`

// redisFlags are the flags that all commands have, and the flags of run that say what KEY is.
type redisFlags struct {
	urls    []string
	cert    string // a file
	certKey string // a file; empty: that of cert
	limit   int    // of a semaphore; 0: the key is none
	reads   bool
	writes  bool
	prefix  string
}

// addKindTo adds the flags of run that say what KEY is.
func (f *redisFlags) addKindTo(set *flag.FlagSet) {
	set.Func("limit", "", func(text string) (err error) {
		f.limit, err = strconv.Atoi(text)
		if err == nil && f.limit < 1 {
			err = errors.New("must be positive")
		}
		return err
	})
	set.BoolVar(&f.reads, "read", false, "")
	set.BoolVar(&f.writes, "write", false, "")
}

// addServersTo adds the flags of all commands.
func (f *redisFlags) addServersTo(set *flag.FlagSet) {
	set.Func("redis", "", func(url string) error { // parsed later: an error of package flag would contain the URL
		f.urls = append(f.urls, url)
		return nil
	})
	set.StringVar(&f.cert, "cert", "", "")
	set.StringVar(&f.certKey, "cert-key", "", "")
	set.StringVar(&f.prefix, "prefix", "", "")
}

// errHelped means that args asked for the usage, and that it was printed.
var errHelped = errors.New("helped")

// parse parses the flags in args and returns the arguments after them. It prints usage if args ask
// for it.
func parse(set *flag.FlagSet, usage string, args []string) ([]string, error) {
	set.SetOutput(io.Discard)
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(&stdout, usage)
		return nil, errHelped
	case err != nil:
		return nil, misuse(set.Name(), err.Error())
	}
	return set.Args(), nil
}

// misuse returns the error for invalid arguments, which what may contain.
func misuse(command, what string) error { return refusal(command, withoutURL(what)) }

func refusal(command, what string) error {
	return fmt.Errorf("%s: %s: see redlatch %s -h", command, what, command)
}

// inFlags replaces what a text of the library tells Go programs to do.
func inFlags(text string) string {
	return advice.Replace(optionOwner.ReplaceAllString(text, "-owner $1: "))
}

var (
	optionOwner = regexp.MustCompile(`WithOwner\((".*")\): `)

	advice = strings.NewReplacer(
		"as WithMaxHold allows", "as -max-hold allows",
		"use another key or WithKeyPrefix", "a semaphore needs -limit, a read-write lock -read or -write, "+
			"and a lock none of them; or use another KEY or -prefix",
		"use a cluster client, or a WithKeyPrefix with", "use a redis+cluster URL, or a -prefix with",
		"give the client the password of its user", "put the password into the URL",
		"the client's Username or Password is wrong", "the user or the password in the URL is wrong",
		"invalid argument: limit ", "invalid argument: -limit ",
	)
)

// withoutURL cuts text off after the scheme of a URL, since the rest may contain a password.
func withoutURL(text string) string {
	if before, _, found := strings.Cut(text, "://"); found {
		return before + "://…"
	}
	return text
}
