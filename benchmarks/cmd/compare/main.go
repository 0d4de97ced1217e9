// Compare measures redlatch beside other libraries, on Redis servers that it starts itself, and
// writes a report:
//
//	go -C benchmarks run ./cmd/compare [-run regexp] [-rounds n] [-d duration] [-out dir] [-readme file]
//
// With -only it measures some cases of the sections, and prints a line for each instead.
// With -from it measures nothing, and writes the report of an earlier run again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/benchmarks/internal/report"
	"github.com/redlatch/redlatch/benchmarks/internal/rig"
	"github.com/redlatch/redlatch/benchmarks/internal/sections"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// settings are what the flags say.
type settings struct {
	run, only, from, out, readme string
	plan                         sections.Plan
}

func main() {
	var s settings
	flag.StringVar(&s.run, "run", "", "run the sections whose name matches this `regexp`: "+strings.Join(names(), ", "))
	flag.StringVar(&s.only, "only", "", "measure only what matches this `regexp`, such as \"^No hold, 4x64, redlatch$\", and print it instead of a report")
	flag.StringVar(&s.from, "from", "", "measure nothing, and take what this results.json `file` says")
	flag.StringVar(&s.out, "out", "results", "write results.md, results.json and the charts into this `directory`")
	flag.StringVar(&s.readme, "readme", "", "put a short table and charts between the marks of this `file` too")
	flag.IntVar(&s.plan.Rounds, "rounds", 5, "measure everything so often, and take the median")
	flag.DurationVar(&s.plan.Duration, "d", 500*time.Millisecond, "measure for so long at a time, and longer where a section needs it")
	flag.IntVar(&s.plan.Held, "held", 10_000, "hold so many locks to see what renewal costs")
	flag.Parse()
	if flag.NArg() > 0 || s.plan.Rounds < 1 || s.plan.Duration <= 0 || s.plan.Held < 1 {
		flag.Usage()
		os.Exit(2)
	}
	redis.SetLogger(quiet{}) // it would log every connection that a measurement breaks
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// quiet is a logger of go-redis that says nothing.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func names() []string {
	var all []string
	for _, section := range sections.All() {
		all = append(all, section.Name)
	}
	return all
}

// run measures, or reads the results of an earlier run, and writes the report.
func run(ctx context.Context, s settings, stdout io.Writer) error {
	r, err := obtain(ctx, s)
	if err != nil {
		return err
	}
	if s.only != "" {
		r.Print(stdout)
		return nil
	}
	if err := r.Write(s.out); err != nil {
		return err
	}
	fmt.Fprintln(stdout, filepath.Join(s.out, "results.md"))
	if s.readme == "" {
		return nil
	}
	return r.Embed(s.readme)
}

func obtain(ctx context.Context, s settings) (*report.Report, error) {
	if s.from != "" {
		return report.Read(s.from)
	}
	wanted, err := regexp.Compile(s.run)
	if err != nil {
		return nil, err
	}
	if s.only != "" {
		if s.plan.Only, err = regexp.Compile(s.only); err != nil {
			return nil, err
		}
	}
	return measure(ctx, wanted, s.plan)
}

// measure runs the sections that are wanted, on servers of their own.
func measure(ctx context.Context, wanted *regexp.Regexp, plan sections.Plan) (*report.Report, error) {
	machine, err := report.ThisMachine()
	if err != nil {
		return nil, err
	}
	r := &report.Report{
		Date:     time.Now().Format(time.DateOnly),
		Machine:  machine,
		Rounds:   plan.Rounds,
		Duration: plan.Duration.String(),
	}
	err = rig.Run(func(tb testing.TB) error {
		version, err := redisVersion(ctx, tb)
		r.Versions = report.Versions(version)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, section := range sections.All() {
		if !wanted.MatchString(section.Name) {
			continue
		}
		err := rig.Run(func(tb testing.TB) error {
			line := newLine(os.Stderr)
			defer line.end()
			table, err := section.Run(ctx, tb, plan, line.show)
			if len(table.Rows) > 0 {
				r.Tables = append(r.Tables, table)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(r.Tables) == 0 {
		return nil, errors.New("nothing matches -run and -only")
	}
	return r, nil
}

// redisVersion asks a server that it starts.
func redisVersion(ctx context.Context, tb testing.TB) (string, error) {
	info, err := redistest.Start(tb).Client(tb).Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return version, nil
		}
	}
	return "", errors.New("redis-server does not tell its version")
}
