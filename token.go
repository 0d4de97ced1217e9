package redlatch

import (
	"crypto/rand"
	"strings"
	"unicode"

	"github.com/google/uuid"
)

// A fresh token is a UUID, or with WithOwner the owner, a slash and a UUID. Readers of the key see the owner.

const (
	idLength     = 36  // of a UUID as text
	longestOwner = 200 // bytes
)

// tokenOf returns a fresh token.
func tokenOf(owner string, id uuid.UUID) string {
	if owner == "" {
		return id.String()
	}
	return owner + "/" + id.String()
}

// minted reports whether token has the form of tokenOf. Its holder is a redlatch client then, which hands the lock
// on.
func minted(token string) bool {
	at := len(token) - idLength
	return at >= 0 && uuid.Validate(token[at:]) == nil && (at == 0 || token[at-1] == '/')
}

// ownerOf returns the owner in a token, or "".
func ownerOf(token string) string {
	if !minted(token) {
		return ""
	}
	return token[:max(len(token)-idLength-1, 0)]
}

// keeperPrefix begins each value of newKeeper. No token begins with it.
const keeperPrefix = "redlatch:kept:"

// newKeeper returns a fresh value for a key that is kept after its Unlock, see WithMinHold. The key is nobody's lock
// then: no token equals the value, so nobody can acquire, adopt, extend or release it.
func newKeeper() string { return keeperPrefix + rand.Text() }

func isKeeper(value string) bool { return strings.HasPrefix(value, keeperPrefix) }

// checkOwner refuses a name that is empty, too long or not printable.
func checkOwner(name string) error {
	switch {
	case name == "":
		return invalid("WithOwner(%q): empty", name)
	case len(name) > longestOwner:
		return invalid("WithOwner(%q): longer than %d bytes", name, longestOwner)
	case isKeeper(name):
		return invalid("WithOwner(%q): no name begins with %q", name, keeperPrefix)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return invalid("WithOwner(%q): %q cannot be printed", name, r)
		}
	}
	return nil
}
