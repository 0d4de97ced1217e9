package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Rules are the rules that a history must obey.
type Rules struct {
	// Exclusion: there are up to Holders owners at a time. Each trusts its lock before its end and
	// not after, and loses it for no other reason.
	Exclusion bool
	// Holders is the limit of a semaphore, or 1. More than one need Fences.
	Holders int
	// Writers: a grant is that of a writer, which is alone, or that of a reader. Any number of
	// readers have the key. It needs Fences: that of a writer is higher than all before, and that
	// of a reader than those of the writers before.
	Writers bool
	// Fences: each grant has a higher fence than the grants before it. Semaphores obey this rule
	// too, since the script that grants a permit mints its fence.
	Fences bool
}

// state is the state of one key.
type state struct {
	owners  owners
	fence   uint64 // of the last grant
	grants  int    // if Rules.Writers, of writers
	written uint64 // the fence of the last writer, if Rules.Writers
	writing bool   // its owner is a writer
}

// owners are the tokens of those who own a key, each between two spaces. Nobody is a space.
type owners string

func (o owners) count() int { return strings.Count(string(o), " ") - 1 }

func (o owners) has(token string) bool { return strings.Contains(string(o), " "+token+" ") }

// with keeps the tokens in order, so that the same owners are the same text.
func (o owners) with(token string) owners {
	all := append(strings.Fields(string(o)), token)
	slices.Sort(all)
	return owners(" " + strings.Join(all, " ") + " ")
}

func (o owners) without(token string) owners {
	return owners(strings.Replace(string(o), " "+token+" ", " ", 1))
}

// model returns the rules for one key, as a set of steps.
func (r Rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{owners: " "} },
		Step: func(from, input, _ any) (bool, any) {
			s, op := from.(state), input.(Op)
			return r.allows(s, op), r.after(s, op)
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
	case op.Kind == Grant && r.Writers && op.Writes:
		return (!r.Exclusion || s.owners.count() == 0) && s.grants+1 == op.turn && op.Fence > s.fence
	case op.Kind == Grant && r.Writers:
		return (!r.Exclusion || !s.writing) && s.grants == op.turn && op.Fence > s.written
	case op.Kind == Grant:
		room := !r.Exclusion || s.owners.count() < r.Holders
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
func (r Rules) after(s state, op Op) state {
	switch op.Kind {
	case Grant:
		s.owners, s.fence = s.owners.with(op.Token), max(s.fence, op.Fence)
		if !r.Writers || op.Writes {
			s.grants++
			s.written, s.writing = op.Fence, r.Writers
		}
	case Release, end:
		s.owners = s.owners.without(op.Token)
		s.writing = s.writing && s.owners.count() > 0
	}
	return s
}
