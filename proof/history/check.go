package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long it may take to judge the history of one key. Usually it takes milliseconds.
const patience = 20 * time.Second

// Check judges a history by the rules, each key by itself. It returns an error that names the first
// bad key, and stops there, since such a history takes long. If draw is set, the error also names a
// file with porcupine's picture.
func Check(ops []Op, rules Rules, draw bool) error {
	model, keys := rules.model(), make(map[string][]Op)
	for _, op := range ops {
		keys[op.Key] = append(keys[op.Key], op)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var operations []porcupine.Operation
		for _, op := range rules.ordered(withEnds(keys[key])) {
			operations = append(operations, porcupine.Operation{ClientId: op.Worker, Input: op, Call: op.Call, Return: op.Return})
		}
		result := porcupine.CheckOperationsTimeout(model, operations, patience)
		switch {
		case result == porcupine.Ok:
			continue
		case result == porcupine.Unknown:
			return fmt.Errorf("the history of %q takes too long to judge", key)
		case !draw:
			return fmt.Errorf("the history of %q breaks the rules", key)
		}
		_, info := porcupine.CheckOperationsVerbose(model, operations, patience)
		picture, err := os.CreateTemp("", "redlatch-history-*.html")
		if err != nil {
			return err
		}
		err = errors.Join(porcupine.Visualize(model, info, picture), picture.Close())
		return errors.Join(fmt.Errorf("the history of %q breaks the rules: see %q", key, picture.Name()), err)
	}
	return nil
}

// withEnds returns the history of one key with the ends of its leases. A lease that was not surely
// released may have ended at its until, or as soon as an unknown or late release was requested, but
// not before its last use. The end takes effect as early as it may: if a later end is allowed, so
// is this one.
func withEnds(ops []Op) (all []Op) {
	type lease struct {
		until, used, given int64
		released           bool // for sure, while it lasted
	}
	leases, worker := make(map[string]*lease), 0
	for _, op := range ops {
		worker = max(worker, op.Worker+1) // a line of its own in the picture
		if op.Kind == Grant {
			leases[op.Token] = &lease{given: math.MaxInt64}
			// The grant took effect before its lease was over, even if its owner, which may have
			// been stopped, noted that later.
			op.Return = max(op.Call, min(op.Return, op.Until))
		}
		l := leases[op.Token]
		if l == nil {
			l = &lease{} // of a stranger
		}
		l.until = max(l.until, op.Until)
		switch {
		case op.Kind == Use:
			l.used = max(l.used, op.Call)
		case op.Kind == Release && (op.Unknown || op.late()):
			l.given = min(l.given, op.Call)
			continue
		case op.Kind == Release:
			l.released = true
		}
		all = append(all, op)
	}
	for token, l := range leases {
		if !l.released {
			at := max(min(l.until, l.given), l.used)
			all = append(all, Op{Kind: end, Worker: worker, Key: ops[0].Key, Token: token, Call: at, Return: at})
		}
	}
	return all
}

// ordered returns the history of one key in the order of its calls. Each rule allows only one order
// of the grants, which saves porcupine from trying others:
//
//   - Fences grow: the grants come in the order of their fences, but for those of readers between
//     two writers, in any order.
//   - There are no fences, and one owner: they come in the order of their returns. A lease ends
//     after its grant has returned. If a grant took effect before one that returned earlier, both
//     leases would have lasted at that return.
//
// Without exclusion, only the grants matter.
func (r Rules) ordered(all []Op) []Op {
	slices.SortStableFunc(all, func(a, b Op) int {
		if r.Fences {
			return cmp.Compare(a.Fence, b.Fence)
		}
		return cmp.Compare(a.Return, b.Return)
	})
	turn := 0
	for i := range all {
		if all[i].Kind == Grant {
			if !r.Writers || all[i].Writes {
				turn++
			}
			all[i].turn = turn
		}
	}
	if !r.Exclusion {
		all = slices.DeleteFunc(all, func(op Op) bool { return op.Kind != Grant })
	}
	// The ends of leases come from a map, in no fixed order.
	slices.SortStableFunc(all, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Return, b.Return), cmp.Compare(a.Token, b.Token))
	})
	return all
}
