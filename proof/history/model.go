package history

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Rules are the rules that a history must obey.
type Rules struct {
	// Exclusion: there are up to Holders owners at a time. Each trusts its lock before its end and not
	// after, and loses it for no other reason. All handles of a token are one owner. A key that a
	// release has kept counts as owned, and it is nobody's.
	Exclusion bool
	// Holders is the limit of a semaphore. 0 and 1: a lock.
	Holders int
	// Fences: each grant has a higher fence than the grants before it. Semaphores obey this rule too,
	// since the script that grants a permit mints its fence.
	Fences bool
}

// state is the state of one key.
type state struct {
	owners owners
	fence  uint64 // the highest
	grants int    // known ones
}

// owners are the tokens of those who own a key, sorted and separated by spaces.
type owners string

// nobody marks the token of a release that has kept the key.
const nobody = "!"

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

// model returns the rules for one key, as a set of steps. A step that may or may not have happened
// leads to both states.
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

// step returns the states that s may become by op. There is none if op is impossible in s.
func (r Rules) step(s state, op Op) (to []any) {
	free := s
	free.owners = s.owners.without(op.Token)
	if op.keeps() && s.owners.has(op.Token) {
		free.owners = free.owners.with(op.Token + nobody)
	}
	switch op.Kind {
	case Grant:
		if op.Unknown {
			to = append(to, s)
		}
		if granted, ok := r.grant(s, op); ok {
			to = append(to, granted)
		}
	case Adopt:
		// Only the token of an owner can be adopted.
		if (!r.Exclusion || s.owners.has(op.Token)) && (!r.Fences || s.next(op)) {
			s.fence = op.Fence
			to = append(to, s)
		}
	case Use:
		// Nobody uses a lock without owning it, or after its end as the user knows it.
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
		// Before the end of the lease the only reason for a loss is that another handle has released the lock.
		if !r.Exclusion || op.late() || !s.owners.has(op.Token) {
			to = append(to, s)
		}
	case End:
		to = append(to, free)
	}
	return to
}

// grant returns s after a grant, and whether the grant is possible in s. Each rule allows one order of
// the grants only, which saves porcupine from trying others:
//
//   - Fences grow: each grant comes right after the one with the fence before its own.
//   - There are no fences, and one owner: the grants come in the order of their returns. The lease of a known grant
//     ends after the grant has returned. If a grant took effect before one that returned earlier, both
//     leases would have lasted at that return. The grants of a semaphore may return in any order.
func (r Rules) grant(s state, op Op) (state, bool) {
	switch {
	case r.Exclusion && len(s.owners.tokens()) >= max(r.Holders, 1):
		return s, false
	case op.Unknown:
		s.owners = s.owners.with(op.Token)
		return s, true
	case r.Exclusion && r.Holders <= 1 && !r.Fences && s.grants+1 != op.turn:
		return s, false
	case r.Fences && !s.next(op):
		return s, false
	}
	return state{owners: s.owners.with(op.Token), fence: op.Fence, grants: s.grants + 1}, true
}

// next reports whether the fence of op is the next one.
func (s state) next(op Op) bool { return op.Fence > op.after && s.fence == op.after }
