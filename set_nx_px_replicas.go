package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/node"
)

// WAIT waits for the writes of its own connection. On another connection it answers at once, about other writes. So
// it is pipelined with the script whose write it must confirm.

// confirmed runs c, and fails unless enough replicas have confirmed its write.
func (s *setNXPX) confirmed(
	ctx context.Context, c *node.Call, at place, replicas int, timeout time.Duration,
) (node.Reply, error) {
	if replicas == 0 {
		return s.node.Do(ctx, c), nil
	}
	c.Timeout += timeout
	c.Key = at.key
	c.Beside = []any{"wait", replicas, timeout.Milliseconds()}
	r := s.confirming.Do(ctx, c)
	if r.Err != nil {
		return r, r.Err
	}
	got, _ := r.Beside.Value.(int64)
	switch {
	case node.Answered(r.Beside.Err): // the command is unknown or forbidden
		return r, fmt.Errorf("%w: WithReplicas needs WAIT, which this Redis refuses: %w", errors.ErrUnsupported, r.Beside.Err)
	case r.Beside.Err != nil:
		return r, fmt.Errorf("WAIT: %w", r.Beside.Err)
	case got < int64(replicas):
		return r, fmt.Errorf("%w: %d of %d replicas confirmed it within %v", ErrNotReplicated, got, replicas, timeout)
	}
	return r, nil
}

// checkReplicas refuses WithReplicas if it cannot work.
func (s *setNXPX) checkReplicas(cfg *config) error {
	if cfg.replicas == 0 {
		return nil
	}
	var reads time.Duration
	switch client := s.node.Client().(type) {
	case *redis.Client:
		reads = client.Options().ReadTimeout
	case *redis.ClusterClient:
		reads = client.Options().ReadTimeout
	default:
		return invalid("WithReplicas(%d, %v): a %T cannot send WAIT on the connection of the grant",
			cfg.replicas, cfg.replicaTimeout, client)
	}
	if reads > 0 && cfg.replicaTimeout >= reads {
		return invalid("WithReplicas(%d, %v): not below the client's ReadTimeout, %v",
			cfg.replicas, cfg.replicaTimeout, reads)
	}
	if cfg.replicaTimeout >= clock.Validity(cfg.ttl, cfg.drift) {
		return invalid("WithReplicas(%d, %v): too long for a TTL of %v", cfg.replicas, cfg.replicaTimeout, cfg.ttl)
	}
	return nil
}
