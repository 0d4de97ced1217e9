package node

import (
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

	// Persist makes the call continue when its caller has left. If there is no reply within the timeout, it is sent
	// for the same time again, in the background.
	Persist bool

	// Once forbids a resend if an earlier send may have been carried out.
	Once bool

	// Ordered calls with the same Key are sent one at a time. A call is sent when the one before it has returned or
	// its timeout has passed, or when half of the call's own timeout has passed.
	Ordered bool
	Key     string

	// Beside is a second command, which is sent right behind the first on the same connection. If one of them must
	// be resent, both are. Such a call travels alone. On a Redis Cluster both go to the master of Key.
	Beside []any

	// Late is called for a send whose reply did not reach the caller: with the reply, if it arrived after the call
	// had ended or after [Call.Leave], or with the error with which the client gave up. [MayStillRun] says whether such
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
	deadline          time.Duration
	due               time.Duration // when the timer handles the call; 0: never
	pause             time.Duration // before the last resend
	trip              *trip         // the newest, while travelling
	done              chan struct{} // receives a value when there is a reply; nil if Report is used
	trouble           error         // why it was last resent
	reply             Reply
	ahead, behind     *Call // in its lane
	inMail, inWatched link
	place             place
	sent              bool // at least once
	shared            bool // a trip that it left may still use it
	unclear           bool // a send that failed may have been carried out
	lateReported      bool // Late was called for a send that may still be carried out
	overtaken         bool // a call behind it was sent before it returned
	left              bool // nobody waits for it
	heir              bool // another call continues for it
	over              bool // there is a reply, and it is not sent any more
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
	Beside *Reply // the reply to the second command
	Resent bool   // an earlier send may also have been carried out

	// Overtaken says that other calls for the key may have been sent before this send returned. It is false only for
	// the last send of an Ordered call that returned in its turn.
	Overtaken bool
}

// Reply returns the reply of a call that was reported.
func (c *Call) Reply() Reply { return c.reply }

// calls are calls for reuse. The words and the context of a command are new for each, since hooks of the client may
// keep them.
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
	c.words = append(append(make([]any, 0, 3+len(words)), "evalsha", &s.sha, keys), words...)
	return c
}

// Append adds words to a call that was not posted yet.
func (c *Call) Append(words ...any) { c.words = append(c.words, words...) }

// sendWhole replaces the SHA-1 by the source of the script. Words that were sent are not changed, since hooks of
// the client may keep them.
func (c *Call) sendWhole() {
	c.words = append([]any{"eval", &c.script.source}, c.words[2:]...)
	c.script = nil
}
