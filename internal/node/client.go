package node

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A client is all that a node needs of the client of a user. Process and Pipeline may block, and
// call hooks of the user. Of a pipeline, Process and Exec are used.
//
// A *[redis.Client] and a *[redis.ClusterClient] are told by their types, for batches and for WAIT.
// Whatever has the method ReloadState is a Cluster, too: see [Slots].
type client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}
