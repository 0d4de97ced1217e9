package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// An operation needs no goroutine of its own where its commands come back in time by themselves:
// then its caller, who waits anyway, carries it out. Where a command fails, the crew takes over.

// near runs commands so that they come back in time.
type near interface {
	// serves reports whether a command of an operation that ends with ctx, or after bound, comes
	// back when it ends.
	serves(ctx context.Context, bound time.Duration) bool

	// run carries out a command of j. It returns when j has ended, or later by as much as serves
	// allows for: a connection that came late is still read for as long as the client is patient.
	run(j *job, cmd redis.Cmder) error
}

// nearBy returns how commands for client come back in time, or nil where they may not.
func nearBy(client redis.UniversalClient) near {
	switch client := client.(type) {
	case *redis.Client:
		o := client.Options()
		if o.ContextTimeoutEnabled {
			return &timed{client, 0}
		}
		if o.ReadTimeout > 0 && o.WriteTimeout > 0 {
			return &timed{client, max(o.ReadTimeout, o.WriteTimeout)}
		}
	case *redis.AutoPipeliner:
		pipeline := client
		if client.IsBlocking() {
			var err error
			if pipeline, err = client.AsyncAutoPipeline(); err != nil {
				return nil
			}
		}
		if !pipeline.Config().FullDuplex { // where a full window blocks who submits
			return &pipelined{pipeline}
		}
	}
	return nil
}

// A timed client writes and reads within its timeout, or until the deadline of a job. It heeds the
// end of one while it waits for a connection, and not while it reads, so it serves nobody who may
// want to leave earlier.
type timed struct {
	client  *redis.Client
	timeout time.Duration
}

func (t *timed) serves(ctx context.Context, bound time.Duration) bool {
	return ctx.Done() == nil && t.timeout <= bound
}

func (t *timed) run(j *job, cmd redis.Cmder) error {
	return t.client.Process(j, cmd)
}

// A pipelined client sends commands in batches, from a goroutine of its own. Whoever leaves has its
// command still in flight.
type pipelined struct{ pipeline *redis.AutoPipeliner }

func (p *pipelined) serves(context.Context, time.Duration) bool { return true }

func (p *pipelined) run(j *job, cmd redis.Cmder) error {
	sent := p.pipeline.Submit(j, cmd)
	err := sent.WaitContext(j)
	if j.settled.Load() && errors.Is(err, context.Canceled) {
		j.flight = &sent
	}
	return err
}

// doHere is do in the goroutine of the caller, for an operation that n.near serves.
func (n *node) doHere(ctx context.Context, op operation, c *claim, f form) (grant, error) {
	j := &job{
		Context: ctx, node: n, op: op, claim: c, form: f,
		deadline: time.Now().Add(c.bound), here: true, ended: make(chan struct{}),
	}
	if !n.crew.list(j) {
		return grant{}, &undone{errSheds}
	}
	stay := func() bool { return true }
	if ctx.Done() != nil {
		stay = context.AfterFunc(ctx, func() { j.settle(grant{}, ctxError(ctx)) })
		defer stay()
	}
	g, err := j.perform()
	n.crew.strike(j, err)
	if j.failed != nil && stay() && !j.settled.Load() { // and nobody can settle it any more
		defer j.settle(grant{}, j.failed)
		return n.again(j, j.failed).wait(ctx)
	}
	if j.settle(g, err) {
		return g, err
	}
	<-j.ended
	switch {
	case j.flight != nil:
		n.crew.abandon()
		go j.follow() // ends when go-redis lets go of the command
	case j.last && err != nil && !answered(err) && !errors.Is(err, ErrLost):
		n.again(j, err)
	default:
		j.land(g, err)
	}
	return j.grant, j.err
}

// again has the crew carry j out once more, which failed with err, in what is left of its time.
func (n *node) again(j *job, err error) *job {
	k := &job{
		Context: j.Context, node: n, op: j.op, claim: j.claim, form: j.form,
		deadline: j.deadline, ended: make(chan struct{}),
		failed: err, resent: !neverLeft(err) && !answered(err),
	}
	k.sentAgain(err)
	if j.settled.Load() {
		k.settle(grant{}, err) // nobody waits for it
	}
	n.crew.start(k)
	return k
}

// follow waits for what becomes of a command of j that its caller did not wait for.
func (j *job) follow() {
	err := j.flight.Wait()
	j.node.crew.landed(err)
	if j.last && err != nil && (!answered(err) || redis.HasErrorPrefix(err, "NOSCRIPT")) {
		j.node.again(j, err)
		return
	}
	if strays(err) {
		j.node.chase(j.Context, j.undo, j.claim)
	}
	j.land(grant{found: true}, err) // or not: nobody reads the reply
}
