package history

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Rules say what a history has to keep to.
type Rules struct {
	// Exclusion: up to Holders owners at a time. Each believes in its lock before its end and not after,
	// and loses it for no other reason.
	Exclusion bool
	// Holders is the limit of a semaphore. 0 and 1: a lock.
	Holders int
	// Fences: each grant has a higher one than the grants before. Semaphores keep to it too, since the
	// script that grants a permit mints its fence.
	Fences bool
}

// state is what there is of one key.
type state struct {
	owners owners
	fence  uint64 // the highest
	grants int    // that were had
}

// owners are the tokens of those who own a key, sorted and separated by spaces.
type owners string

func (o owners) tokens() []string { return strings.Fields(string(o)) }

func (o owners) has(token string) bool { return slices.Contains(o.tokens(), token) }

func (o owners) with(token string) owners {
	all := append(o.tokens(), token)
	slices.Sort(all)
	return owners(strings.Join(all, " "))
}

func (o owners) without(token string) owners {
	others := slices.DeleteFunc(o.tokens(), func(t string) bool { return t == token })
	return owners(strings.Join(others, " "))
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
			return fmt.Sprintf("owners %.8q, fence %d", s.(state).owners.tokens(), s.(state).fence)
		},
	}
	return m.ToModel()
}

// step returns what s may become by op; nothing where op cannot be.
func (r Rules) step(s state, op Op) (to []any) {
	free := s
	free.owners = s.owners.without(op.Token)
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
		if !r.Exclusion || s.owners.has(op.Token) && (op.Blurred || op.Call < op.Until) {
			to = append(to, s)
		}
	case Release:
		switch {
		case op.Unknown:
			to = append(to, s, free)
		// Only the owner can release, unless its lease ended while the command was on its way.
		case !r.Exclusion || s.owners.has(op.Token) || op.late():
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
//     The grants of a semaphore may return in any order.
func (r Rules) grant(s state, op Op) (state, bool) {
	switch {
	case r.Exclusion && len(s.owners.tokens()) >= max(r.Holders, 1):
		return s, false
	case op.Unknown:
		s.owners = s.owners.with(op.Token)
		return s, true
	case r.Exclusion && r.Holders <= 1 && s.grants+1 != op.turn:
		return s, false
	case r.Fences && (op.Fence <= op.after || s.fence != op.after):
		return s, false
	}
	return state{owners: s.owners.with(op.Token), fence: op.Fence, grants: s.grants + 1}, true
}
