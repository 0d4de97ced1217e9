package scripttest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A step is a command or a script, some time after the step before.
type step struct {
	after int64 // ms for which TTLs run before it
	jump  int64 // µs by which TIME moves beyond that
	fault fault
	words words // the command; or the script, its keys and its arguments
	keys  int   // how many they are
}

func (s step) isScript() bool { return strings.HasSuffix(s.words[0], ".lua") }

func (s step) String() string {
	return fmt.Sprintf("after %d ms %+d µs, %q, %d keys %s", s.after, s.jump, []string(s.words), s.keys, s.fault)
}

// Words that begin with one of these are numbers that depend on TIME: µs, seconds, ticks, votes and
// scores of a mark, plus what follows.
const (
	atMicros  = "micros:"
	atKept    = "kept:" // the score of a permit that is kept until then
	atSeconds = "seconds:"
	atTicks   = "ticks:"
	atVote    = "vote:"
	atMark    = "mark:"
)

// These in a word stand for a token that holds the lock, or the last of several, or any if nobody
// does; and for the first entry of the queue, or any word.
const (
	theHolder = "holder"
	theLast   = "last"
	theHead   = "head"
)

// holders returns those two.
func (m *model) holders() (first, last string) {
	if owner := m.keys["owner"]; owner != nil {
		first = owner.text
	} else if v := m.keys["k"]; v != nil {
		first = v.text
		for _, member := range v.members() {
			if v.set[member] > float64(m.now) {
				first, last = cmp.Or(first, member), member
			}
		}
	}
	first = cmp.Or(strings.TrimPrefix(first, "~"), "a") // without the tilde of a lock that is kept
	return first, cmp.Or(strings.TrimPrefix(last, "~"), first)
}

// at returns the words at the time of m.
func (s step) at(m *model) words {
	all := slices.Clone(s.words)
	first, last := m.holders()
	head, _ := m.head("queue")
	tokens := strings.NewReplacer(theHolder, first, theLast, last, theHead, cmp.Or(head, "none"))
	for i, word := range all {
		all[i] = tokens.Replace(word)
		for form, now := range map[string]int64{
			atMicros: m.now, atKept: m.now - zero, atSeconds: m.seconds(), atTicks: m.ticks(), atVote: m.vote(), atMark: m.now - zero,
		} {
			if sign, plus, ok := strings.Cut(word, form); ok {
				plus, fraction, _ := strings.Cut(plus, "/")
				n, _ := strconv.ParseInt(plus, 10, 64)
				all[i] = sign + strconv.FormatInt(now+n, 10) + fraction
			}
		}
	}
	return all
}

// suffers returns the fault of a step at the time of m. The slot of a queue with a bare tilde does
// not move: scripts remove that member, which nobody adds, as a write that changes nothing.
func (s step) suffers(m *model) fault {
	if queue := m.keys["queue"]; s.fault == moving && queue != nil && slices.Contains(queue.members(), "~") {
		return healthy
	}
	return s.fault
}

// run carries out a step on the model, and returns the reply.
func (m *model) run(s step) (reply any) {
	w := s.at(m)
	if !s.isScript() {
		m.command(w)
		return nil
	}
	suffered := s.suffers(m)
	if suffered == moving && slices.ContainsFunc(w[1:1+s.keys], func(key string) bool { return m.keys[key] == nil }) {
		return tryAgain
	}
	m.faults = faults{fault: suffered}
	defer func() { m.faults = faults{} }()
	failed := attempt(func() { reply = scripts[w[0]](m, w[1:1+s.keys], w[1+s.keys:]) })
	if failed != "" {
		return failed
	}
	return reply
}

// command is one of another client.
func (m *model) command(w words) {
	switch w[0] {
	case "set":
		m.set(w[1], w[2], 0)
	case "del":
		m.del(w[1])
	case "zadd":
		_ = attempt(func() {
			score, half := strings.CutSuffix(w[2], ".5")
			if m.zadd(w[1], words{score}.number(0), w[3]); half {
				m.keys[w[1]].set[w[3]] += 0.5
			}
		})
	case crowd:
		for _, member := range crowded(w) {
			_ = attempt(func() { m.zadd(w[1], w.number(2), member) })
		}
	case retype:
		m.keys[w[1]] = &value{set: map[string]float64{"a": 1}}
	}
}

// retype is a command that makes a key a sorted set with a low score.
const retype = "retype"

// crowd is a command that adds more members with one score to a sorted set than a script handles.
const crowd = "crowd"

// crowded returns these members.
func crowded(w words) (members []string) {
	for i := range most + 2 {
		members = append(members, w[3]+strconv.Itoa(i))
	}
	return members
}

// listening has the channels on which clients listen.
var listening = []string{"there"}
