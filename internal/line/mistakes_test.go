package line

import (
	"slices"
	"strings"
	"testing"
)

type effects = []Effect[int]

// without removes effects.
func without(out effects, drop func(e *Effect[int]) bool) effects {
	return slices.DeleteFunc(out, func(e Effect[int]) bool { return drop(&e) })
}

// mistakes are those that the explorer must find.
var mistakes = []mistake{
	{name: "nothing is given back when nobody is left", effects: func(_ string, m *Machine[int], out effects) effects {
		return without(out, func(e *Effect[int]) bool { return e.Kind == Give && m.state == Idle })
	}},
	{name: "the pair loses its release", effects: func(_ string, _ *Machine[int], out effects) effects {
		return without(out, func(e *Effect[int]) bool { return e.Kind == Give && e.Next != 0 })
	}},
	{name: "two callers are served", effects: func(event string, m *Machine[int], out effects) effects {
		if c := m.callers.head; event == "outcome" && c != nil && m.state == Holding {
			m.callers.leave(c)
			out = append(out, Effect[int]{Kind: Serve, Token: m.token.number, Caller: c})
		}
		return out
	}},
	{name: "the last in line is served first", before: func(event string, m *Machine[int]) {
		if l := &m.callers; (event == "outcome" || event == "message") && l.length == 2 {
			c := l.head
			l.leave(c)
			l.join(c, now)
		}
	}},
	{name: "the turn serves callers who came later", before: func(_ string, m *Machine[int]) {
		m.turn.last = m.callers.arrivals
	}},
	{name: "a message that comes early is forgotten", before: func(event string, m *Machine[int]) {
		m.early = m.early && event != "outcome"
	}},
	{name: "a message for any token begins a turn", deludes: true},
	{name: "a message is not heard", skips: "message"},
	{name: "a grant that came too late is used", trusts: true},
	{name: "a loss is not noticed", skips: "lost"},
	{name: "the next turn asks with the same token", before: func(event string, m *Machine[int]) {
		if event == "unlock" {
			m.attempts = m.token.number - 1
		}
	}, effects: func(event string, m *Machine[int], out effects) effects {
		for i := range out {
			if event == "unlock" && out[i].Kind == Ask {
				out[i].Fresh = false
			}
		}
		m.attempts = 101
		return out
	}},
	{name: "a change during an acquire sends another", effects: func(event string, m *Machine[int], out effects) effects {
		if event == "changed" && m.state == Asking && len(out) == 0 {
			out = append(out, Effect[int]{Kind: Ask, Token: m.token.number, Age: 1})
		}
		return out
	}},
	{name: "the token is given up while its acquire is under way", effects: func(event string, m *Machine[int], out effects) effects {
		if event == "leave" && m.state == Asking && m.callers.length == 0 {
			out = append(out, Effect[int]{Kind: Give, Token: m.token.number})
		}
		return out
	}},
	{name: "no look is planned", effects: func(_ string, _ *Machine[int], out effects) effects {
		return without(out, func(e *Effect[int]) bool { return e.Kind == Look })
	}},
	{name: "the age of the first caller does not travel", effects: func(_ string, _ *Machine[int], out effects) effects {
		for i := range out {
			out[i].Age = 0
		}
		return out
	}},
	{name: "the acquire of the pair does not queue", effects: func(_ string, _ *Machine[int], out effects) effects {
		for i := range out {
			if i+1 < len(out) && out[i+1].Next != 0 {
				out[i].Entry = NoEntry
			}
		}
		return out
	}},
	{name: "a line that is refused asks again at once", before: func(event string, m *Machine[int]) {
		m.hasten = m.hasten || event == "outcome"
	}},
	{name: "a refusal ends the waits", effects: func(event string, m *Machine[int], out effects) effects {
		for c := m.callers.head; event == "outcome" && m.state == Waiting && c != nil; c = m.callers.head {
			m.callers.leave(c)
			out = append(out, Effect[int]{Kind: Fail, Caller: c})
		}
		return out
	}},
}

func TestTheExplorerFindsMistakes(t *testing.T) {
	for i := range mistakes {
		t.Run(strings.ReplaceAll(mistakes[i].name, " ", "_"), func(t *testing.T) {
			for _, blind := range []bool{true, false} {
				g := game{
					procs: 2, callers: 2, limit: 1, config: lockConfig, channels: allOpen, mistake: &mistakes[i], blind: blind,
				}
				total := bit(!blind)
				if f := g.world().Explore(g.start(total, total)); f.Wrong != "" {
					t.Logf("%s\n%s", f.Wrong, f.History)
					return
				}
			}
			t.Error("not found")
		})
	}
}
