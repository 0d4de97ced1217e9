package wire

import "strings"

// Register is the name of the register of all fences of one Redis, behind the prefix of the locks.
const Register = "redlatch:fence"

// Companion returns the name of a companion key of a lock, which is in the slot of the lock:
//
//	{t}:kind:key
//
// where t is the hash tag of key, or the whole key if it has none. The name includes the whole key,
// since k and {k} are two locks that share a tag.
func Companion(kind, key string) string {
	return "{" + SlotTag(key) + "}:" + kind + ":" + key
}

// SlotTag returns what Redis Cluster hashes of key: the text between the first { and the next }, or
// all of key if that is empty or missing.
func SlotTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
		return tag
	}
	return key
}

// FencesOfTick is how many fences a grant of Redis has, one for each grant of a turn.
const FencesOfTick = 64

// Fence returns the fence of a grant of a turn. A tick of 0 has none.
//
//	fence = tick × 64 + number
func Fence(tick uint64, number int) uint64 {
	if tick == 0 {
		return 0
	}
	return tick*FencesOfTick + uint64(number)
}
