package redlatch

import "strings"

// companion returns the name of a key that belongs to the lock key and lies in its slot:
//
//	{t}:kind:key
//
// where t is key's own hash tag, or all of key where it has none. The whole key stands in the
// name, since k and {k} are two locks that share a tag.
func companion(kind, key string) string {
	t, tagged := hashTag(key)
	if !tagged {
		t = key
	}
	return "{" + t + "}:" + kind + ":" + key
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
