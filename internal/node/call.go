package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A Script is sent by its SHA-1, or with its source to a server that does not have it. It gets data
// as KEYS and ARGV only.
type Script struct{ source, sha any } // strings, as words

// NewScript returns a script. sha is the SHA-1 of the source in hexadecimal digits. It is not
// computed here: under GODEBUG=fips140=only that would be a panic.
func NewScript(source, sha string) *Script { return &Script{source, sha} }

// A Call is one command. The exported fields are set before it is posted and not changed
// afterwards.
type Call struct {
	// Timeout bounds the call, including all its sends.
	Timeout time.Duration

	// Urgent sends the call before others.
	Urgent bool

	// Insists makes the node send the call again for a minute if it was not carried out within the
	// timeout. Nobody gets the replies to these sends.
	Insists bool

	// Again is when a call that insists is sent once more, even if it was carried out: until then an
	// earlier command, which it must follow, may be carried out. 0: there is none. Nobody gets the
	// reply to that send.
	Again clock.Mono

	// Abandoned says that nobody waits for the outcome any more. A call that has failed is not sent
	// again then.
	Abandoned *atomic.Bool

	// Spare ends the call at once, as not done, if many calls wait for a server that does not answer.
	// Who has other servers can do without this one.
	Spare bool

	// Began is when the call was first asked for, if this one is a repeat. See AppendLatest. 0:
	// now.
	Began clock.Mono

	// Then is a second command, which is sent right behind the first on the same connection. If one
	// of them must be resent, both are. Such a call travels alone. On a Redis Cluster both go to
	// the master of Key.
	Then []any
	Key  string

	// Done receives the reply, once. It runs in a goroutine of the node and must not block. It may
	// post calls.
	Done func(Reply)

	command
	ctx context.Context // for its values

	// Guarded by Node.mu.
	times
	links
	batch *batch // the one that it is in; nil: it waits, or has ended
	to    *Node  // that will carry it
	earlier
	reply Reply

	uses uint64 // how often it was used before
}

// over stands for the index of a call that has a reply, and is not sent any more.
const over = -1

// times says when the node looks at a call, and why.
type times struct {
	at          int        // its index in deadlines, or over
	ready       clock.Mono // when it may be sent
	deadline    clock.Mono // when it ends
	limit       clock.Mono // until then it may create something, see AppendLatest
	insistUntil clock.Mono // when the node gives up a call that insists; 0: it was posted by a user of the package
}

// A command is what is sent.
type command struct {
	script *Script // the script that words call; nil if they have its source
	words  []any   // what is sent is a copy, since hooks of the client may write into it
	latest int     // the index of the word that says until when the script may create something; 0: it has none
	from   bool    // at that time begins what the script keeps, see KeepsFrom
	room   [12]any // for words
}

// earlier is what is known of the sends before.
type earlier struct {
	sent    bool          // there was one
	resent  bool          // a send other than the one under way may have been carried out
	parked  bool          // the call was parked before the send under way
	refused bool          // the newest send failed
	sick    bool          // the newest send failed for a reason that is about the whole server
	pause   time.Duration // before the newest send
	trouble error         // why the call was last resent, or parked

	// redirect is the answer MOVED or ASK to the newest send, until another server has answered.
	redirect string
	toldNow  bool        // the answer to the newest send has said the time of Redis
	clock    clockOffset // if there are several servers: of the one that refused a send which came too late
}

// A Reply is the outcome of a call. Err is nil if the command was carried out, and [NotDone] if it
// was not. It may also be an answer of the server, see [Answered]. After any other error the outcome
// is unknown.
type Reply struct {
	Value  any // nil for a nil reply
	Err    error
	Then   *Reply // the reply to the second command
	Resent bool   // an earlier send may also have been carried out, or may be until the timeout has passed
}

// calls are used again. With 256 goroutines that saves a sixth of the CPU of a lock.
var calls = sync.Pool{New: func() any { return new(Call) }}

// useAgain puts back a call that has ended with the reply to its only send. Only the batch that has
// returned still refers to it, and the item there knows how often the call was used.
func (c *Call) useAgain() {
	if c.reply.Err == nil && !c.reply.Resent {
		*c = Call{uses: c.uses + 1}
		calls.Put(c)
	}
}

// Eval returns a call of a script. words are the keys, whose number is keys, and then the
// arguments: strings and integers, as the hooks of a client expect, or pointers to strings that are
// secret. A hook that prints words, as tracers do, prints the address of a pointer. The call must
// not be used after it was posted.
func Eval(s *Script, keys int, words ...any) *Call {
	c := calls.Get().(*Call)
	c.script = s
	c.words = append(append(c.room[:0], "evalsha", s.sha, keys), words...)
	return c
}

// Append adds words to a call that was not posted yet.
func (c *command) Append(words ...any) { c.words = append(c.words, words...) }

// sendSource has the source of the script sent.
func (c *command) sendSource() {
	if c.script != nil {
		c.words[0], c.words[1] = "eval", c.script.source
		c.script = nil
	}
}

// key returns the first key of the script that words call, or Key.
func (c *Call) key() string {
	if len(c.words) > 3 {
		if key, is := c.words[3].(string); is {
			return key
		}
	}
	return c.Key
}

// hopeless reports whether Redis would refuse c, since it comes too late. It was never sent, so it is known not
// to be done.
func (c *Call) hopeless(now clock.Mono) bool {
	return !c.sent && c.kind() == asks && c.latest > 0 && now >= c.limit
}

func (c *Call) kind() kind {
	switch {
	case c.Urgent:
		return keeps
	case c.Insists:
		return gives
	}
	return asks
}

// late returns when nine tenths of the time of c have passed.
func (c *Call) late() clock.Mono { return c.deadline.Add(-c.Timeout / 10) }

// nextLook returns when the node looks at c next: when it may be sent, when half or nine tenths of
// its time have passed, or at its deadline.
func (c *Call) nextLook(now clock.Mono) clock.Mono {
	half := c.deadline.Add(-c.Timeout / 2)
	switch {
	case c.ready > now:
		return min(c.ready, c.deadline)
	case half > now:
		return half
	case c.late() > now:
		return c.late()
	}
	return c.deadline
}
