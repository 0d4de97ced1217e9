// Command sim plays one world of the simulation, in a process of its own.
//
//	sim -theme network -seed 7           plays it, and prints the rules that were broken
//	sim -theme network -seed 7 -log      also prints its plan, and each event at its virtual instant
//	sim -theme network -seed 7 -shrink   leaves out operations and faults while the first of these rules is broken, and
//	                                     prints the plan that is left, for testdata/plans
//	sim -plan testdata/plans/keep.json   plays such a plan
//
// The order of what happens at one instant differs, so -tries plays the world up to so many times.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/sim/plan"
	"github.com/redlatch/redlatch/sim/world"
)

var (
	theme  = flag.String("theme", "calm", strings.Join(plan.Themes(), ", "))
	seed   = flag.Uint64("seed", 1, "the seed of the plan")
	file   = flag.String("plan", "", "the file of a plan, in place of a theme and a seed; - is the standard input")
	log    = flag.Bool("log", false, "print the plan, and each event")
	shrink = flag.Bool("shrink", false, "leave out what need not be there for a rule to be broken")
	tries  = flag.Int("tries", 1, "play it up to so many times, until a rule is broken")
	child  = flag.Bool("child", false, "play it in this process")
)

func main() {
	testing.Init() // for the bubble
	flag.Parse()
	p, err := plan.Draw(*theme, *seed)
	if *file != "" {
		p, err = plan.Read(*file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *child {
		play(p)
	}
	broken := children(p, *tries, os.Stdout)
	switch {
	case len(broken) == 0:
		fmt.Println("no rule was broken")
		return
	case *shrink:
		_, _ = os.Stdout.Write(encode(smallest(p, broken[0])))
	}
	os.Exit(1)
}

// encode returns a plan as JSON, without fields that are zero.
func encode(p *plan.Plan) []byte {
	var fields any
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err == nil {
		text, err = json.MarshalIndent(pruned(fields), "", " ")
	}
	if err != nil {
		panic(err) // a plan is data
	}
	return append(text, '\n')
}

func pruned(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if v[name] = pruned(field); slices.Contains([]any{nil, 0.0, "", false}, field) {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
	}
	return value
}

// mark begins a line that names a broken rule.
const mark = "broken: "

// play plays a world in this process, which it ends.
func play(p *plan.Plan) {
	var to io.Writer
	if *log {
		fmt.Print(p)
		to = os.Stdout
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "World", F: func(t *testing.T) {
		r := world.Play(t, p, to)
		for _, b := range r.Broken {
			t.Fail()
			fmt.Printf("%s%s at %v: %s\n", mark, b.Rule, b.At, b.Text)
		}
		fmt.Printf("%v virtual, %d grants, %d faults, %d scripts\n", r.Virtual, r.Grants, r.Faults, r.Scripts)
	}}}, nil, nil)
}

// children plays a plan until a rule is broken, in a process each, and returns the broken rules.
func children(p *plan.Plan, tries int, to io.Writer) (broken []string) {
	for ; tries > 0 && len(broken) == 0; tries-- {
		var out bytes.Buffer
		cmd := exec.Command(os.Args[0], "-child", "-plan", "-", fmt.Sprintf("-log=%v", *log)) //nolint:gosec // this program
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(encode(p)), io.MultiWriter(to, &out), to
		err := cmd.Run()
		for line := range strings.Lines(out.String()) {
			if rule, is := strings.CutPrefix(line, mark); is {
				name, _, _ := strings.Cut(rule, " ")
				broken = append(broken, name)
			}
		}
		if errors.As(err, new(*exec.ExitError)) && len(broken) == 0 {
			broken = []string{"crash"}
		}
	}
	return broken
}

// smallest leaves out faults, and then operations, by halves, while rule is still broken.
func smallest(p *plan.Plan, rule string) *plan.Plan {
	fails := func(p *plan.Plan) bool { return slices.Contains(children(p, max(*tries, 3), io.Discard), rule) }
	p.Faults = halved(p.Faults, func(left []plan.Fault) bool { q := *p; q.Faults = left; return fails(&q) })
	p.Ops = halved(p.Ops, func(left []plan.Op) bool { q := *p; q.Ops = left; return fails(&q) })
	return p
}

// halved returns what is left of all when nothing more can be left out.
func halved[T any](all []T, fails func(left []T) bool) []T {
	for n := (len(all) + 1) / 2; n > 0; n /= 2 {
		for i := 0; i < len(all); {
			if left := slices.Delete(slices.Clone(all), i, min(i+n, len(all))); fails(left) {
				all = left
			} else {
				i += n
			}
		}
		fmt.Fprintf(os.Stderr, "%d %T are left\n", len(all), *new(T))
	}
	return all
}
