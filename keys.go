package redlatch

import "strings"

// place has the names in Redis of a lock and of its companion keys.
type place struct {
	key    string // with the prefix
	fences string // the register or counter of its fences; empty: the strategy has none
	queue  string // likewise
	wanted string // the mark that others want the lock; likewise
}

// registerName is the name of the register of all fences of one Redis, behind the prefix of the locks.
const registerName = "redlatch:fence"

// checkSlot refuses a key whose companions would be in another slot of a cluster.
func checkSlot(key string) error {
	if !hasCompanions(key) {
		return invalid("key %q: with a } but no hash tag, its companion keys cannot be in its cluster slot", key)
	}
	return nil
}

// companion returns the name of a companion key of a lock, which is in the slot of the lock:
//
//	{t}:kind:key
//
// where t is the hash tag of key, or the whole key if it has none. The name includes the whole key, since k and {k}
// are two locks that share a tag.
func companion(kind, key string) string {
	return "{" + slotTag(key) + "}:" + kind + ":" + key
}

// slotTag returns the hash tag that puts a companion into the slot of key.
func slotTag(key string) string {
	if t, tagged := hashTag(key); tagged {
		return t
	}
	return key
}

// hasCompanions reports whether companions can be in the slot of key. If a key without a tag contains a }, that would
// end the tag of the companion early.
func hasCompanions(key string) bool {
	_, tagged := hashTag(key)
	return tagged || !strings.Contains(key, "}")
}

// hashTag returns the part of key that Redis Cluster hashes: the text between the first { and the next }, unless that
// is empty.
func hashTag(key string) (tag string, tagged bool) {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	return tag, closed && tag != ""
}
