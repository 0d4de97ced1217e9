package line

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/testing/explore"
)

// start is the instant 0 of a scenario.
const start = clock.Mono(1000 * time.Second)

// A scenario is a line whose events are read from a file. An indented line of the file is output:
// the effects of the event before it, and behind "=" what the line does then.
//
//	new [queues] [dash] [shares] [fresh-tokens] [confirms] [passes N] [ttl D]
//	at D, channel closed|opening|open, load TOOK AT-REST, random R,    facts from now on
//	    queues, polls
//	join NAME [for D] [waited D] [hook] [follows] [refused]            for: until its deadline
//	granted [fresh], refused, failed, permanent, late                  the outcome of an acquire, with
//	    [left D] [first] [fresh] [foreign] [moved] [clean] [ended] [opens]
//	refusals N                                                         due and refused, N times; the output is that of the last
//	message TOKEN [late], lost TOKEN
//	unlock TOKEN [fixed] [apart]                                       the turn may not pass the lock on; the release carries nothing
//	leave NAME, news NAME, due [early], changed                        due: at the time of the look, unless early
type scenario struct {
	m       Machine[string, uint64]
	f       Facts
	callers map[string]*Caller[string]
	look    clock.Mono
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// play carries out an event, and returns the output.
func (s *scenario) play(words []string) []string {
	name, a := words[0], explore.Words(words[1:])
	var out []Effect[string, uint64]
	switch name {
	case "new":
		*s = scenario{callers: make(map[string]*Caller[string]), f: Facts{Now: start, Queues: a.Has("queues"), Listens: true}}
		s.m.Config = Config{
			Dash: a.Has("dash"), Several: a.Has("shares"), Quorum: a.Has("quorum"),
			Confirms: a.Has("confirms"), Passes: int(number(a.After("passes"))), TTL: 10 * time.Second,
			Shortest: 8 * time.Millisecond, Longest: 128 * time.Millisecond,
		}
		if a.Has("ttl") {
			s.m.TTL = a.Duration("ttl")
		}
		return nil
	case "at":
		s.f.Now = start.Add(explore.Duration(a[0]))
		return nil
	case "channel":
		s.f.Listens = a[0] == "open"
		return nil
	case "queues", "polls":
		s.f.Queues = words[0] == "queues"
		return nil
	case "untold", "told":
		s.f.Untold = words[0] == "untold"
		return nil
	case "load":
		s.f.Took, s.f.Idle = explore.Duration(a[0]), explore.Duration(a[1])
		return nil
	case "rest":
		s.f.Yield = s.f.Now.Add(explore.Duration(a[0]))
		return nil
	case "random":
		s.f.Random, _ = strconv.ParseFloat(a[0], 64)
		return nil
	case "news":
		return []string{s.news(a)}
	case "join":
		c := &Caller[string]{Of: a[0], Since: s.f.Now.Add(-a.Duration("waited")), Tell: a.Has("hook"), Refused: a.Has("refused"), Follows: a.Has("follows")}
		if a.Has("for") {
			c.Deadline = s.f.Now.Add(a.Duration("for"))
		}
		s.callers[a[0]] = c
		out = s.m.Join(s.f, c, out)
	case "leave":
		left := false
		if out, left = s.m.Leave(s.callers[a[0]], out); !left {
			return []string{"too late"}
		}
	case "granted":
		out = s.m.Granted(s.f, a.Has("fresh"), out)
	case "message":
		out = s.m.Message(s.f, number(a[0]), a.Has("late"), out)
	case "due":
		if !a.Has("early") {
			s.f.Now = max(s.f.Now, s.look)
		}
		out = s.m.Due(s.f, out)
	case "refusals":
		var last []string
		for range number(a[0]) {
			s.play([]string{"due"})
			last = s.play(append([]string{"refused"}, a[1:]...))
		}
		return last
	case "changed":
		out = s.m.Changed(s.f, out)
	case "unlock":
		var passed bool
		out, passed = s.m.Unlock(s.f, number(a[0]), number(a[0]), !a.Has("fixed"), !a.Has("apart"), out)
		if given := slices.ContainsFunc(out, func(e Effect[string, uint64]) bool { return e.Kind == Give }); passed == given {
			return []string{"wrong: Unlock reports what is not so"}
		}
	case "lost":
		out = s.m.Lost(s.f, number(a[0]), out)
	default:
		out = s.notGranted(name, a, out)
	}
	return s.output(out)
}

func (s *scenario) notGranted(name string, a explore.Words, out []Effect[string, uint64]) []Effect[string, uint64] {
	answer, ok := map[string]Answer{"refused": Refused, "failed": Failed, "permanent": Permanent, "late": Late, "unconfirmed": Unconfirmed}[name]
	if !ok {
		panic("no such event: " + name)
	}
	return s.m.NotGranted(s.f, Outcome{
		Answer: answer, Err: errors.New(name), Clean: a.Has("clean") || answer == Refused, Ended: a.Has("ended"), Opens: a.Has("opens"),
		Left: a.Duration("left"), First: a.Has("first"), NewEntry: a.Has("fresh"), Foreign: a.Has("foreign"),
		Moved: a.Has("moved"),
	}, out)
}

func (s *scenario) output(out []Effect[string, uint64]) (lines []string) {
	for _, e := range out {
		switch {
		case e.Kind == Look:
			s.look = e.At
		case e.Kind == Ask && e.NewToken:
			s.m.Made(e.Token)
		case e.Next != 0:
			s.m.Made(e.Next)
		case e.Of != e.Token:
			lines = append(lines, fmt.Sprintf("wrong: attempt %d", e.Of))
		}
		lines = append(lines, e.String())
	}
	m := &s.m
	text := fmt.Sprintf("= %v", m.state)
	if t := m.token; t.number > 0 {
		text += fmt.Sprintf(", token %d", t.number)
		if t.entry != NoEntry {
			text += fmt.Sprintf(" with %v entry", t.entry)
		}
	}
	if m.callers.head != nil {
		text += ", in line:"
		for c := m.callers.head; c != nil; c = c.next {
			text += " " + c.Of
		}
	}
	return append(lines, text)
}

func (s *scenario) news(a explore.Words) string {
	n := s.m.News(s.callers[a[0]])
	text := fmt.Sprint(n.Answer)
	if n.Err != nil {
		text += fmt.Sprintf(" at %v", n.At.Sub(start))
	}
	if n.Asking > 0 {
		text += fmt.Sprintf(", asking since %v", n.Asking.Sub(start))
	}
	return fmt.Sprintf("%s, attempts: %d", text, n.Attempts)
}

func (e Effect[T, A]) String() string {
	switch e.Kind {
	case Ask:
		text := fmt.Sprintf("Ask with token %d", e.Token)
		if e.NewToken {
			text = fmt.Sprintf("Ask with the fresh token %d", e.Token)
		}
		text += fmt.Sprintf(" and %v entry, age %v", e.Entry, e.Age)
		if e.Again {
			text += ", again"
		}
		return text
	case Give:
		if e.Next > 0 {
			return fmt.Sprintf("Give token %d, which carries the acquire with %d and %v entry, age %v", e.Token, e.Next, e.Entry, e.Age)
		}
		return fmt.Sprintf("Give token %d", e.Token)
	case Serve:
		text := fmt.Sprintf("Serve %v with token %d, pass %d", e.Caller.Of, e.Token, e.Pass)
		if e.Handed {
			text += ", by the message"
		}
		return text + e.attempts()
	case Fail:
		return fmt.Sprintf("Fail %v: %v", e.Caller.Of, e.Err) + e.attempts()
	case Tell:
		if e.Moved {
			return fmt.Sprintf("Tell %v of another holder: %v", e.Caller.Of, e.Err) + e.attempts()
		}
		if e.Err == nil {
			return fmt.Sprintf("Tell %v that this process holds the key", e.Caller.Of) + e.attempts()
		}
		return fmt.Sprintf("Tell %v: %v", e.Caller.Of, e.Err) + e.attempts()
	case Look:
		return fmt.Sprintf("Look at %v", e.At.Sub(start))
	case Missed:
		return fmt.Sprintf("Missed a message since %v", e.At.Sub(start))
	}
	return e.Kind.String()
}

func (e Effect[T, A]) attempts() string {
	if e.Attempts == 1 {
		return ""
	}
	return fmt.Sprintf(", after %d attempts", e.Attempts)
}

func TestScenarios(t *testing.T) { explore.Scenarios(t, new(scenario).play) }
