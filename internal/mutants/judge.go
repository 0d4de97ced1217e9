package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// outcome is the result for a mutant.
type outcome string

const (
	caught   outcome = "caught"
	panicked outcome = "caught by a panic"
	timedOut outcome = "caught by a timeout"
	survived outcome = "SURVIVED"
	broken   outcome = "BROKEN" // it does not compile, or the run failed outside of a test
	stale    outcome = "STALE"  // the tree has changed under the table
)

var outcomes = []outcome{caught, panicked, timedOut, survived, broken, stale}

// verdict is an outcome and the reason for it.
type verdict struct {
	outcome outcome
	by      []string // the tests that failed, except those whose subtests failed
	output  string   // their output, or what is wrong with the mutant
}

// summary names the first of the tests that caught the mutant.
func (v verdict) summary() string {
	switch len(v.by) {
	case 0:
		return "-"
	case 1:
		return v.by[0]
	}
	return fmt.Sprintf("%s and %d more", v.by[0], len(v.by)-1)
}

// judge reads what go test -json printed. passed is what its exit status says.
func judge(stdout []byte, passed bool) verdict {
	var (
		running, failed []string
		ran, unbuilt    bool
		how             = caught
		output          = make(map[string]string) // by test; "" for output outside of tests
	)
	for lines := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var e struct{ Action, Test, Output, FailedBuild string }
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return verdict{outcome: broken, output: err.Error() + "\n"}
		}
		unbuilt = unbuilt || e.FailedBuild != ""
		switch e.Action {
		case "run":
			ran = true
			running = append(running, e.Test)
		case "pass", "fail", "skip":
			running = slices.DeleteFunc(running, func(name string) bool { return name == e.Test })
			if e.Action == "fail" && e.Test != "" {
				failed = append(failed, e.Test)
			}
		case "output", "build-output":
			output[e.Test] += e.Output
			switch {
			case strings.HasPrefix(e.Output, "panic: test timed out"):
				how = timedOut
			case how == caught && (strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ")):
				how = panicked
			}
		}
	}
	if how != caught {
		failed = append(failed, running...) // the process ended before they did
	}
	v := verdict{outcome: how, by: innermost(failed)}
	for _, name := range v.by {
		v.output += output[name]
	}
	switch {
	case unbuilt, !passed && len(failed) == 0:
		v.outcome = broken
		v.output += output[""]
	case passed && !ran:
		v.outcome = stale
		v.output = "no test matches\n"
	case passed:
		v.outcome = survived
	}
	return v
}

// innermost leaves out the tests that failed because a subtest did.
func innermost(failed []string) []string {
	var inner []string
	for _, name := range failed {
		within := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		if !slices.ContainsFunc(failed, within) {
			inner = append(inner, name)
		}
	}
	return inner
}
