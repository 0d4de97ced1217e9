package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// lab runs the tests of packages of the module, and of modules below it, mutated and not.
type lab struct {
	root  string                // of the module
	dir   string                // for mutated files and what is built of them, removed by close
	tests map[string][]testFile // by package, as mutant.in names it
}

// newLab returns a lab for the mutants in chosen. The caller must close it.
func newLab(ctx context.Context, chosen []mutant) (*lab, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	l := &lab{root: strings.TrimSpace(string(root)), tests: make(map[string][]testFile)}
	for in := range packages(chosen) {
		if l.tests[in], err = readTests(l.root, in); err != nil {
			return nil, err
		}
	}
	l.dir, err = os.MkdirTemp("", "mutants")
	return l, err
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// packages returns the tests of mutants by the package that has them.
func packages(chosen []mutant) map[string][]string {
	tests := make(map[string][]string)
	for _, m := range chosen {
		if !slices.Contains(tests[m.in], m.tests) {
			tests[m.in] = append(tests[m.in], m.tests)
		}
	}
	return tests
}

// unmutated runs the tests of all the mutants on the tree as it is, package by package. A test that
// fails there proves nothing.
func (l *lab) unmutated(ctx context.Context, chosen []mutant) error {
	for in, tests := range packages(chosen) {
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
	var v verdict
	for range tries {
		if v = l.test(ctx, m.in, m.tests, "-overlay", overlay); v.outcome != survived {
			break
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
// that is embedded. It leaves out the external test package if m does not need it, which saves half of
// the build.
func (l *lab) overlay(m mutant, text string) (string, error) {
	dir, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, filepath.Base(m.file))
	replace := map[string]string{filepath.Join(l.root, m.file): mutated}
	for _, name := range l.needless(m.in, m.tests) {
		replace[name] = ""
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
func (l *lab) needless(in, match string) []string {
	var names []string
	for _, f := range l.tests[in] {
		if !f.external {
			continue
		}
		for _, path := range alternatives(match) {
			test, _, _ := strings.Cut(path, "/")
			if re, err := regexp.Compile(test); err != nil || slices.ContainsFunc(f.tests, re.MatchString) {
				return nil
			}
		}
		names = append(names, f.name)
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
