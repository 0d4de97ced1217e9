package redistest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Move is that of a slot to another master. It is open from Announce until Finish. A key can be on
// either master meanwhile.
type Move struct {
	Source, Target *redis.Client

	masters            []*redis.Client
	sourceID, targetID any
	slot               int64
}

// MoveOf returns a move of the slot of key. It has clients of the masters of [StartCluster].
func MoveOf(tb testing.TB, masters []*redis.Client, key string) *Move {
	tb.Helper()
	slot := masters[0].ClusterKeySlot(tb.Context(), key).Val()
	from := int(slot) * clusterMasters / clusterSlots
	return newMove(tb, masters, slot, from, (from+1)%clusterMasters)
}

func newMove(tb testing.TB, masters []*redis.Client, slot int64, from, to int) *Move {
	tb.Helper()
	m := &Move{masters: masters, Source: masters[from], Target: masters[to], slot: slot}
	m.sourceID, m.targetID = result(tb, m.Source, "cluster", "myid"), result(tb, m.Target, "cluster", "myid")
	return m
}

// Onward returns a move of the slot to the third master, after this one has finished.
func (m *Move) Onward(tb testing.TB) *Move {
	tb.Helper()
	from := slices.Index(m.masters, m.Target)
	return newMove(tb, m.masters, m.slot, from, (from+1)%clusterMasters)
}

// Announce has both masters know of the move.
func (m *Move) Announce(tb testing.TB) {
	tb.Helper()
	result(tb, m.Target, "cluster", "setslot", m.slot, "importing", m.sourceID)
	result(tb, m.Source, "cluster", "setslot", m.slot, "migrating", m.targetID)
}

// Keys moves the keys, and returns how many they were.
func (m *Move) Keys(tb testing.TB) int {
	tb.Helper()
	moving.Lock()
	defer moving.Unlock()
	keys := m.Source.ClusterGetKeysInSlot(tb.Context(), int(m.slot), 100).Val()
	if len(keys) > 0 {
		m.migrateLocked(tb, keys...)
	}
	return len(keys)
}

// One moves one of the keys.
func (m *Move) One(tb testing.TB, key string) {
	tb.Helper()
	moving.Lock()
	defer moving.Unlock()
	m.migrateLocked(tb, key)
}

func (m *Move) migrateLocked(tb testing.TB, keys ...string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(m.Target.Options().Addr)
	if err != nil {
		tb.Fatal("redistest: ", err)
	}
	words := []any{"migrate", host, port, "", 0, 5000, "keys"}
	for _, key := range keys {
		words = append(words, key)
	}
	result(tb, m.Source, words...)
}

// moving lets one step of a move happen at a time, since masters are sources and targets at once. A master
// stands still while it sends keys, and two that send keys to each other would wait for their timeout. The
// target of a move gets an epoch above all that it knows. Another master with a higher one, which has had
// the slot, would take it back by an old message: then each of the two says that the other one has the slot.
var moving sync.Mutex

// Finish gives the slot to the target. The move has no keys left.
func (m *Move) Finish(tb testing.TB) {
	tb.Helper()
	moving.Lock()
	defer moving.Unlock()
	result(tb, m.Target, "cluster", "setslot", m.slot, "node", m.targetID)
	result(tb, m.Source, "cluster", "setslot", m.slot, "node", m.targetID)
	newest := epoch(tb, m.Target, "cluster_my_epoch")
	for _, master := range m.masters {
		until(tb, "all know the epoch", func() bool { return epoch(tb, master, "cluster_current_epoch") >= newest })
	}
}

// epoch returns one of the epochs that a master knows.
func epoch(tb testing.TB, master *redis.Client, name string) (n int) {
	tb.Helper()
	_, rest, _ := strings.Cut(master.ClusterInfo(tb.Context()).Val(), name+":")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		tb.Fatal("redistest: ", err)
	}
	return n
}

// result returns the reply to a command, which must succeed.
func result(tb testing.TB, c *redis.Client, words ...any) any {
	tb.Helper()
	reply, err := c.Do(tb.Context(), words...).Result()
	if err != nil {
		tb.Fatalf("redistest: %v: %v", words, err)
	}
	return reply
}
