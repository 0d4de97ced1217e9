// Mutants shows that the tests catch mistakes: it makes known ones, one at a time, and runs the tests that must
// fail.
//
//	go run ./internal/mutants [-run regexp] [-since revision] [-p n] [-v]
//
// The tree is not changed: a mutant exists only in a build overlay. A mutant is caught when a test fails. One that
// does not compile, or whose old text is not in the tree any more, proves nothing and must be fixed. With -since
// only those run that a change can affect: it is in the mutant's file, in a test function that must catch it, or in
// its entry in the table. The exit status is 0 if every mutant was caught.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("run", "", "run the mutants whose name matches this `regexp`")
	since := flag.String("since", "", "run the mutants that what has changed since this `revision` can matter to")
	parallel := flag.Int("p", 2, "run so many mutants at once")
	verbose := flag.Bool("v", false, "tell of each mutant as soon as it has ended, and what its tests said")
	flag.Parse()
	if flag.NArg() > 0 || *parallel < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, *only, *since, *parallel, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run judges the mutants whose name matches only and, if since is set, that changes since that revision affect. It
// prints the table to w and reports whether all were caught.
func run(ctx context.Context, w io.Writer, only, since string, parallel int, verbose bool) (bool, error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	var chosen []mutant
	for _, m := range mutants {
		if wanted.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("no mutant matches %q", only)
	}
	l, err := newLab(ctx)
	if err != nil {
		return false, err
	}
	defer l.close()
	if since != "" {
		if chosen, err = l.touched(ctx, chosen, since); err != nil {
			return false, err
		}
		if len(chosen) == 0 {
			fmt.Fprintln(w, "nothing that a mutant is about has changed since", since)
			return true, nil
		}
	}
	if err := l.unmutated(ctx, chosen); err != nil {
		return false, err
	}

	verdicts := make([]verdict, len(chosen))
	free := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, m := range chosen {
		free <- struct{}{}
		wg.Go(func() { // ends with its test run, and that with ctx
			defer func() { <-free }()
			begin := time.Now()
			verdicts[i] = l.try(ctx, m)
			if verbose {
				fmt.Fprintf(os.Stderr, "%d/%d %s: %s (%.1fs)\n%s", i+1, len(chosen), m.name, verdicts[i].outcome,
					time.Since(begin).Seconds(), verdicts[i].output)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	return report(w, chosen, verdicts), nil
}

// report prints the outcome of each mutant and reports whether all were caught.
func report(w io.Writer, chosen []mutant, verdicts []verdict) bool {
	count := make(map[outcome]int)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MUTANT\tRULE\tOUTCOME\tBY")
	for i, m := range chosen {
		v := verdicts[i]
		count[v.outcome]++
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", m.name, m.rule, v.outcome, v.summary())
	}
	table.Flush()
	fmt.Fprintf(w, "\n%d mutants", len(chosen))
	for _, o := range outcomes {
		if count[o] > 0 {
			fmt.Fprintf(w, ", %d %s", count[o], o)
		}
	}
	fmt.Fprintln(w)
	for i, m := range chosen {
		if o := verdicts[i].outcome; o == broken || o == stale {
			fmt.Fprintf(w, "\n%s is %s:\n%s", m.name, o, verdicts[i].output)
		}
	}
	return count[survived]+count[broken]+count[stale] == 0
}
