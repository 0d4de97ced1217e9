package scripttest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// A model is a Redis with a Go function in place of each script.
type model struct {
	keys     map[string]*value
	now      int64    // TIME, in µs
	messages []string // that were published since they were last read
	faults
}

type value struct {
	text string
	set  map[string]float64 // the scores of a sorted set; nil: it is a string
	left int64              // of the TTL, in ms; 0: it has none
}

// A failure is the kind of an error.
type failure string

const (
	wrongType    failure = "WRONGTYPE"
	readOnly     failure = "READONLY"
	outOfMemory  failure = "OOM"
	forbidden    failure = "NOPERM"
	noRegister   failure = "the fence register"
	noCounter    failure = "the fence counter"
	noTimestamp  failure = "does not hold a timestamp"
	noSemaphore  failure = "is not a semaphore"
	notAnInteger failure = "not an integer"
	tryAgain     failure = "TRYAGAIN"
)

// A fault is what is wrong with a server: nothing, it is a replica, it is full, the user lacks the
// right to a command, or cannot read the fence counter, or it is the master of a slot of a Cluster
// that moves away: a script whose keys are not all there is not begun, and none gets at a key that
// is gone.
type fault string

const (
	healthy    fault = ""
	replica    fault = "replica"
	full       fault = "full"
	noPublish  fault = "-publish"
	noPubSub   fault = "-pubsub"
	noIncr     fault = "-incr"
	noZAdd     fault = "-zadd"
	unreadable fault = "unreadable"
	moving     fault = "moving"
)

type faults struct {
	fault   fault
	wrote   bool   // this script has called a command that writes
	leaving string // the token whose permit it is about to remove
}

var (
	grows   = []string{"set", "setnx", "getset", "incr", "incrby", "zadd"} // a full Redis refuses these
	shrinks = []string{"del", "pexpire", "zrem", "zremrangebyrank"}
)

// refuses returns why a script must not call a command now, or "".
func (f *faults) refuses(command string) failure {
	growing := slices.Contains(grows, command)
	writes := growing || slices.Contains(shrinks, command)
	switch {
	case string(f.fault) == "-"+command:
		return forbidden
	case writes && f.fault == replica:
		return readOnly
	case growing && f.fault == full && !f.wrote:
		return outOfMemory
	}
	f.wrote = f.wrote || writes
	return ""
}

// attempt returns the failure of f, as pcall does. Elsewhere a failure is a panic, and ends the
// script.
func attempt(f func()) (failed failure) {
	defer func() {
		if p := recover(); p != nil {
			failed = p.(failure)
		}
	}()
	f()
	return ""
}

// call begins a command.
func (m *model) call(command string) {
	if why := m.refuses(command); why != "" {
		panic(why)
	}
}

// typed returns a string, or a sorted set, or nil.
func (m *model) typed(key string, set bool) *value {
	v := m.keys[key]
	if v != nil && set != (v.set != nil) {
		panic(wrongType)
	}
	return v
}

// get returns "" if there is no key.
func (m *model) get(key string) string {
	if key == counterKey && m.fault == unreadable {
		panic(forbidden)
	}
	if v := m.typed(key, false); v != nil {
		return v.text
	}
	return ""
}

// set is SET with PX if there is a TTL.
func (m *model) set(key, text string, ttl int64) {
	m.call("set")
	m.keys[key] = &value{text: text, left: ttl}
}

func (m *model) setNX(key, text string, ttl int64) bool {
	m.call("set")
	if m.keys[key] != nil {
		return false
	}
	m.set(key, text, ttl)
	return true
}

func (m *model) del(keys ...string) (deleted int64) {
	m.call("del")
	for _, key := range keys {
		if m.keys[key] != nil {
			deleted++
		}
		delete(m.keys, key)
	}
	return deleted
}

func (m *model) pexpire(key string, ttl int64) {
	m.call("pexpire")
	if v := m.keys[key]; v != nil {
		v.left = ttl
	}
}

func (m *model) pttl(key string) int64 {
	v := m.keys[key]
	switch {
	case v == nil:
		return -2
	case v.left == 0:
		return -1
	}
	return v.left
}

func (m *model) incr(key string) int64 {
	m.call("incr")
	v := m.typed(key, false)
	if v == nil {
		v = &value{text: "0"}
		m.keys[key] = v
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n+1 < n {
		panic(notAnInteger)
	}
	v.text = strconv.FormatInt(n+1, 10)
	return n + 1
}

// zadd returns 1 if the member is new.
func (m *model) zadd(key string, score int64, member string) int64 {
	m.call("zadd")
	v := m.typed(key, true)
	if v == nil {
		v = &value{set: make(map[string]float64)}
		m.keys[key] = v
	}
	_, known := v.set[member]
	v.set[member] = float64(score)
	return one(!known)
}

func (m *model) zrem(key, member string) (removed bool) {
	m.call("zrem")
	if v := m.typed(key, true); v != nil {
		_, removed = v.set[member]
		delete(v.set, member)
		m.dropEmpty(key)
	}
	return removed
}

func (m *model) dropEmpty(key string) {
	if len(m.keys[key].set) == 0 {
		delete(m.keys, key)
	}
}

// score returns 0 if there is no such member. It leaves a half out.
func (m *model) score(key, member string) int64 {
	if v := m.typed(key, true); v != nil {
		return int64(math.Floor(v.set[member]))
	}
	return 0
}

// halved reports whether a score has a half.
func (m *model) halved(key, member string) bool {
	return m.typed(key, true).set[member] != float64(m.score(key, member))
}

// members returns the members of a sorted set in their order.
func (m *model) members(key string) []string {
	if v := m.typed(key, true); v != nil {
		return v.members()
	}
	return nil
}

func (v *value) members() []string {
	return slices.SortedFunc(maps.Keys(v.set), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.set[a], v.set[b]), cmp.Compare(a, b))
	})
}

// first returns the first member, or "".
func (m *model) first(key string) string {
	if all := m.members(key); len(all) > 0 {
		return all[0]
	}
	return ""
}

func (m *model) publish(channel, message string) {
	m.call("publish")
	m.messages = append(m.messages, channel+": "+message)
}

func (m *model) seconds() int64 { return m.now / 1_000_000 }
func (m *model) micros() int64  { return m.now % 1_000_000 }

// time is TIME at the end of a reply.
func (m *model) time(reply ...any) []any { return append(reply, m.seconds(), m.micros()) }

// pass lets ms pass. TIME becomes now.
func (m *model) pass(ms, now int64) {
	m.now = now
	for key, v := range m.keys {
		if v.left > 0 && v.left <= ms {
			delete(m.keys, key)
		} else if v.left > 0 {
			v.left -= ms
		}
	}
}

// state returns how many keys there are, and each in a line.
func (m *model) state(keys []string) string {
	state := fmt.Sprintf("%d keys\n", len(m.keys))
	for _, key := range keys {
		state += m.keys[key].line(key, m.pttl(key))
	}
	return state
}

func (v *value) line(key string, pttl int64) string {
	switch {
	case pttl == -2:
		return ""
	case v.set == nil:
		return fmt.Sprintf("%s, PTTL %d: %q\n", key, pttl, v.text)
	}
	line := fmt.Sprintf("%s, PTTL %d:", key, pttl)
	for _, member := range v.members() {
		line += fmt.Sprintf(" %q=%s", member, strconv.FormatFloat(v.set[member], 'f', -1, 64))
	}
	return line + "\n"
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// words are the keys or the arguments of a script. An argument that is absent reads as "" or 0.
type words []string

func (w words) at(i int) string {
	if i < len(w) {
		return w[i]
	}
	return ""
}

func (w words) number(i int) int64 {
	n, _ := strconv.ParseInt(w.at(i), 10, 64)
	return n
}
