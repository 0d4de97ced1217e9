package history

import (
	"fmt"
	"hash/maphash"

	"github.com/anishathalye/porcupine"
)

// Rules say what a history has to keep to.
type Rules struct {
	// Exclusion: one owner at a time, who believes in its lock before its end and not after, and
	// loses it for no other reason.
	Exclusion bool
	// Fences: each grant has a higher one than the grants before.
	Fences bool
}

// state is what there is of one key.
type state struct {
	owner  string // empty: it is free
	fence  uint64 // the highest
	grants int    // that were had
}

// model returns the rules for one key, as a set of steps. A step that may have happened or not goes
// both ways.
func (r Rules) model() porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(from, input, _ any) []any { return r.step(from.(state), input.(Op)) },
		Hash: func(s any) uint64 { return maphash.Comparable(seed, s.(state)) },
		DescribeOperation: func(input, _ any) string {
			return input.(Op).describe()
		},
		DescribeState: func(s any) string {
			return fmt.Sprintf("owner %.8q, fence %d", s.(state).owner, s.(state).fence)
		},
	}
	return m.ToModel()
}

// step returns what s may become by op; nothing where op cannot be.
func (r Rules) step(s state, op Op) (to []any) {
	free := s
	if s.owner == op.Token {
		free.owner = ""
	}
	switch op.Kind {
	case Grant:
		if op.Unknown {
			to = append(to, s)
		}
		if granted, ok := r.grant(s, op); ok {
			to = append(to, granted)
		}
	case Use:
		// Nobody uses what is not his, nor after the end that he knew.
		if !r.Exclusion || s.owner == op.Token && (op.Blurred || op.Call < op.Until) {
			to = append(to, s)
		}
	case Release:
		switch {
		case op.Unknown:
			to = append(to, s, free)
		// Only the owner can release, unless its lease ended while the command was on its way.
		case !r.Exclusion || s.owner == op.Token || op.late():
			to = append(to, free)
		}
	case Loss:
		// Before the end of the lease there is no reason for a loss.
		if !r.Exclusion || op.late() {
			to = append(to, s)
		}
	case End:
		to = append(to, free)
	}
	return to
}

// grant returns s after a grant, if it can be. The rules leave one order of the grants alone, which
// saves porcupine from trying others:
//
//   - That fences grow: each comes right after the one with the fence before its own.
//   - That there is one owner: they come in the order of their returns. A lease that was had ends after
//     its return. Had a grant taken effect before one that returned earlier, both would have lasted then.
func (r Rules) grant(s state, op Op) (state, bool) {
	switch {
	case r.Exclusion && s.owner != "":
		return s, false
	case op.Unknown:
		return state{owner: op.Token, fence: s.fence, grants: s.grants}, true
	case r.Exclusion && s.grants+1 != op.turn:
		return s, false
	case r.Fences && (op.Fence <= op.after || s.fence != op.after):
		return s, false
	}
	return state{owner: op.Token, fence: op.Fence, grants: s.grants + 1}, true
}
