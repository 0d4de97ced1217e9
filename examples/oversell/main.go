// Command oversell sells the seats of a show to many buyers at once, first without a lock and
// then under each strategy of redlatch, and shows how many seats were sold that were not there.
//
//	go run ./examples/oversell
//	go run ./examples/oversell -redis 127.0.0.1:6379 -buyers 32
//
// A sale reads from Redis how many seats are left, works for a moment and writes one less. Buyers
// who do that side by side sell one seat many times. Under a lock each seat is sold once, and the
// fence of each sale is larger than that of the sale before.
//
// No server is needed: the default is a few embedded ones. The exit status is 1 if a locked run
// sold too many seats or too few, a fence did not grow, or an error occurred.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// A strategy is one way to guard the sale.
type strategy struct {
	name   string
	fenced bool      // its locks have a fence, which must grow
	locker newLocker // nil: no lock at all
}

// newLocker makes the Locker of one buyer from the buyer's clients, one for each node.
type newLocker func(nodes []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)

// strategies are run in this order.
var strategies = []strategy{
	{name: "no lock"},
	{name: "setnxpx", fenced: true, locker: onFirst(redlatch.NewSetNXPX)},
	{name: "legacysetnx", locker: onFirst(redlatch.NewLegacySetNX)},
	{name: "redlock", fenced: true, locker: redlatch.NewRedlock},
}

// onFirst serves a strategy that keeps its locks on one node, which is the first.
func onFirst(locker func(redis.UniversalClient, ...redlatch.Option) (redlatch.Locker, error)) newLocker {
	return func(nodes []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return locker(nodes[0], opts...)
	}
}

// config is what the flags say.
type config struct {
	addrs  []string // of the Redis nodes; none: embedded ones
	buyers int
	seats  int
	work   time.Duration // between the read and the write of a sale
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the clean-up
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "oversell:", err)
		os.Exit(1)
	}
}

// run sells under each strategy in turn, shows on stderr how that goes, and prints the outcome on
// stdout. The end of ctx ends it early; the runs that were complete are printed. Its keys are
// removed from Redis in any case. The error joins all that makes the exit status 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if len(cfg.addrs) == 0 {
		addrs, stop, err := embed()
		if err != nil {
			return err
		}
		defer stop()
		cfg.addrs = addrs
	}
	s, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	results, err := sellUnderEach(ctx, s, stderr)
	return errors.Join(err, s.close(ctx), report(stdout, results))
}

// sellUnderEach returns the results of the runs that were complete, and what stopped the next one.
func sellUnderEach(ctx context.Context, s *shop, stderr io.Writer) ([]result, error) {
	var results []result
	for _, st := range strategies {
		var p progress
		stop := p.show(stderr, st.name, s.seats)
		r, err := s.sellOut(ctx, st, &p)
		stop()
		if err != nil {
			return results, fmt.Errorf("%s: %w", st.name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// parse reads the flags. An error names the flag. For -h it prints the usage on stdout and returns
// flag.ErrHelp.
func parse(args []string, stdout io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("oversell", flag.ContinueOnError)
	flags.Func("redis", "use the servers at `host:port[,host:port...]`, independent nodes; the seats "+
		"are kept on the first (default: embedded ones)", func(list string) (err error) {
		cfg.addrs, err = parseAddrs(list)
		return err
	})
	flags.IntVar(&cfg.buyers, "buyers", 8, "buyers at once, each with clients of its own")
	flags.IntVar(&cfg.seats, "seats", 200, "seats to sell")
	flags.DurationVar(&cfg.work, "work", time.Millisecond, "work of a sale, between its read and its write")

	flags.SetOutput(io.Discard) // the caller prints the error
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		flags.Usage()
		return cfg, err
	case err != nil:
		return cfg, err
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.buyers < 1:
		return cfg, fmt.Errorf("-buyers %d: below 1", cfg.buyers)
	case cfg.seats < 1:
		return cfg, fmt.Errorf("-seats %d: below 1", cfg.seats)
	case cfg.work < 0:
		return cfg, fmt.Errorf("-work %v: below 0", cfg.work)
	}
	return cfg, nil
}
