package redlatchtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// NewLocker returns a Locker that [redlatch.NewSetNXPX] makes with opts. It is closed when the test
// ends. An option that cannot work fails the test.
func NewLocker(tb testing.TB, opts ...redlatch.Option) *Locker {
	tb.Helper()
	return open(tb, "NewLocker", 1, opts, []kind{{}}, func(on clients, opts ...redlatch.Option) lockers {
		return one(redlatch.NewSetNXPX(on[0], opts...))
	})[0]
}

// NewReadWrite returns the two Lockers that [redlatch.NewReadWrite] makes with opts, on one Redis.
// They are closed when the test ends. The other owner of read is a reader, and the other owner of
// write is a writer. Steal and Expire take the key from all of its holders. Disconnect, Reconnect
// and Delay apply to both Lockers. An option that cannot work fails the test.
func NewReadWrite(tb testing.TB, opts ...redlatch.Option) (read, write *Locker) {
	tb.Helper()
	sides := []kind{{permits: true}, {permits: true, mark: "!"}}
	both := open(tb, "NewReadWrite", 1, opts, sides, func(on clients, opts ...redlatch.Option) lockers {
		read, write, err := redlatch.NewReadWrite(on[0], opts...)
		return lockers{[]redlatch.Locker{read, write}, err}
	})
	return both[0], both[1]
}

// NewSemaphore returns a Locker that [redlatch.NewSemaphore] makes with opts. It is closed when the
// test ends. Hold takes one permit, so that a key is held if it was called limit times. Free gives
// one back. Expire ends the permits of all holders. Steal ends all permits but the other owner's,
// and gives the other owner one. An argument that cannot work fails the test.
func NewSemaphore(tb testing.TB, limit int, opts ...redlatch.Option) *Locker {
	tb.Helper()
	some := []kind{{permits: true, several: true}}
	return open(tb, "NewSemaphore", 1, opts, some, func(on clients, opts ...redlatch.Option) lockers {
		return one(redlatch.NewSemaphore(on[0], limit, opts...))
	})[0]
}

// NewRedlock returns a Locker that [redlatch.NewRedlock] makes with opts, on so many nodes. It is
// closed when the test ends. Disconnect, Reconnect, Delay, Steal and Expire apply to all nodes.
// [Locker.Nodes] returns each of them. An argument that cannot work fails the test.
func NewRedlock(tb testing.TB, nodes int, opts ...redlatch.Option) *Locker {
	tb.Helper()
	return open(tb, "NewRedlock", nodes, opts, []kind{{}}, func(on clients, opts ...redlatch.Option) lockers {
		return one(redlatch.NewRedlock(on, opts...))
	})[0]
}

// A kind is how a Locker keeps a key.
type kind struct {
	permits bool   // in a sorted set
	several bool   // the other owner can have several permits
	mark    string // before a token: that of a writer
}

// clients are those of the nodes.
type clients = []redis.UniversalClient

// lockers is what a constructor returns.
type lockers struct {
	made []redlatch.Locker
	err  error
}

func one(l redlatch.Locker, err error) lockers { return lockers{[]redlatch.Locker{l}, err} }

// open returns a Locker of each kind, which end with tb. construct makes those in it.
func open(
	tb testing.TB, name string, nodes int, opts []redlatch.Option, kinds []kind,
	construct func(on clients, opts ...redlatch.Option) lockers,
) (all []*Locker) {
	tb.Helper()
	var shared []*Node
	var own, direct clients
	for range nodes {
		n := newNode()
		shared, own, direct = append(shared, n), append(own, n.client), append(direct, n.direct)
	}
	for _, k := range kinds {
		all = append(all, &Locker{tb: tb, nodes: shared, kind: k, theirs: make(map[string][]*redlatch.Lock)})
	}
	tb.Cleanup(func() { end(shared, all) })

	mine, theirs, prefix := construct(own, opts...), lockers{}, ""
	err := mine.err
	if err == nil {
		prefix, err = prefixOf(opts, shared[0])
	}
	if err == nil { // hooks of the test must not report the other owner
		theirs = construct(direct, redlatch.WithKeyPrefix(prefix), redlatch.WithOwner(somebody),
			redlatch.WithTTL(theirTTL), redlatch.WithOpTimeout(patience))
		err = theirs.err
	}
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	for i, l := range all {
		l.Locker, l.other, l.prefix = mine.made[i], theirs.made[i], prefix
	}
	return all
}

// prefixOf returns the key prefix that opts set. An Option cannot be read, so a Locker with opts
// inspects a key, and the server sees the name with the prefix.
func prefixOf(opts []redlatch.Option, n *Node) (string, error) {
	l, err := redlatch.NewSetNXPX(n.direct, append(slices.Clip(opts), redlatch.WithOpTimeout(patience))...)
	if err != nil {
		return "", err
	}
	const name = "k"
	var key string
	n.server.Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
		if strings.HasPrefix(cmd, "EVAL") {
			key = args[2] // after the script and the number of keys
		}
		return false
	})
	defer n.server.Server().SetPreHook(nil)
	_, err = l.Inspect(context.Background(), name)
	return strings.TrimSuffix(key, name), err
}

// settling is how long a Locker stays open at the end of a bubble. By then calls that were cut off
// have timed out, and the subscription, which ends within two seconds after its last waiter, is
// closed.
const settling = time.Minute

// end closes Lockers. In a bubble it lets time pass first: the clock stops when the test ends, and
// goroutines that wait for a timer would never end.
func end(nodes []*Node, all []*Locker) {
	for _, n := range nodes {
		n.Reconnect()
		n.Delay(0)
	}
	for _, l := range all {
		l.unlockTheirs()
	}
	if inBubble() {
		time.Sleep(settling)
	}
	for _, n := range nodes {
		n.close()
	}
}

// inBubble reports whether its caller runs in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait() // panics outside a bubble
	return true
}
