package redlatch

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// WAIT answers for the writes of its own connection: on another one it says at once how many
// replicas have confirmed what was written there, which means nothing. So it is pipelined with the
// script whose write it is to confirm.

// An acknowledgement is what WAIT answered to the last command of a job.
type acknowledgement struct {
	replicas int
	err      error
}

// confirmed returns op such that it fails unless claim.replicas have confirmed what it wrote.
func confirmed(op operation) operation {
	return func(j *job, c *claim) (grant, error) {
		j.waits = true
		g, err := op(j, c)
		switch got := j.acknowledged; {
		case err != nil:
			return g, err
		case got.err != nil:
			return g, fmt.Errorf("WAIT: %w", advise(got.err))
		case got.replicas < c.replicas:
			return g, &both{ErrNotReplicated, fmt.Errorf("%d of %d replicas confirmed it within %v", got.replicas, c.replicas, c.replicaTimeout)}
		}
		return g, nil
	}
}

// withTimeToWait returns c with a bound that leaves time for WAIT.
func (c *claim) withTimeToWait() *claim {
	longer := *c
	longer.bound += c.replicaTimeout
	return &longer
}

// processAndWait runs a command of j and WAIT behind it, on one connection.
func (j *job) processAndWait(cmd redis.Cmder) error {
	client := j.node.client
	cluster, clustered := client.(*redis.ClusterClient)
	if clustered {
		master, err := cluster.MasterForKey(j, j.claim.key)
		if err != nil {
			return err
		}
		client = master
	}
	wait := redis.NewCmd(j, "wait", j.claim.replicas, j.claim.replicaTimeout.Milliseconds())
	pipe := client.Pipeline()
	_ = pipe.Process(j, cmd)
	_ = pipe.Process(j, once{wait})
	_, _ = pipe.Exec(j) // each command has its own error
	err := cmd.Err()
	if clustered && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(j)
		return fmt.Errorf("the slot has moved: %v", err) //nolint:errorlint // as an answer of Redis it would be final
	}
	got, failed := wait.Int()
	j.acknowledged = &acknowledgement{got, failed}
	if err == nil && failed != nil && !answered(failed) {
		return failed // send both again
	}
	return err
}

// checkReplicas refuses WithReplicas where it cannot work.
func (s *setNXPX) checkReplicas(cfg *config) error {
	if cfg.replicas == 0 {
		return nil
	}
	var reads time.Duration
	switch client := s.node.client.(type) {
	case *redis.Client:
		reads = client.Options().ReadTimeout
	case *redis.ClusterClient:
		reads = client.Options().ReadTimeout
	default:
		return invalid("WithReplicas(%d, %v): no WAIT on the connection of a grant with a %T", cfg.replicas, cfg.replicaTimeout, client)
	}
	if reads > 0 && cfg.replicaTimeout >= reads {
		return invalid("WithReplicas(%d, %v): not below the client's ReadTimeout, %v", cfg.replicas, cfg.replicaTimeout, reads)
	}
	if cfg.replicaTimeout >= validity(cfg.ttl, cfg.drift) {
		return invalid("WithReplicas(%d, %v): not below what is trusted of a TTL of %v", cfg.replicas, cfg.replicaTimeout, cfg.ttl)
	}
	return nil
}
