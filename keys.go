package redlatch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// place has the names in Redis of a lock and of its companion keys.
type place struct {
	key    string // with the prefix
	fences string // the register or counter of its fences; empty: the strategy has none
	queue  string // likewise
	wanted string // the mark that others want the lock; likewise
}

// placeWords are the names of a place as words of commands. To convert them to interfaces once saves an allocation a command.
type placeWords struct{ key, fences, queue, wanted any }

func (p *place) words() placeWords { return placeWords{p.key, p.fences, p.queue, p.wanted} }

// registerName is the name of the register of all fences of one Redis, behind the prefix of the locks.
const registerName = "redlatch:fence"

// check refuses a key whose companions would be in another slot of a cluster.
func (k kind) check(key string) error {
	if k == cluster && strings.Contains(slotTag(key), "}") { // it would end the tag of a companion early
		return invalid("key %q: with a } but no hash tag, its companion keys cannot be in its cluster slot", key)
	}
	return nil
}

// companion returns the name of a companion key of a lock, which is in the slot of the lock:
//
//	{t}:kind:key
//
// where t is the hash tag of key, or the whole key if it has none. The name includes the whole key, since k and {k} are two locks
// that share a tag.
func companion(kind, key string) string {
	return "{" + slotTag(key) + "}:" + kind + ":" + key
}

// slotTag returns what Redis Cluster hashes of key: the text between the first { and the next }, or all of key if that is empty
// or missing.
func slotTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
		return tag
	}
	return key
}

// A fresh token is the owner, a slash and a UUID of version 7, or only that UUID without an owner. Readers of the key see the
// owner, and when the token was made.

const (
	idLength     = 36  // of a UUID as text
	longestOwner = 200 // bytes
)

// processName is the default of WithOwner.
var processName = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return hostAndPid(host, os.Getpid())
})

// hostAndPid returns a valid owner. host may be anything, and is empty if it is unknown.
func hostAndPid(host string, pid int) string {
	suffix := ":" + strconv.Itoa(pid)
	host = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || string(r) == keeperPrefix {
			return '?'
		}
		return r
	}, cmp.Or(host, "?"))
	host = host[:min(len(host), longestOwner-len(suffix))]
	return strings.ToValidUTF8(host, "") + suffix
}

// tokenOf returns a fresh token. Its UUID has the time in ms, and 74 random bits. That of uuid.NewV7 would have fewer, and share
// a mutex. Written here, the token is one allocation.
func tokenOf(owner string) string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // it never fails
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16|uint64(binary.BigEndian.Uint16(id[6:])))
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80 // the version and the variant
	token := make([]byte, 0, longestOwner+1+idLength)
	if owner != "" {
		token = append(append(token, owner...), '/')
	}
	token = hex.AppendEncode(token, id[:4])
	for i := 4; i < 10; i += 2 {
		token = hex.AppendEncode(append(token, '-'), id[i:i+2])
	}
	return string(hex.AppendEncode(append(token, '-'), id[10:]))
}

// madeAt returns when a token was made, by the clock of its process. It is the zero time for a token without a UUID of version 7,
// such as those of other libraries.
func madeAt(token string) time.Time {
	if !minted(token) || isKeeper(token) {
		return time.Time{}
	}
	id := uuid.MustParse(token[len(token)-idLength:]) // as minted says
	if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:]) >> 16))
}

// minted reports whether token has the form of tokenOf. Its holder is a redlatch client then, which hands the lock on.
func minted(token string) bool {
	at := len(token) - idLength
	return at >= 0 && uuid.Validate(token[at:]) == nil && (at == 0 || token[at-1] == '/')
}

// ownerOf returns the owner in a token, or "".
func ownerOf(token string) string {
	if !minted(token) || isKeeper(token) {
		return ""
	}
	return token[:max(len(token)-idLength-1, 0)]
}

// keeperPrefix begins the value that keeps others out after an Unlock, see [Lock.UnlockAfter]: the token follows. No token begins
// with it, so nobody can acquire, adopt or extend that.
const keeperPrefix = "~"

func isKeeper(value string) bool { return strings.HasPrefix(value, keeperPrefix) }

// handsOn reports whether the holder of a key hands it on: its value is a token of this library, or keeps others out for one.
func handsOn(holder string) bool { return minted(strings.TrimPrefix(holder, keeperPrefix)) }

// checkOwner refuses a name that is too long or not printable.
func checkOwner(name string) error {
	switch {
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

// A kind says where a client keeps its keys.
type kind int

const (
	oneServer kind = iota
	cluster        // on several servers, by slots
	ring           // on several servers, by a hash of the client
)

// kindOf returns the kind of client by the methods that it has itself or from a client that it embeds.
func kindOf(client redis.UniversalClient) kind {
	type visit = func(ctx context.Context, server *redis.Client) error
	switch client.(type) {
	case interface {
		ForEachMaster(ctx context.Context, fn visit) error
	}:
		return cluster
	case interface {
		ForEachShard(ctx context.Context, fn visit) error
	}: // a client of a cluster has it too
		return ring
	}
	return oneServer
}

// checkClient refuses a nil client.
func checkClient(client redis.UniversalClient) error {
	if isNil(client) {
		return invalid("client is nil")
	}
	return nil
}

// isNil reports whether v is nil, or a nil pointer in an interface.
func isNil(v any) bool {
	pointer := reflect.ValueOf(v)
	return v == nil || pointer.Kind() == reflect.Pointer && pointer.IsNil()
}

// same reports whether a and b are equal. It does not panic if they cannot be compared.
func same(a, b any) bool { return reflect.ValueOf(a).Comparable() && a == b }

// sameServer reports whether two clients are known to reach the same server: they are the same client, or have an address in
// common.
func sameServer(a, b redis.UniversalClient) bool {
	return same(a, b) || slices.ContainsFunc(addresses(a), func(addr string) bool { return slices.Contains(addresses(b), addr) })
}

// addresses returns the addresses that the options of a client name: one of a server, or several of a cluster or ring. There is
// none for a client of Sentinels.
func addresses(client redis.UniversalClient) []string {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		if addr := c.Options().Addr; strings.ContainsAny(addr, ":/") {
			return []string{addr}
		}
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().Addrs
	case interface{ Options() *redis.RingOptions }:
		return slices.Collect(maps.Values(c.Options().Addrs))
	}
	return nil
}

// nodeName returns the name of the i-th client of a quorum in errors: its address, or else its number.
func nodeName(client redis.UniversalClient, i int) string {
	if all := addresses(client); len(all) == 1 {
		return all[0]
	}
	return fmt.Sprint("node ", i)
}
