package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// result is the outcome of one run.
type result struct {
	strategy strategy
	seats    int
	fences   []uint64        // one a sale, in the order of the sales
	waits    []time.Duration // one a grant
	elapsed  time.Duration
}

func (r *result) sold() int { return len(r.fences) }

// failure says what a lock should have prevented. A run without a lock cannot fail.
func (r *result) failure() error {
	if r.strategy.locker == nil {
		return nil
	}
	var errs []error
	if r.sold() != r.seats {
		errs = append(errs, fmt.Errorf("%s: sold %d of %d seats", r.strategy.name, r.sold(), r.seats))
	}
	if sale := r.stale(); r.strategy.fenced && sale > 0 {
		errs = append(errs, fmt.Errorf("%s: fence %d of sale %d did not grow", r.strategy.name, r.fences[sale-1], sale))
	}
	return errors.Join(errs...)
}

// stale returns the first sale, counted from 1, whose fence is no larger than the one before, or
// 0 if all fences grew.
func (r *result) stale() int {
	var last uint64
	for i, fence := range r.fences {
		if fence <= last {
			return i + 1
		}
		last = fence
	}
	return 0
}

// report prints results as a table. The error joins the failures, and is nil if every locked
// run did what a lock is for. No results make no table.
func report(w io.Writer, results []result) error {
	if len(results) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "strategy\tseats\tsold\toversold\tgrants\tmedian wait\tlongest wait\tfences\telapsed")
	var errs []error
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%v\n",
			r.strategy.name, r.seats, r.sold(), max(r.sold()-r.seats, 0), r.lockColumns(),
			r.elapsed.Round(time.Millisecond))
		errs = append(errs, r.failure())
	}
	errs = append(errs, table.Flush())
	for _, r := range results {
		if r.strategy.locker == nil && r.sold() <= r.seats {
			_, err := fmt.Fprintf(w, "%s: nothing was oversold this time: try more -buyers or a longer -work\n",
				r.strategy.name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lockColumns returns grants, median wait, longest wait and fences.
func (r *result) lockColumns() string {
	if len(r.waits) == 0 {
		return "-\t-\t-\t-"
	}
	waits := slices.Sorted(slices.Values(r.waits))
	median, longest := waits[len(waits)/2], waits[len(waits)-1]
	fences := "-"
	switch sale := r.stale(); {
	case !r.strategy.fenced:
	case sale > 0:
		fences = "stale at sale " + strconv.Itoa(sale)
	default:
		fences = strconv.Itoa(len(r.fences)) + " growing"
	}
	const digits = 10 * time.Microsecond
	return fmt.Sprintf("%d\t%v\t%v\t%s", len(waits), median.Round(digits), longest.Round(digits), fences)
}

// progress is how far a run has come.
type progress struct {
	sold atomic.Int64
}

// show writes a line about p to w from time to time until the caller calls stop, which writes the
// last one. On a terminal each line overwrites the one before.
func (p *progress) show(w io.Writer, name string, seats int) (stop func()) {
	every, before, after := time.Second, "", "\n"
	if isTerminal(w) {
		every, before, after = 200*time.Millisecond, "\r\x1b[K", ""
	}
	start := time.Now()
	write := func() {
		fmt.Fprintf(w, "%s%s: sold %d of %d seats in %.1fs%s",
			before, name, p.sold.Load(), seats, time.Since(start).Seconds(), after)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // ends with stop, which waits for it
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				write()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		after = "\n"
		write()
	}
}

// isTerminal reports whether w is a device that shows lines to somebody.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
