package redlatch

import (
	"strings"
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

// registerName is the name of the register of all fences of one Redis, behind the prefix of the
// locks.
const registerName = "redlatch:fence"

// register is the same as a word of a command.
var register any = registerName

// check refuses a key whose companions would be in another slot of a cluster.
func (k clientKind) check(key string) error {
	if k == cluster && strings.Contains(slotTag(key), "}") { // it would end the tag of a companion early
		return invalid("key %q: with a } but no hash tag, its companion keys cannot be in its cluster slot", key)
	}
	return nil
}

// companion returns the name of a companion key of a lock, which is in the slot of the lock:
//
//	{t}:kind:key
//
// where t is the hash tag of key, or the whole key if it has none. The name includes the whole key,
// since k and {k} are two locks that share a tag.
func companion(kind, key string) string {
	return "{" + slotTag(key) + "}:" + kind + ":" + key
}

// slotTag returns what Redis Cluster hashes of key: the text between the first { and the next }, or
// all of key if that is empty or missing.
func slotTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
		return tag
	}
	return key
}
