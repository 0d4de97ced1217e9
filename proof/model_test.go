package proof

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
)

// The model says what a lock does, in a world where commands take no time and nothing fails. It knows two
// ends of a lease: until, when its owner stops trusting it, and freeAt, when Redis gives the key to
// another owner.

// rulebook holds the differences between strategies.
type rulebook struct {
	// freeAt returns when a key is free that is set at a time for ttl.
	freeAt func(at time.Time, ttl time.Duration) time.Time
	least  time.Duration // of the TTLs that are tried
	limits []int         // of the Lockers of a semaphore, one of which differs; nil: of locks
	fenced bool
	keeps  bool // WithMinHold is supported
	// wholeSeconds: the TTL of an acquire is rounded up to whole seconds. That of Extend is rounded up
	// only in Redis. A lock that was taken over is looked at once more.
	wholeSeconds bool
}

// byTTL is the rule of the strategies that leave the expiry to Redis.
func byTTL(at time.Time, ttl time.Duration) time.Time { return at.Add(ttl) }

// byTimestamp is the rule of LegacySetNX: the key holds now + TTL + 1 in whole seconds, and is free
// once that time has passed.
func byTimestamp(at time.Time, ttl time.Duration) time.Time {
	return time.Unix(at.Unix()+2, 0).Add(ceil(ttl))
}

// ceil rounds up to whole seconds.
func ceil(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(d.Seconds())) * time.Second
}

// trusted is how long an owner trusts a lease of ttl.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// A keyModel is one key in Redis. It knows a token by its name, which is the owner that the token begins with: the
// token itself is asked for only when it is given to another handle.
type keyModel struct {
	freeAt  map[string]time.Time // by name: it counts until then
	removed map[string]time.Time // by name: when it last lost the key, other than by expiry
	fence   uint64               // the highest of its grants; an attempt that was released may have skipped some
}

func newKeyModel() *keyModel {
	return &keyModel{freeAt: make(map[string]time.Time), removed: make(map[string]time.Time)}
}

// nobody begins the names of keys that are kept after a release.
const nobody = "nobody, after "

// has reports whether a token holds the key.
func (k *keyModel) has(name string) bool { return time.Now().Before(k.freeAt[name]) }

// holders returns who holds the key, in the order in which the leases end.
func (k *keyModel) holders() []string {
	return slices.SortedFunc(
		func(yield func(string) bool) {
			for name := range k.freeAt {
				if k.has(name) && !yield(name) {
					return
				}
			}
		},
		func(a, b string) int { return k.freeAt[a].Compare(k.freeAt[b]) },
	)
}

// isFull reports whether the key admits no further holder to a caller with that limit.
func (k *keyModel) isFull(limit int) bool { return len(k.holders()) >= limit }

// keep makes a token hold the key for longer, and never shorter.
func (k *keyModel) keep(name string, at time.Time) {
	if at.After(k.freeAt[name]) {
		k.freeAt[name] = at
	}
}

// drop takes the key away from a token.
func (k *keyModel) drop(name string) {
	delete(k.freeAt, name)
	k.removed[name] = time.Now()
}

// A handleModel is the model of a handle.
type handleModel struct {
	lock     *redlatch.Lock
	key      *keyModel
	on       string // the name of the key
	name     string // of the token
	ttl      time.Duration
	until    time.Time
	minHold  time.Duration
	kept     time.Time // when the min hold ends
	renewed  bool
	looks    bool // it may find out by a look that the key is gone
	released bool
	shared   bool  // the token was asked for, or the lock was adopted: another handle may have it
	end      error // what Err returns from then on; nil before
}

// token asks for the token, which another handle gets.
func (h *handleModel) token() string {
	h.shared = true
	return h.lock.Token()
}

// err returns what Err must return now. It is unsure if a renewal may have found that the key is gone.
//
//nolint:revive // the error is a value here, no failure
func (h *handleModel) err() (err error, unsure bool) {
	switch {
	case h.end != nil:
		return h.end, false
	case h.renewed && h.key.has(h.name):
		return nil, false
	case h.renewed:
		// The next renewal reports the loss, or the end of the lease does.
		return redlatch.ErrLost, time.Since(h.key.removed[h.name]) < h.ttl || time.Now().Before(h.until)
	case !time.Now().Before(h.until):
		return redlatch.ErrLost, false
	case h.looks && !h.key.has(h.name):
		return redlatch.ErrLost, true
	}
	return nil, false
}

// alive settles what the model knows of the handle, and reports whether it is trusted.
func (h *handleModel) alive() bool {
	if err, unsure := h.err(); err != nil && !unsure || unsure && h.lock.Err() != nil {
		h.end = err
	}
	return h.end == nil
}

// extends notes that a command extended the lease now.
func (h *handleModel) extends(ttl time.Duration, rules rulebook) {
	h.key.keep(h.name, rules.freeAt(time.Now(), ttl))
	if until := time.Now().Add(trusted(ttl)); until.After(h.until) {
		h.until = until
	}
}

// unlock does what Unlock does, and returns what Unlock must return. A lost handle leaves the key alone if another
// handle may have it. A min hold keeps the key, and then it is nobody's.
func (h *handleModel) unlock() error {
	if h.released {
		return redlatch.ErrReleased
	}
	alive, mine := h.alive(), h.key.has(h.name)
	h.released = true
	if mine && (alive || !h.shared) {
		h.key.drop(h.name)
		if alive && time.Now().Before(h.kept) {
			h.key.keep(nobody+h.name, h.kept)
		}
	}
	if alive {
		h.end = redlatch.ErrReleased
	}
	if alive && mine {
		return nil
	}
	return redlatch.ErrLost
}

// extend does what Extend does, and returns what Extend must return.
func (h *handleModel) extend(ttl time.Duration, rules rulebook) error {
	switch {
	case !h.alive():
		return h.end
	case !h.key.has(h.name):
		h.end = redlatch.ErrLost
		return h.end
	}
	h.extends(ttl, rules)
	return nil
}

// waits reports how a wait of d for the key may end. Polling and lost messages may cost a second and
// a half.
func (k *keyModel) waits(limit int, d time.Duration) (mayBeGranted, mayGiveUp bool) {
	end, slack := time.Now().Add(d), 1500*time.Millisecond
	if !k.isFull(limit) {
		return true, false
	}
	holders := k.holders()
	free := k.freeAt[holders[len(holders)-limit]]
	return free.Before(end), free.Add(slack).After(end)
}

// gaveUp reports whether err is the error of a wait that ctx ended.
func gaveUp(err error) bool {
	return errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, context.DeadlineExceeded)
}
