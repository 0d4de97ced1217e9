package line

import "testing"

// A turn of 64 callers: they join, the first is served, the lock is passed on 63 times, and the
// turn ends.
func turnOf64(m *Machine[int, uint64], callers []Caller[int], buffer []Effect[int, uint64]) {
	if m.State() != Idle {
		return // the turn before has gone wrong
	}
	f := Facts{Now: start, Queues: true, Listens: true}
	for i := range callers {
		m.Join(f, &callers[i], buffer[:0])
	}
	out := m.Granted(f, false, buffer[:0])
	for range callers {
		for _, e := range out {
			if e.Kind == Serve {
				out, _ = m.Unlock(f, e.Token, e.Of, true, true, buffer[:0])
				break
			}
		}
	}
}

func TestTypicalEventsDoNotAllocate(t *testing.T) {
	m := &Machine[int, uint64]{Config: lockConfig}
	callers, buffer := make([]Caller[int], 64), make([]Effect[int, uint64], 8)
	if n := testing.AllocsPerRun(100, func() { turnOf64(m, callers, buffer) }); n > 0 {
		t.Errorf("a turn of 64 callers allocates %v times", n)
	}
	if m.State() != Idle {
		t.Errorf("the line is %v after the turn", m.State())
	}
}
