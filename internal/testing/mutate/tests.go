package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// A fate is what became of a mutant.
type fate int

const (
	survived fate = iota
	killed
	unbuilt
)

// A tree is a copy of the repository, in which one mutant after the other is tested.
type tree string

// copyTree copies the repository at root.
func copyTree(root, to string) (tree, error) {
	return tree(to), filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.Name() == ".git": // a file in a worktree
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), text, 0o644)
	})
}

// A stage is a package whose tests are run. The first that fails ends the life of a mutant.
type stage struct {
	dir   string // of its module
	pkg   string
	flags []string
}

// name returns the package, as people call it.
func (s stage) name() string {
	if name := path.Join(s.dir, s.pkg); name != "." {
		return strings.TrimPrefix(name, "internal/")
	}
	return "root"
}

var simulation = stage{dir: "sim", pkg: "."}

// stages returns the stages of a mutant: the tests of its package, and then those which see all. The tests
// that compare texts of scripts, or replies with recorded ones, are not among them: they fail for every change.
func stages(m *mutant, seed uint64, simFirst bool) []stage {
	all := []stage{{dir: ".", pkg: "."}, {dir: ".", pkg: "./internal/testing/behavior"}}
	switch dir := path.Dir(m.file); {
	case strings.HasSuffix(m.file, ".lua"):
		all = append([]stage{{dir: ".", pkg: "./internal/testing/scripttest"}}, all...)
	case dir != ".":
		all = append([]stage{{dir: ".", pkg: "./" + dir}}, all...)
	}
	if !simFirst {
		return append(all, simulation)
	}
	longer := simulation
	longer.flags = []string{"-for", "12s", "-stop", "-procs", "1", "-seed", fmt.Sprint(seed)}
	return append([]stage{longer}, all...)
}

// test tests a mutant. It returns the name of the stage that has killed it.
func (t tree) test(ctx context.Context, m *mutant, stages []stage) (f fate, by string, err error) {
	undo, err := t.change(ctx, m)
	if err != nil {
		return survived, "", err
	}
	for _, s := range stages {
		if f, err = t.run(ctx, s); f != survived || err != nil {
			return f, s.name(), errors.Join(err, undo())
		}
	}
	return survived, "", undo()
}

// change puts a mutant in its place. undo takes it back.
func (t tree) change(ctx context.Context, m *mutant) (undo func() error, err error) {
	file := filepath.Join(string(t), filepath.FromSlash(m.file))
	put := func(text string) error {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil || !strings.HasSuffix(file, ".lua") {
			return err
		}
		_, err := t.goTest(ctx, ".", "./internal/lua", "-run", "Digests|Protocol", "-args", "-update")
		return err
	}
	return func() error { return put(m.source) }, put(m.changed())
}

var (
	noBuild = regexp.MustCompile(`\[(build|setup) failed\]`)
	kills   = regexp.MustCompile(`(?m)^\s*(--- FAIL|panic:|theme \w+, seed \d+: |fatal error:|WARNING: DATA RACE)`)
)

// run runs the tests of a package. A mutant that does not build is neither killed nor does it survive.
func (t tree) run(ctx context.Context, s stage) (fate, error) {
	flags := append([]string{"-short", "-failfast", "-ldflags=-w", "-timeout", "5m"}, s.flags...)
	out, err := t.goTest(ctx, s.dir, s.pkg, flags...)
	switch {
	case err == nil:
		return survived, nil
	case ctx.Err() != nil:
		return survived, ctx.Err()
	case noBuild.Match(out):
		return unbuilt, nil
	case kills.Match(out):
		return killed, nil
	}
	return survived, fmt.Errorf("go test %s: %w\n%s", s.pkg, err, out)
}

// mostMemory is what one process of a test may use, in KiB: a mutant may make a loop endless that allocates.
const mostMemory = "8000000"

func (t tree) goTest(ctx context.Context, dir, pkg string, flags ...string) (out []byte, err error) {
	script := "ulimit -v " + mostMemory + ` && exec go test "$@"`
	words := append([]string{"-c", script, "sh", "-vet=off", "-count=1", pkg}, flags...)
	cmd := exec.CommandContext(ctx, "sh", words...)
	cmd.Dir = filepath.Join(string(t), dir)
	return cmd.CombinedOutput()
}
