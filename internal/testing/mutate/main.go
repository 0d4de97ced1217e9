// Command mutate shows whether the tests notice when the code is wrong. It changes the code of the root, of
// internal/node, inbox, lease and line, and of the scripts, in one place at a time: a condition is negated, a
// bound moved, a number doubled, an operator swapped, a statement left out. Each change is a mutant. Tests that fail kill it.
//
//	go run ./internal/testing/mutate -n 60 -seed 7            # 60 mutants, which the seed chooses
//	go run ./internal/testing/mutate -n 0 -of node/outcome    # all of the files with that in their names
//	go run ./internal/testing/mutate -n 150 -sim              # the simulation goes first: what it kills alone
//
// It prints those that survive, and fails if these are more than one in twenty. What survives wants a test that
// looks at it, or is code that nothing needs. Only if neither holds, it goes into equivalents.txt, with the
// reason: nobody can tell it from the code.
//
// It needs redis-server. It works on a copy of the tree.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed equivalents.txt
var equivalents string

// enough is which part of the mutants the tests must kill.
const enough = 0.95

func main() {
	n := flag.Int("n", 200, "how many mutants are tested; 0: all")
	seed := flag.Uint64("seed", 0, "chooses them; 0: a fresh one, which is printed")
	of := flag.String("of", "", "only those of files with this in their paths")
	workers := flag.Int("workers", 1, "how many are tested at once")
	simFirst := flag.Bool("sim", false, "the simulation goes first, with new worlds for 12 s: what does it kill alone?")
	list := flag.Bool("list", false, "print the mutants, and test none")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := mutate(ctx, os.Stdout, *n, *seed, *of, *workers, *simFirst, *list)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mutate(ctx context.Context, w io.Writer, n int, seed uint64, of string, workers int, simFirst, list bool) error {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	root := filepath.Dir(strings.TrimSpace(string(module)))
	all, err := chosen(root, seed, of)
	if err != nil {
		return err
	}
	if n == 0 {
		n = len(all)
	}
	fmt.Fprintf(w, "%d of %d mutants, seed %d\n", min(n, len(all)), len(all), seed)
	if list {
		for _, m := range all[:min(n, len(all))] {
			fmt.Fprint(w, m.diff())
		}
		return nil
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	t := tally{left: n, todo: all, w: w}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var working sync.WaitGroup
	for i := range workers {
		copied, err := copyTree(root, filepath.Join(scratch, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		working.Go(func() {
			for m := t.next(); m != nil && ctx.Err() == nil; m = t.next() {
				fate, by, err := copied.test(ctx, m, stages(m, seed, simFirst))
				if err != nil {
					stop(err)
					return
				}
				t.tell(m, fate, by)
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return t.verdict()
}

// chosen returns the mutants of the repository at root in an order that seed chooses, without the equivalent ones.
func chosen(root string, seed uint64, of string) (out []*mutant, err error) {
	all, err := mutantsOf(root)
	if err != nil {
		return nil, err
	}
	known, err := parseEquivalents(equivalents)
	if err != nil {
		return nil, err
	}
	found := make(map[change]bool)
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all)) {
		m := &all[i]
		if what := m.what(); known[what] {
			found[what] = true
		} else if strings.Contains(m.file, of) {
			out = append(out, m)
		}
	}
	for c := range known {
		if !found[c] {
			return nil, fmt.Errorf("equivalents.txt has a mutant that is none any more:\n%s", c)
		}
	}
	return out, nil
}

// A tally has the mutants that are to be tested, and counts their fates.
type tally struct {
	w io.Writer

	mu      sync.Mutex // guards the fields below
	todo    []*mutant
	left    int // of them to be tested
	count   [3]int
	bySim   int
	survive []*mutant
}

// next returns a mutant to test; nil: there is none.
func (t *tally) next() *mutant {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == 0 || len(t.todo) == 0 {
		return nil
	}
	m := t.todo[0]
	t.todo = t.todo[1:]
	t.left--
	return m
}

// tell notes the fate of a mutant. For one that does not build, another one is tested.
func (t *tally) tell(m *mutant, f fate, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[f]++
	switch f {
	case unbuilt:
		t.left++
	case killed:
		if by == simulation.name() {
			t.bySim++
		}
		fmt.Fprintf(t.w, "killed by %s: %s:%d\n", by, m.file, m.line)
	case survived:
		t.survive = append(t.survive, m)
		fmt.Fprintf(t.w, "SURVIVES %s", m.diff())
	}
}

// verdict prints the survivors, and returns an error if they are too many.
func (t *tally) verdict() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.w, "\nkilled: %d (%d by the simulation), survive: %d, do not build: %d\n",
		t.count[killed], t.bySim, t.count[survived], t.count[unbuilt])
	for _, m := range t.survive {
		fmt.Fprint(t.w, m.diff())
	}
	if tested := t.count[killed] + t.count[survived]; float64(t.count[killed]) < enough*float64(tested) {
		return fmt.Errorf("the tests kill %d of %d mutants, fewer than %v %%", t.count[killed], tested, 100*enough)
	}
	return nil
}
