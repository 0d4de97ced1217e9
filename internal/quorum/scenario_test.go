package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testing/explore"
)

// A line of a scenario is an event. The indented lines behind it are its effects, and the facts on
// a result.
//
//	nodes 3               a fresh token
//	acquire [silent 3]    an operation
//	2 done 7              node 2 answers its oldest command: an outcome, a vote, @holder, what is left
//	settled 2
func TestScenarios(t *testing.T) { explore.Scenarios(t, new(scenario).play) }

type scenario struct {
	token Token
	sent  []Effect // not answered
}

var (
	stepNames    = []string{"acquire", "raise", "extend", "restore", "mint", "release", "inspect", "finish"}
	outcomeNames = []string{"pending", "done", "held", "notheld", "failed"}
	resultNames  = []string{"undecided", "ok", "refused", "lost", "noquorum"}
)

func (s *scenario) play(words []string) []string {
	switch node, err := strconv.Atoi(words[0]); {
	case err == nil:
		for i, e := range s.sent {
			if e.Node == node-1 {
				s.sent = append(s.sent[:i], s.sent[i+1:]...)
				return s.show(s.token.Answer(e, readAnswer(words[1:]), nil))
			}
		}
		return []string{"no command is under way"}
	case words[0] == "nodes":
		n, _ := strconv.Atoi(words[1])
		*s = scenario{token: New(n)}
		return nil
	case words[0] == "settled":
		node, _ := strconv.Atoi(words[1])
		return s.show(s.token.Settled(node-1, nil))
	}
	silent := uint64(0)
	if len(words) > 1 {
		node, _ := strconv.Atoi(words[2])
		silent = 1 << (node - 1)
	}
	return s.show(s.token.Begin(new(Op), Step(slices.Index(stepNames, words[0])), silent, nil))
}

func readAnswer(words []string) (a Answer) {
	a.Outcome = Outcome(slices.Index(outcomeNames, words[0]))
	for _, w := range words[1:] {
		if holder, ok := strings.CutPrefix(w, "@"); ok {
			a.Holder = holder
		} else if d, err := time.ParseDuration(w); err == nil && strings.HasSuffix(w, "s") {
			a.Left = d
		} else {
			a.Vote, _ = strconv.ParseUint(w, 10, 64)
		}
	}
	return a
}

func (s *scenario) show(out []Effect) (lines []string) {
	var commands []string
	for _, e := range out {
		if e.Step == Finish {
			lines = append(lines, s.result(e.Op))
			continue
		}
		s.sent = append(s.sent, e)
		c := fmt.Sprintf("%d %s", e.Node+1, stepNames[e.Step])
		if e.Step == Raise {
			c += fmt.Sprintf(" to %d", e.Fence)
		}
		commands = append(commands, c)
	}
	if len(commands) > 0 {
		lines = append([]string{"send " + strings.Join(commands, ", ")}, lines...)
	}
	return lines
}

func (s *scenario) result(o *Op) string {
	b := fmt.Sprintf("%s is %s", stepNames[o.step], resultNames[o.Result])
	if o.Fence > 0 && o.Result == OK {
		b += fmt.Sprintf(", fence %d", o.Fence)
	}
	if holder, n := o.Holder(); n > 0 {
		b += fmt.Sprintf(", %s holds %d", holder, n)
	}
	if d := o.Left(); d > 0 {
		b += fmt.Sprintf(" for %v", d)
	}
	return b
}

func TestAnOperationAllocatesItsAnswersOnly(t *testing.T) {
	token := New(7)
	var o Op
	var room [16]Effect
	allocs := testing.AllocsPerRun(100, func() {
		token.release = nil
		for _, e := range token.Begin(&o, Acquire, 0, room[:0]) {
			var more [16]Effect
			token.Answer(e, Answer{Outcome: Held, Holder: "x", Left: 1}, more[:0])
		}
		_, _ = o.Left(), o.Result
	})
	if allocs > 1 || o.Result != Refused {
		t.Error(allocs, o.Result)
	}
}
