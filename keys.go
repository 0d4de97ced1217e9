package redlatch

import "strings"

// place is where a lock is kept: its key and what stands beside it, as Redis knows them.
type place struct {
	key    string // with the prefix
	fences string // what its fences are minted from; empty in a strategy that has none
	queue  string // its queue; likewise
	wanted string // the mark that others want it; likewise
}

// registerName is the name of the register that all fences of one Redis are minted from, behind the prefix
// of the locks.
const registerName = "redlatch:fence"

// checkSlot refuses a key whose companions would lie in another slot of a cluster.
func checkSlot(key string) error {
	if !hasCompanions(key) {
		return invalid("key %q: with a } but no hash tag, its companion keys cannot be in its cluster slot", key)
	}
	return nil
}

// companion returns the name of a key that belongs to the lock key and lies in its slot:
//
//	{t}:kind:key
//
// where t is key's own hash tag, or all of key where it has none. The whole key stands in the
// name, since k and {k} are two locks that share a tag.
func companion(kind, key string) string {
	return "{" + slotTag(key) + "}:" + kind + ":" + key
}

// slotTag returns the hash tag that puts a companion into key's slot.
func slotTag(key string) string {
	if t, tagged := hashTag(key); tagged {
		return t
	}
	return key
}

// hasCompanions reports whether key's companions lie in its slot. They cannot where a } stands in
// a key without a tag: it would end the companion's tag early.
func hasCompanions(key string) bool {
	_, tagged := hashTag(key)
	return tagged || !strings.Contains(key, "}")
}

// hashTag returns the part of key that Redis Cluster hashes: what stands between the first { and
// the first } after it, unless that is nothing.
func hashTag(key string) (tag string, tagged bool) {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	return tag, closed && tag != ""
}
