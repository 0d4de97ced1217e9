package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	idLength     = 36  // of a UUID as text
	longestOwner = 200 // bytes

	// Longest is the length of the longest token: the mark of a writer, the owner, a slash and a
	// UUID.
	Longest = len(WriterMark) + longestOwner + 1 + idLength
)

// ProcessName is the default of WithOwner.
var ProcessName = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return hostAndPid(host, os.Getpid())
})

// hostAndPid returns a valid owner. host may be anything, and is empty if it is unknown.
func hostAndPid(host string, pid int) string {
	suffix := ":" + strconv.Itoa(pid)
	host = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || string(r) == keeperPrefix || string(r) == WriterMark {
			return '?'
		}
		return r
	}, cmp.Or(host, "?"))
	host = host[:min(len(host), longestOwner-len(suffix))]
	return strings.ToValidUTF8(host, "") + suffix
}

// The versions of the UUID of a token. A Locker that polls has the form of the other one.
const (
	versionQueues = 7
	versionPolls  = 8

	mute = 0x20 // in byte 8 of a UUID of version 8, see Mute
)

// A Manner is how a Locker waits and hands on. Its tokens say so.
type Manner byte

// The manners.
const (
	Queueing Manner = iota // it queues
	Polling                // it polls
	Mute                   // it polls, and cannot tell others that they have been handed the key
)

// version returns the version of the UUID of a token.
func (m Manner) version() uint64 {
	if m == Queueing {
		return versionQueues
	}
	return versionPolls
}

// A Holder is what the value of a key says of the one who holds it, or keeps others out.
type Holder struct {
	Kept   bool      // nobody holds the key: it keeps others out after an Unlock
	Writes bool      // it is, or was, a writer
	Owner  string    // empty: it has no name, or nobody holds the key
	MadeAt time.Time // when its token was made, by the clock of its process; zero: unknown, or nobody holds the key

	HandsOn bool // it is a client of this library, which hands the key on
	Queues  bool // its Locker queues
	Tells   bool // its Locker is not [Mute], so that it can tell others that it has handed them the key
}

// Parse reads the value of a key, which may be that of another library.
func Parse(value string) (h Holder) {
	token, kept := strings.CutPrefix(value, keeperPrefix)
	h.Kept = kept
	rest, writes := strings.CutPrefix(token, WriterMark)
	h.Writes = writes
	if h.HandsOn = minted(token); h.HandsOn && !kept {
		h.Owner = rest[:max(len(rest)-idLength-1, 0)]
	}
	id, version := idOf(token)
	if !kept {
		h.MadeAt = madeAt(id, version)
	}
	h.Queues = version == versionQueues
	h.Tells = version != versionPolls || id[8]&mute == 0
	return h
}

// madeAt returns when the token with a UUID was made. It is zero for one without a UUID of these versions,
// such as most of other libraries.
func madeAt(id uuid.UUID, version uuid.Version) time.Time {
	if version != versionQueues && version != versionPolls {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:]) >> 16))
}

// IsValue reports whether value is a token of this library, or keeps others out for one.
func IsValue(value string) bool {
	id, version := idOf(strings.TrimPrefix(value, keeperPrefix))
	return len(value) <= LongestValue && !madeAt(id, version).IsZero()
}

// idOf returns the UUID of a token, and its version; 0: it has none.
func idOf(token string) (id uuid.UUID, version uuid.Version) {
	if !minted(token) {
		return id, 0
	}
	if id = uuid.MustParse(token[len(token)-idLength:]); id.Variant() != uuid.RFC4122 { // as minted says
		return id, 0
	}
	return id, id.Version()
}

// minted reports whether token has the form of a fresh token, or of one behind the mark of a writer. Its
// holder is a redlatch client then, which hands the lock on.
func minted(token string) bool {
	token = strings.TrimPrefix(token, WriterMark)
	at := len(token) - idLength
	return at >= 0 && uuid.Validate(token[at:]) == nil && (at == 0 || token[at-1] == '/')
}

// keeperPrefix begins the value that keeps others out after an Unlock: the token follows. No token
// begins with it, so nobody can acquire, adopt or extend that.
const keeperPrefix = "~"

// LongestValue is the length of the longest value of a lock of this library.
const LongestValue = len(keeperPrefix) + Longest

// Keeper returns the value that keeps others out after an Unlock with a token.
func Keeper(token string) string { return keeperPrefix + token }

// isKeeper reports whether a value keeps others out after an Unlock.
func isKeeper(value string) bool { return strings.HasPrefix(value, keeperPrefix) }

// WriterMark begins the token of a writer. No owner begins with it. The scripts of a semaphore look
// for it.
const WriterMark = "!"

// CheckOwner refuses a name that is too long or not printable.
func CheckOwner(name string) error {
	switch {
	case len(name) > longestOwner:
		return fmt.Errorf("longer than %d bytes", longestOwner)
	case isKeeper(name):
		return fmt.Errorf("no name begins with %q", keeperPrefix)
	case strings.HasPrefix(name, WriterMark):
		return fmt.Errorf("no name begins with %q", WriterMark)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%q cannot be printed", r)
		}
	}
	if !utf8.ValidString(name) {
		return errors.New("not valid UTF-8")
	}
	return nil
}
