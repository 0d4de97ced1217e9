package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Rules are the rules that a history must obey.
type Rules struct {
	// Exclusion: there are up to Holders owners at a time. Each trusts its lock before its end and not after, and
	// loses it for no other reason.
	Exclusion bool
	// Holders is the limit of a semaphore, or 1. More than one need Fences.
	Holders int
	// Fences: each grant has a higher fence than the grants before it. Semaphores obey this rule too,
	// since the script that grants a permit mints its fence.
	Fences bool
}

// state is the state of one key.
type state struct {
	owners owners
	fence  uint64 // of the last grant
	grants int
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

// model returns the rules for one key, as a set of steps.
func (r Rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(from, input, _ any) (bool, any) {
			s, op := from.(state), input.(Op)
			return r.allows(s, op), s.after(op)
		},
		DescribeOperation: func(input, _ any) string { return input.(Op).String() },
		DescribeState: func(s any) string {
			return fmt.Sprintf("owners %q, fence %d", s.(state).owners, s.(state).fence)
		},
	}
}

// allows reports whether op is possible in s.
func (r Rules) allows(s state, op Op) bool {
	owned := s.owners.has(op.Token)
	switch {
	case op.Kind == Grant:
		room := !r.Exclusion || len(s.owners.tokens()) < r.Holders
		return room && s.grants+1 == op.turn && (!r.Fences || op.Fence > s.fence)
	case !r.Exclusion:
		return true
	case op.Kind == Use: // as the user knows its end
		return owned && op.Call < op.Until
	case op.Kind == Loss:
		return !owned || op.late()
	}
	return owned
}

// after returns s after op.
func (s state) after(op Op) state {
	switch op.Kind {
	case Grant:
		return state{s.owners.with(op.Token), op.Fence, s.grants + 1}
	case Release, end:
		s.owners = s.owners.without(op.Token)
	}
	return s
}
