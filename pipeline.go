package redlatch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipelineOf returns where commands for client are submitted without waiting for them, or nil where
// they cannot be. With FullDuplex, a full window would block who submits.
func pipelineOf(client redis.UniversalClient) *redis.AutoPipeliner {
	blocking, ok := client.(*redis.AutoPipeliner)
	if !ok || blocking.Config().FullDuplex {
		return nil
	}
	pipeline, err := blocking.AsyncAutoPipeline()
	if err != nil { // it is closed, as every command will say
		return nil
	}
	return pipeline
}

// doHere is do on a client that sends its commands from a goroutine of its own, in batches: the
// operation needs no other. Who leaves early has its command still in flight. Where a command
// fails, the crew takes over.
func (n *node) doHere(ctx context.Context, op operation, c *claim, f form) (grant, error) {
	j, _ := n.spare.Get().(*job)
	if j == nil {
		j = &job{ended: make(chan struct{})}
	}
	j.Context, j.node, j.op, j.claim, j.form = ctx, n, op, c, f
	j.deadline, j.here = time.Now().Add(c.bound), true
	stay := func() bool { return true }
	if ctx.Done() != nil {
		stay = context.AfterFunc(ctx, func() { j.settle(grant{}, ctxError(ctx)) })
	}
	n.crew.list(j)
	g, err := j.perform()
	n.crew.strike(j)
	if stay() && !j.settled.Load() { // and nobody can settle it any more
		if j.failed != nil {
			return n.again(j, j.failed).wait(ctx)
		}
		j.Context, j.op, j.claim, j.form = nil, nil, nil, form{}
		clear(j.words[:])
		n.spare.Put(j)
		return g, err
	}
	<-j.ended
	if j.flight != nil {
		go j.follow() // ends when go-redis lets go of the command
	} else {
		j.land(g, err)
	}
	return j.grant, j.err
}

// submit runs a command of j, and returns when it is answered or j has ended.
func (j *job) submit(cmd redis.Cmder) error {
	sent := j.node.pipeline.Submit(j, cmd)
	err := sent.WaitContext(j)
	if j.settled.Load() && errors.Is(err, context.Canceled) {
		j.flight = &sent
	}
	return err
}

// follow waits for what becomes of a command of j that its caller did not wait for.
func (j *job) follow() {
	err := j.flight.Wait()
	if j.last && err != nil && !answered(err) {
		j.node.again(j, err)
		return
	}
	j.land(grant{}, err)
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
