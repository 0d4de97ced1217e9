package node

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
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

	// OutlivesCaller makes the call continue when its caller has left. If there is no reply within the timeout, it is sent
	// for the same time again, in the background.
	OutlivesCaller bool

	// Ordered calls with the same Key are sent one at a time. A call is sent when the one before it has returned or
	// its timeout has passed, or when half of the call's own timeout has passed.
	Ordered bool
	Key     string

	// Then is a second command, which is sent right behind the first on the same connection. If one of them must
	// be resent, both are. Such a call travels alone. On a Redis Cluster both go to the master of Key.
	Then []any

	// Late is called for a send whose reply did not reach the caller: with the reply, if it arrived after the call
	// had ended or after [Call.Unwatch], or with the error with which the client gave up. [MayStillRun] says whether such
	// a send may still be carried out. Late may run before the call ends. It runs in the goroutine of a courier and
	// must not block. It may be nil.
	Late func(Reply)

	// Report receives the call when there is a reply. It must not block. Index is for the receiver.
	Report chan<- *Call
	Index  int

	script *Script // the script that words call; nil for a plain command
	words  []any
	node   *Node
	ctx    context.Context // for its values

	// Guarded by node.mu, except that reply may be read once it was reported. Times are those of Node.now.
	deadline        time.Duration
	due             time.Duration // when the timer handles the call
	pause           time.Duration // before the last resend
	trip            *trip         // the newest; nil before the first
	trouble         error         // why it was last resent
	reply           Reply
	ahead, behind   *Call // in its lane
	inMail, inTimed link
	place           place
	unclear         bool // a send other than the newest may have been carried out
	lateReported    bool // Late was called for a send that may still be carried out
	overtaken       bool // a call behind it was sent before it returned
	unwatched       bool // nobody waits for it
	over            bool // there is a reply, and it is not sent any more
}

// A place is the current stage of a call.
type place uint8

const (
	queued     place = iota // in its lane, behind another call
	mailed                  // in the mailbox
	travelling              // with a courier
	pausing                 // before a resend
	returned                // its last send has ended
)

// A Reply is the outcome of a call. Err is nil if the command was carried out, and [NotDone] if it was not. An
// answer of the server, see [Answered], says so itself. After any other error the outcome is unknown.
type Reply struct {
	Value  any // nil for a nil reply
	Err    error
	Then   *Reply // the reply to the second command
	Resent bool   // an earlier send may also have been carried out

	// Overtaken says that other calls for the key may have been sent before this send returned. It is false only for
	// the last send of an Ordered call that returned in its turn.
	Overtaken bool
}

// Reply returns the reply of a call that was reported.
func (c *Call) Reply() Reply { return c.reply }

// Cancel ends c with err unless it has ended. If c was not sent yet, it never will be, and err is marked [NotDone].
func (c *Call) Cancel(err error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.node.endLocked(c, Reply{Err: err})
}

// Unwatch says that nobody waits for c any more. The call continues, and its reply goes to Late.
func (c *Call) Unwatch() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.unwatched = !c.over
}

// cutShort returns the reply for a caller whose context ended with err.
func (c *Call) cutShort(err error) Reply {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.over {
		return c.reply
	}
	trouble := c.lastTroubleLocked()
	cut := &CutShort{Ctx: err, Trouble: cmp.Or(trouble, errSilent), Silent: trouble == nil}
	if c.OutlivesCaller {
		return Reply{Err: cut}
	}
	n.endLocked(c, Reply{Err: err})
	cut.Ctx = c.reply.Err // it is marked if c was not carried out
	c.reply.Err = cut
	return c.reply
}

// Trouble returns what [CutShort] says of a call without a reply.
func (c *Call) Trouble() (silent bool, trouble error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	trouble = c.lastTroubleLocked()
	return trouble == nil, cmp.Or(trouble, errSilent)
}

// lastTroubleLocked returns why c was last resent. If it was not, it returns that of another call since the last answer.
func (c *Call) lastTroubleLocked() error { return cmp.Or(c.trouble, c.node.trouble) }

// mayBeDone reports whether a send may have been carried out.
func (c *Call) mayBeDone() bool { return c.unclear || c.place == travelling }

// calls are calls for reuse: without them a call costs a third more memory. The words and the context of a command
// are new for each, since hooks of the client may keep them.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Command returns a call of a plain command. It must not be used after [Node.Do] has returned.
func Command(words ...any) *Call {
	c := calls.Get().(*Call)
	c.words = append(make([]any, 0, len(words)), words...)
	return c
}

// Eval returns a call of a script. words are the keys, whose number is keys, and then the arguments. Pointers to
// strings and integers cost no allocation. The call must not be used after [Node.Do] has returned.
func Eval(s *Script, keys int, words ...any) *Call {
	c := calls.Get().(*Call)
	c.script = s
	c.words = append(append(make([]any, 0, 4+len(words)), "evalsha", &s.sha, keys), words...) // with room for one more
	return c
}

// Append adds words to a call that was not posted yet.
func (c *Call) Append(words ...any) { c.words = append(c.words, words...) }

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
