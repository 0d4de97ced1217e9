package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/sim/judge"
	"github.com/redlatch/redlatch/sim/plan"
	"github.com/redlatch/redlatch/sim/world"
)

var (
	forFlag    = flag.Duration("for", 0, "how long Soak runs; 0: not at all")
	seedFlag   = flag.Uint64("seed", 0, "the first seed of Soak; 0: a fresh one, which is printed")
	stopFlag   = flag.Bool("stop", false, "Soak ends when a rule was broken")
	procsFlag  = flag.Int("procs", runtime.NumCPU(), "how many processes play the worlds of Soak side by side")
	themesFlag = flag.String("themes", "", "those that are played, with commas between them; empty: all")
)

const (
	fewest = 2 // worlds of each theme that are played in each run
	often  = 5 // so often is each plan of testdata, since what happens at one instant has several orders
)

// play plays a world. It fails t if a rule was broken.
func play(t *testing.T, theme string, seed uint64) (r world.Result) {
	t.Run(fmt.Sprint(theme, "/", seed), func(t *testing.T) {
		p, err := plan.Draw(theme, seed)
		require.NoError(t, err)
		r = world.Play(t, p, nil)
		for _, b := range r.Broken[:min(len(r.Broken), 5)] {
			t.Errorf("theme %s, seed %d: %v", theme, seed, b)
		}
		if t.Failed() {
			t.Log("see", written(t, p, r.Events))
		}
	})
	return r
}

// written writes what happened to a file, since it may not happen again, and returns its name.
func written(t *testing.T, p *plan.Plan, events []judge.Event) string {
	t.Helper()
	text := p.String()
	for _, e := range events {
		text += e.String() + "\n"
	}
	name := filepath.Join(os.TempDir(), fmt.Sprintf("redlatch-sim-%s-%d.log", p.Theme, p.Seed))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// themes returns those that are played.
func themes() []string {
	if *themesFlag == "" {
		return plan.Themes()
	}
	return strings.Split(*themesFlag, ",")
}

// TestThemes plays fixed seeds of each theme, with each kind of Locker that the theme has.
func TestThemes(t *testing.T) {
	for _, theme := range themes() {
		for _, seed := range seedsOf(t, theme) {
			require.NotZero(t, play(t, theme, seed).Grants)
		}
	}
}

// seedsOf returns the first seeds of a theme whose worlds together have each of its kinds: two a world
// that no world before had, while there are two.
func seedsOf(t *testing.T, theme string) (seeds []uint64) {
	missing := plan.Kinds(theme)
	for seed := uint64(1); len(missing) > 0 || len(seeds) < fewest; seed++ {
		p, err := plan.Draw(theme, seed)
		require.NoError(t, err)
		left := slices.DeleteFunc(slices.Clone(missing), func(k plan.Kind) bool {
			return slices.ContainsFunc(p.Groups, func(g plan.Group) bool { return g.Kind == k })
		})
		if len(missing)-len(left) == min(2, len(missing)) {
			seeds, missing = append(seeds, seed), left
		}
	}
	return seeds
}

// TestPlans plays what has failed before: each plan in testdata/plans is what was left of one.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			p, err := plan.Read(file)
			require.NoError(t, err)
			for range often {
				require.Empty(t, world.Play(t, p, nil).Broken)
			}
		})
	}
}

// TestSoak plays new seeds, one theme after the other, in several processes.
func TestSoak(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("it runs for as long as -for says")
	}
	themes, seed := themes(), *seedFlag
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<40)
	}
	fmt.Println("-seed", seed)
	ctx, stop := context.WithCancel(t.Context()) // when a process is to end that plays beside this one
	defer stop()
	var others sync.WaitGroup
	defer others.Wait()
	for i := range *procsFlag - 1 {
		others.Go(func() {
			if !soaksBeside(ctx, seed+uint64(i+1)<<apart) { //nolint:gosec // a small number
				t.Error("a process that played beside this one has failed")
				if *stopFlag {
					stop()
				}
			}
		})
	}
	ends := func() bool { return *stopFlag && t.Failed() }
	total := make([]totals, len(themes))
	for end := time.Now().Add(*forFlag); time.Now().Before(end); seed++ {
		for i, theme := range themes {
			if begin := time.Now(); !ends() {
				total[i].add(play(t, theme, seed), time.Since(begin))
			}
		}
		if ends() {
			stop()
			return
		}
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	for i, theme := range themes {
		fmt.Printf("%-9s %v\n", theme, total[i])
	}
	fmt.Printf("%d MB of heap\n", heap.HeapAlloc>>20)
}

// apart is a power of two: so many seeds are between the first ones of two processes.
const apart = 41

// soaksBeside plays Soak in a process of its own, with the flags of this one. It reports whether no rule
// was broken until ctx ended.
func soaksBeside(ctx context.Context, seed uint64) bool {
	args := append(slices.Clone(os.Args[1:]), "-test.run=Soak", "-procs=1", fmt.Sprint("-seed=", seed))
	cmd := exec.CommandContext(ctx, os.Args[0], args...) //nolint:gosec // this program
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s", out)
	return err == nil || ctx.Err() != nil
}

// totals are what the worlds of a theme have in sum.
type totals struct {
	worlds, grants, faults, scripts, broken int
	virtual, real                           time.Duration
}

func (x *totals) add(r world.Result, took time.Duration) {
	x.worlds++
	x.grants += r.Grants
	x.faults += r.Faults
	x.scripts += r.Scripts
	x.broken += min(len(r.Broken), 1)
	x.virtual += r.Virtual
	x.real += took
}

func (x totals) String() string {
	return fmt.Sprintf("%5d worlds, %6.2f virtual hours in %v, %7d grants, %6d faults, %8d scripts, %d broken",
		x.worlds, x.virtual.Hours(), x.real.Round(time.Second), x.grants, x.faults, x.scripts, x.broken)
}

func TestMain(m *testing.M) {
	flag.Parse()
	// A world is played by two threads, so that what happens at one instant has several orders.
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	debug.SetGCPercent(400) // a world is small
	os.Exit(m.Run())
}
