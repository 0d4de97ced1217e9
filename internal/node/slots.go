package node

import (
	"context"
	"time"
)

// Slots has the client of a Redis Cluster ask again which server has which slot. go-redis does so
// once a minute, and when a server answers that it does not have a slot. A dead server answers
// nothing, so its slots would be missed for a minute, though a replica has them after some seconds.
// Any other client finds its server by itself: a client of Sentinels asks them each time it connects,
// and a Ring has its own probes.
type Slots struct {
	client reloader // nil: any other client
	last   time.Time
}

// A reloader is a *[redis.ClusterClient], or a struct that embeds one.
type reloader interface{ ReloadState(ctx context.Context) }

// reloadEvery is the least time between two reloads.
const reloadEvery = time.Second

// SlotsOf returns the slots of a client of any type.
func SlotsOf(client any) Slots {
	cluster, _ := client.(reloader)
	return Slots{client: cluster}
}

// Reload is called after a failure without an answer. It returns at once. It must not be called
// from several goroutines at a time.
func (s *Slots) Reload() {
	if now := time.Now(); s.client != nil && now.Sub(s.last) >= reloadEvery {
		s.last = now
		// It ends when the client returns, which go-redis does at once. Nobody waits.
		go s.client.ReloadState(context.Background())
	}
}
