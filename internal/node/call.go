package node

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"sync"
	"time"
)

// A Script is sent by its SHA-1, or with its source to a server that does not have it. It gets data as KEYS and
// ARGV only.
type Script struct {
	source, sha string
}

// NewScript returns a script.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Call is one command. The exported fields are set before it is posted and not changed afterwards.
type Call struct {
	// Timeout bounds the call, including all its sends.
	Timeout time.Duration

	// Insists makes the node go on to send the call for a minute if there was no reply within the timeout. Nobody gets the
	// reply to that.
	Insists bool

	// Then is a second command, which is sent right behind the first on the same connection. If one of them must
	// be resent, both are. Such a call travels alone. On a Redis Cluster both go to the master of Key.
	Then []any
	Key  string

	// Done receives the reply, once. It runs in a goroutine of the node and must not block. It may post calls.
	Done func(Reply)

	script *Script // the script that words call; nil if they have its source
	words  []any
	latest int // the index of the word that says until when the script may create something; 0: it has none
	node   *Node
	ctx    context.Context // for its values

	// Guarded by node.mu. Times are those of Node.now.
	deadline      time.Duration
	gives         time.Duration // when the node gives up a call that insists; 0: it was posted by a user of the package
	pause         time.Duration // before the last resend
	trip          *trip         // the newest; nil before the first
	trouble       error         // why it was last resent
	reply         Reply
	queue, inTime link // its places in the mailbox, or among those that have ended, and in the list for the timer
	place         place
	clock         ahead // what the refusal of a send that came too late has said
	unclear       bool  // a send other than the newest may have been carried out
	over          bool  // there is a reply, and it is not sent any more
}

// A place is the current stage of a call.
type place uint8

const (
	mailed     place = iota // in the mailbox
	travelling              // with a courier
	pausing                 // before a resend
	returned                // its newest send has ended
)

// A Reply is the outcome of a call. Err is nil if the command was carried out, and [NotDone] if it was not. An
// answer of the server, see [Answered], says so itself. After any other error the outcome is unknown.
type Reply struct {
	Value  any // nil for a nil reply
	Err    error
	Then   *Reply // the reply to the second command
	Resent bool   // an earlier send may also have been carried out, or may be until the timeout has passed
}

// lastTroubleLocked returns why c was last resent. If it was not, it returns that of another call since the last answer.
func (c *Call) lastTroubleLocked() error { return cmp.Or(c.trouble, c.node.trouble) }

// mayBeDone reports whether a send may have been carried out.
func (c *Call) mayBeDone() bool { return c.unclear || c.place == travelling }

// calls are calls for reuse: without them a call costs a third more memory. The words and the context of a command
// are new for each, since hooks of the client may keep them.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Eval returns a call of a script. words are the keys, whose number is keys, and then the arguments. Pointers to
// strings and integers cost no allocation. The call must not be used after it was posted.
func Eval(s *Script, keys int, words ...any) *Call {
	c := calls.Get().(*Call)
	c.script = s
	c.words = append(append(make([]any, 0, 5+len(words)), "evalsha", &s.sha, keys), words...) // with room for two more
	return c
}

// Append adds words to a call that was not posted yet.
func (c *Call) Append(words ...any) { c.words = append(c.words, words...) }

// AppendLatest adds the word that says until when the script may create something: nine tenths of the timeout, in µs of
// the clock of Redis. A script that comes later changes nothing and answers {"late", seconds, µs of TIME}. The node then
// sends it once more.
func (c *Call) AppendLatest() {
	c.latest = len(c.words)
	c.words = append(c.words, 0)
}

// stampLocked writes the latest time into a call that is about to be sent. If it is not known, Redis refuses: the call then
// has the source of the script, which a server that was never asked may not have.
func (c *Call) stampLocked(n *Node) {
	if c.latest == 0 {
		return
	}
	clock := c.clock
	if !clock.known {
		clock = n.clock
	}
	if c.trip != nil {
		c.words = slices.Clone(c.words) // hooks may keep the words that were sent
	}
	c.words[c.latest] = clock.latest(c.deadline, c.Timeout)
	if !clock.known {
		c.sendSource()
	}
}

// sendSource has the call send the source of its script.
func (c *Call) sendSource() {
	if c.script != nil {
		c.words = append([]any{"eval", &c.script.source}, c.words[2:]...)
		c.script = nil
	}
}

// A link is the place of a call in a list. A list is a ring of links; its root has no call.
type link struct {
	prev, next *link
	call       *Call
}

// first returns the first call of the list whose root is l, or nil.
func (l *link) first() *Call { return l.next.call }

// push puts added at the end of the list whose root is l.
func (l *link) push(added *link) {
	added.prev, added.next = l.prev, l
	l.prev.next, l.prev = added, added
}

// remove removes l from its list.
func (l *link) remove() {
	l.prev.next, l.next.prev = l.next, l.prev
	l.prev, l.next = nil, nil
}

// detach empties the list whose root is l. It returns its first link, from which next leads to the last, and then to nil.
func (l *link) detach() (first *link) {
	if l.next == l {
		return nil
	}
	first = l.next
	l.prev.next = nil
	l.prev, l.next = l, l
	return first
}
