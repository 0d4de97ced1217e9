package node

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"time"
)

// A Script is sent by its SHA-1, and as a whole to a server that does not have it. It takes data as KEYS
// and ARGV alone.
type Script struct {
	Name, source, sha string
}

// NewScript returns a script. name is what errors call it.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{name, source, hex.EncodeToString(sum[:])}
}

// A Call is one command. The exported fields are set before it is posted and not changed afterwards.
type Call struct {
	// Timeout is how long the call may take, with all its sends.
	Timeout time.Duration

	// Persist has the call carried out though its caller has left. If there is no reply within the timeout,
	// it is sent for as long again, without its caller.
	Persist bool

	// Once forbids to send the call again where an earlier send may have been carried out.
	Once bool

	// Ordered calls with one Key are sent one after the other: each when the one before it has landed,
	// when the timeout of that one has passed, or when half its own timeout has.
	Ordered bool
	Key     string

	// Beside is a second command, which is sent right behind the first on the same connection. Both are
	// sent again if either of them needs it. Such a call travels alone. On a Redis Cluster both go to
	// the master of Key.
	Beside []any

	// Late is told of a send whose reply did not reach the caller: the reply, if it arrived after the call had
	// ended or after [Call.Leave], or the error with which the client gave up. [MayLand] says whether such a
	// send may still be carried out. Late may run before the call ends, in the goroutine of a courier, and must
	// not block. Nil: nobody needs to know.
	Late func(Reply)

	// Report receives the call when there is a reply. It needs room for it. Index is for the receiver.
	Report chan<- *Call
	Index  int

	script *Script // what words call; nil for a plain command
	words  []any
	node   *Node
	ctx    context.Context // lends its values

	// Guarded by node.mu. The reply may be read once it was reported. Instants are those of Node.now.
	deadline          time.Duration
	due               time.Duration // when the timer looks at the call; 0: never
	pause             time.Duration // before the last time it was sent again
	trip              *trip         // while travelling: the newest
	done              chan struct{} // receives a value when there is a reply; nil: Report does
	trouble           error         // why it was sent again, last
	reply             Reply
	ahead, behind     *Call // in its lane
	inMail, inWatched link
	place             place
	sent              bool // at least once
	shared            bool // a trip that it went on without may still use it
	unclear           bool // a send that failed may have been carried out
	strayed           bool // Late was told of a send that may be carried out yet
	overtaken         bool // a call behind it was sent before it landed
	left              bool // nobody waits for it
	heir              bool // another call goes on for it
	over              bool // there is a reply, and it is not sent again
}

// A place is where a call is.
type place uint8

const (
	queued     place = iota // in its lane, behind another
	mailed                  // in the mailbox
	travelling              // with a courier
	pausing                 // until it is sent again
	landed                  // its last send is back
)

// A Reply is what came of a call. Err is nil if the command was carried out, [NotDone] if it was not, an
// answer of the server (see [Answered]), or else leaves that open.
type Reply struct {
	Value  any // nil for a nil reply
	Err    error
	Beside *Reply // of the second command
	Resent bool   // an earlier send may have been carried out too

	// Overtaken says that other calls on the key may have been sent before this one landed: always, but for
	// an Ordered call that landed in its turn.
	Overtaken bool
}

// Reply returns what came of the call, once it was reported.
func (c *Call) Reply() Reply { return c.reply }

// calls are calls for reuse. What hooks of a client may keep, the words and the context of a command, is
// new for each.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Command returns a call of a plain command. It must not be used after [Node.Do] has returned.
func Command(words ...any) *Call {
	c := calls.Get().(*Call)
	c.words = append(make([]any, 0, len(words)), words...)
	return c
}

// Eval returns a call of a script with so many keys. words are the keys and then the arguments. Pointers to
// strings and integers cost no allocation. The call must not be used after [Node.Do] has returned.
func Eval(s *Script, keys int, words ...any) *Call {
	c := calls.Get().(*Call)
	c.script = s
	c.words = append(append(make([]any, 0, 3+len(words)), "evalsha", &s.sha, keys), words...)
	return c
}

// Append adds words to a call that was not posted yet.
func (c *Call) Append(words ...any) { c.words = append(c.words, words...) }

// sendWhole replaces the SHA-1 by the source of the script. Words that were sent stay as they were, since
// hooks of the client may keep them.
func (c *Call) sendWhole() {
	c.words = append([]any{"eval", &c.script.source}, c.words[2:]...)
	c.script = nil
}
