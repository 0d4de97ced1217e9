package history

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long it may take to judge the history of one key. Usually it takes milliseconds.
const patience = 20 * time.Second

// A Verdict is what [Check] found.
type Verdict struct {
	Ops int // that were judged, ends of leases included
	// Bad are the keys whose history breaks the rules. Check stops at the first, since such a history takes long.
	Bad []string
	// Slow are the bad keys that took too long to judge. Such a history is not known to be right.
	Slow []string

	model porcupine.Model
	info  map[string]porcupine.LinearizationInfo // of the bad keys
}

// Check judges a history by the rules, each key by itself.
func Check(ops []Op, rules Rules) *Verdict {
	v := &Verdict{model: rules.model(), info: make(map[string]porcupine.LinearizationInfo)}
	keys := make(map[string][]Op)
	for _, op := range ops {
		keys[op.Key] = append(keys[op.Key], op)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		history := ordered(rules.relevant(withEnds(inTime(withoutIdle(keys[key])))))
		v.Ops += len(history)
		operations := make([]porcupine.Operation, len(history))
		for i, op := range history {
			operations[i] = porcupine.Operation{ClientId: op.Worker, Input: op, Call: op.Call, Return: op.Return}
		}
		if result := porcupine.CheckOperationsTimeout(v.model, operations, patience); result != porcupine.Ok {
			v.Bad = append(v.Bad, key)
			if result == porcupine.Unknown {
				v.Slow = append(v.Slow, key)
			}
			_, v.info[key] = porcupine.CheckOperationsVerbose(v.model, operations, patience)
			break
		}
	}
	return v
}

// withoutIdle returns the history of one key without the unknown grants whose token did nothing else. If such a grant
// happened, it only kept others out: whatever is allowed with it is allowed without it. Each would double the states.
func withoutIdle(ops []Op) []Op {
	times := make(map[string]int)
	for _, op := range ops {
		times[op.Token]++
	}
	return slices.DeleteFunc(slices.Clone(ops), func(op Op) bool {
		return op.Kind == Grant && op.Unknown && times[op.Token] == 1
	})
}

// relevant returns the operations that the rules apply to: without exclusion, those with a fence.
func (r Rules) relevant(ops []Op) []Op {
	if r.Exclusion {
		return ops
	}
	return slices.DeleteFunc(ops, func(op Op) bool { return !op.mints() })
}

// Err returns an error that names the bad keys, or nil.
func (v *Verdict) Err() error {
	switch {
	case len(v.Bad) == 0:
		return nil
	case len(v.Slow) > 0:
		return fmt.Errorf("the history of %q takes too long to judge", v.Slow)
	}
	return fmt.Errorf("the history of %q breaks the rules", v.Bad)
}

// Draw writes porcupine's picture of each bad key to dir, which it makes, and returns the files.
func (v *Verdict) Draw(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, key := range v.Bad {
		file := filepath.Join(dir, strings.Map(plain, key)+".html")
		if err := porcupine.VisualizePath(v.model, v.info[key], file); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

// plain keeps what is safe in a file's name.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}
