package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// lab runs the tests of packages of the module, and of modules below it, mutated and not.
type lab struct {
	root  string // of the module
	dir   string // for mutated files and what is built of them, removed by close
	tests testFiles
}

// newLab returns a lab. The caller must close it.
func newLab(ctx context.Context) (*lab, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	l := &lab{root: strings.TrimSpace(string(root))}
	if l.tests, err = readAllTests(l.root); err != nil {
		return nil, err
	}
	l.dir, err = os.MkdirTemp("", "mutants")
	return l, err
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// byPackage returns the tests of mutants by the packages that have them.
func (tests testFiles) byPackage(chosen []mutant) map[string][]string {
	matches := make(map[string][]string)
	for _, m := range chosen {
		for _, in := range tests.packages(m.tests) {
			if !slices.Contains(matches[in], m.tests) {
				matches[in] = append(matches[in], m.tests)
			}
		}
	}
	return matches
}

// unmutated runs the tests of all the mutants on the tree as it is, package by package. A test that
// fails there proves nothing.
func (l *lab) unmutated(ctx context.Context, chosen []mutant) error {
	for in, tests := range l.tests.byPackage(chosen) {
		v := l.test(ctx, in, strings.Join(tests, "|"))
		if v.outcome != survived {
			return fmt.Errorf("the tests of ./%s do not pass on the tree as it is: %s\n%s", in, strings.Join(v.by, ", "), v.output)
		}
	}
	return nil
}

// tries is how often the tests of a mutant run before it has survived: some mistakes show only when
// one of several goroutines or nodes comes first.
const tries = 3

// try runs the tests that are meant to catch m.
func (l *lab) try(ctx context.Context, m mutant) verdict {
	text, err := m.apply(l.root)
	if err != nil {
		return verdict{outcome: stale, output: err.Error() + "\n"}
	}
	overlay, err := l.overlay(m, text)
	if err != nil {
		return verdict{outcome: broken, output: err.Error() + "\n"}
	}
	v := verdict{outcome: stale, output: "no test matches\n"}
	for range tries {
		for _, in := range l.tests.packages(m.tests) {
			if v = l.test(ctx, in, m.tests, "-overlay", overlay); v.outcome != survived {
				return v
			}
		}
	}
	return v
}

// apply returns m's file with the mistake made.
func (m mutant) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has this text %d times, not once:\n%s", m.file, n, m.old)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// overlay writes a file that makes the go command read text in place of m's file, which may be one
// that is embedded. It leaves out the external test packages that m does not need, which saves half of
// the build.
func (l *lab) overlay(m mutant, text string) (string, error) {
	dir, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, filepath.Base(m.file))
	replace := map[string]string{filepath.Join(l.root, m.file): mutated}
	for _, in := range l.tests.packages(m.tests) {
		for _, name := range l.tests.needless(in, m.tests) {
			replace[name] = ""
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o600)
}

// needless returns the files of the external test package of a package if none of its tests matches.
func (tests testFiles) needless(in, match string) []string {
	var names []string
	for _, f := range tests[in] {
		switch {
		case !f.external:
		case f.matches(match):
			return nil
		default:
			names = append(names, f.name)
		}
	}
	return names
}

// test runs the tests of a package that match and judges their output. Vet is off since it would refuse some
// mistakes before they run. Inlining and debug information are off too, since they take a third of the build.
func (l *lab) test(ctx context.Context, in, match string, flags ...string) verdict {
	args := append([]string{"test", "-json", "-count=1", "-timeout=60s", "-vet=off", "-gcflags=-l", "-ldflags=-w", "-run=" + match}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(l.root, in) // the package may be in a module of its own
	cmd.Env = append(os.Environ(),
		"REDLATCH_REQUIRE_REDIS=1", // a skipped test catches nothing
		"GOCACHE="+filepath.Join(l.dir, "cache"),
	)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	v := judge(stdout, err == nil)
	if v.outcome == broken {
		v.output += stderr.String()
	}
	return v
}
