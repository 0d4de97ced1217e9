package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A fresh token is the owner, a slash and a UUID, or only that UUID without an owner. Readers of the
// key see the owner, and when the token was made.

// A Mint makes the tokens of one Locker, and recognizes them. The UUID of a token has two halves:
//
//	stamp  the time in ms, 4 bits of the version, and the time in 1/4096 ms. Without the version it is
//	       the number of the token, which is larger than all before
//	proof  62 bits of the stamp encrypted with a secret of the Mint, one of which says whether its
//	       Locker is mute if it does not queue. The length of the prefix of the key is added to the last
//	       8 by exclusive or
//
// So nobody guesses a token, and no token of another Mint passes for one of this, except once in
// 2^54.
type Mint struct {
	secret cipher.Block

	mu    sync.Mutex // guards the fields below
	last  uint64     // the time in 1/4096 ms, of the newest token
	block uuid.UUID  // what is encrypted: a cipher keeps no array of its caller on the stack
}

// NewMint returns a Mint with a secret of its own.
func NewMint() *Mint {
	var key [16]byte
	_, _ = rand.Read(key[:]) // it never fails
	secret, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has one of the lengths
	}
	return &Mint{secret: secret}
}

// LongestPrefix is the length of the longest prefix that a token can say. It stands for longer ones,
// too.
const LongestPrefix = 255

// Token returns a fresh token of a Locker, for a key whose prefix has a length, and its number. Written
// here, the token is one allocation.
func (m *Mint) Token(owner string, manner Manner, prefix int) (token string, number uint64) {
	now := uint64(time.Now().UnixNano())
	m.mu.Lock()
	number = max(now/1e6<<12|now%1e6<<12/1e6, m.last+1)
	m.last = number
	id := m.sealLocked(number>>12<<16 | manner.version()<<12 | number&0xfff)
	m.mu.Unlock()
	if manner == Mute {
		id[8] |= mute
	}
	id[15] ^= byte(min(prefix, LongestPrefix))
	text := make([]byte, 0, longestOwner+1+idLength)
	if owner != "" {
		text = append(append(text, owner...), '/')
	}
	text = hex.AppendEncode(text, id[:4])
	for i := 4; i < 10; i += 2 {
		text = hex.AppendEncode(append(text, '-'), id[i:i+2])
	}
	return string(hex.AppendEncode(append(text, '-'), id[10:])), number
}

// sealLocked returns the UUID of a stamp and its proof, for a prefix of length 0. It is not of a Locker
// that is mute.
func (m *Mint) sealLocked(stamp uint64) uuid.UUID {
	id := &m.block
	clear(id[8:])
	binary.BigEndian.PutUint64(id[:], stamp)
	m.secret.Encrypt(id[:], id[:])
	copy(id[8:], id[:8])
	id[8] = id[8]&0x3f | 0x80 // the variant
	binary.BigEndian.PutUint64(id[:], stamp)
	if stamp>>12&0xf == versionPolls {
		id[8] &^= mute
	}
	return *id
}

// NumberOf returns the number of a token, whoever has made it, or 0.
func NumberOf(token string) uint64 {
	id, version := idOf(token)
	if version == 0 {
		return 0
	}
	return numberOf(binary.BigEndian.Uint64(id[:]))
}

// numberOf returns the number in a stamp.
func numberOf(stamp uint64) uint64 { return stamp>>16<<12 | stamp&0xfff }

// Made reports whether this Mint has made a token. Then number is the one that [Mint.Token] has returned, and
// prefix the length of the prefix of its key, at most [LongestPrefix].
func (m *Mint) Made(token string) (number uint64, prefix int, made bool) {
	id, version := idOf(token)
	if isKeeper(token) || version != versionQueues && version != versionPolls {
		return 0, 0, false
	}
	stamp := binary.BigEndian.Uint64(id[:])
	m.mu.Lock()
	sealed := m.sealLocked(stamp)
	m.mu.Unlock()
	prefix = int(id[15] ^ sealed[15])
	sealed[15] = id[15]
	if version == versionPolls {
		sealed[8] |= id[8] & mute
	}
	return numberOf(stamp), prefix, sealed == id
}
