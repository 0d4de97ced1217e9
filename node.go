package redlatch

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// What passes before a command is sent again doubles from firstPause to lastPause, with jitter.
const (
	firstPause = 4 * time.Millisecond
	lastPause  = 64 * time.Millisecond
)

// A script is sent by its SHA-1, and whole to a server that does not have it. It takes data as
// KEYS and ARGV alone.
type script struct {
	source string
	sha    string
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// call returns the words of an EVALSHA. Pointers in args cost no allocation.
func (s *script) call(j *job, keys int, args ...any) []any {
	return append(append(j.blank(), "evalsha", &s.sha, keys), args...)
}

// blank returns an empty slice for the words of one command. Those of the job's first stand in the job.
func (j *job) blank() []any {
	if j.words[0] != nil {
		return make([]any, 0, len(j.words))
	}
	return j.words[:0]
}

// once is a command that go-redis must not send again by itself, so that send knows whether it
// may have been carried out before.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// send runs a command, again where that may mend a failure, until the job has ended. s is the script
// that words name, or nil. It reports whether an earlier send may have been carried out before the
// one that was answered. An error that is not undone says that the command perhaps was carried out.
func (j *job) send(s *script, words []any) (reply any, resent bool, err error) {
	pause := firstPause
	if j.failed != nil {
		why := j.failed
		resent, j.failed = j.resent, nil
		if !sleep(j, jitter(pause)) {
			return nil, resent, why
		}
	}
	for ; ; pause = min(2*pause, lastPause) {
		cmd := redis.NewCmd(j, words...)
		err := j.process(once{cmd})
		switch {
		case err == nil, errors.Is(err, redis.Nil):
			if j.node.trouble.Load() != nil {
				j.node.trouble.Store(nil)
			}
			return cmd.Val(), resent, nil
		case s != nil && redis.HasErrorPrefix(err, "NOSCRIPT"):
			words = append([]any{"eval", s.source}, words[2:]...)
			s = nil
			continue
		}
		never, again := neverLeft(err), passing(err)
		j.stray = j.stray || strays(err)
		err = advise(err)
		if j.here && again {
			j.failed = err
		}
		if j.here || !again || time.Now().After(j.deadline) || !sleep(j, jitter(pause)) {
			if never && !resent {
				err = &undone{err}
			}
			return nil, resent, err
		}
		resent = resent || !never && !answered(err)
		j.sentAgain(err)
	}
}

// process runs one command.
func (j *job) process(cmd redis.Cmder) error {
	switch {
	case j.waits:
		return j.processAndWait(cmd)
	case j.here:
		return j.node.near.run(j, cmd)
	}
	if err := j.node.client.Process(j, cmd); err != nil {
		return err
	}
	return cmd.Err() // of a deferred pipeline: it waits until the command is carried out
}

// jitter returns a random duration around d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// neverLeft reports whether a command that failed with err cannot have been carried out.
func neverLeft(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// answered reports whether err is the server's own word.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// notReady are the words by which Redis says that the same command may succeed a little later.
var notReady = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "ERR max number of clients",
}

// passing reports whether the same command may succeed a little later: the connection broke, or
// the server said that it is not ready.
func passing(err error) bool {
	if answered(err) {
		said := spoken(err)
		return slices.ContainsFunc(notReady, func(word string) bool { return strings.HasPrefix(said, word) })
	}
	return !errors.Is(err, redis.ErrClosed) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// A node is one Redis as the strategies see it: an operation on it ends in time, whatever the
// settings of the client.
type node struct {
	client redis.UniversalClient
	near   near // nil: every operation has a goroutine of its own
	crew   crew

	trouble atomic.Pointer[error] // why a command was sent again, last; nil once one succeeded
}

// newNode returns a node that has most operations under way at once.
func newNode(client redis.UniversalClient, most int) *node {
	return &node{client: client, crew: crew{most: most}}
}

// An operation sends the commands of a job, for a claim, and reads the replies, in as much time as
// they take. The job's end says that nobody waits any more.
type operation func(j *job, c *claim) (grant, error)

// start has op carried out and returns at once. Its outcome is settled when it is done, or when
// claim.bound has passed: go-redis does not heed a cancelled ctx while it reads, and a silent
// server would cost seconds. ctx lends its values.
func (n *node) start(ctx context.Context, op operation, c *claim, f form) *job {
	j := &job{
		Context: ctx, node: n, op: op, claim: c, form: f,
		deadline: time.Now().Add(c.bound), ended: make(chan struct{}),
	}
	n.crew.start(j)
	return j
}

// do has op carried out, in no order, and waits for the outcome, or until ctx ends. When it leaves first, op
// sends nothing again, and what it still brings about is undone once it has landed.
func (n *node) do(ctx context.Context, op operation, c *claim, f form) (grant, error) {
	if ctx.Err() != nil {
		return grant{}, &undone{ctxError(ctx)}
	}
	if n.near != nil && n.near.serves(ctx, c.bound) {
		return n.doHere(ctx, op, c, f)
	}
	return n.start(ctx, op, c, f).wait(ctx)
}
