package redlatch

import (
	"strings"

	"github.com/redlatch/redlatch/internal/wire"
)

// names are those in Redis of a lock and of its companion keys.
type names struct {
	lock string // with the prefix
	at   words
}

// words are the names as words of commands, which are strings. Those that the strategy has none
// of are nil. They are made when something is to be sent: most callers of a hot key send nothing.
type words struct {
	key    any
	fences any // the register or counter of its fences
	others any // their queue, or with a quorum the mark that others want the lock
}

// register is the name of the register as a word of a command.
var register any = wire.Register

// check refuses a key whose companions would be in another slot of a cluster.
func (k clientKind) check(key string) error {
	if k == cluster && strings.Contains(wire.SlotTag(key), "}") { // it would end the tag of a companion early
		return invalid("key %q: with a } but no hash tag, its companion keys cannot be in its cluster slot", key)
	}
	return nil
}
