package node

import "github.com/redis/go-redis/v9"

// A pool says whether a client has connections to spare. Its user needs some, and so do other Lockers:
// they see how many are in use, as this node does.
type pool struct {
	size  int                      // 0: it has none to spare
	stats func() (total, idle int) // connections that are open, and those of them that nobody uses
}

func poolOf(c *redis.Client) pool {
	return pool{size: connections(c), stats: func() (total, idle int) {
		s := c.PoolStats()
		return int(s.TotalConns), int(s.IdleConns)
	}}
}

// A room says what is left of the connections of a client.
type room int

const (
	full   room = iota // nothing
	low                // what is left to others
	closed             // a connection that is not open, which takes several round trips
	open               // one that is open
)

// room returns what is left. A fifth of all connections is for others.
func (p *pool) room() room {
	if p.size == 0 {
		return full
	}
	total, idle := p.stats()
	switch free := p.size - (total - idle); {
	case free <= 0:
		return full
	case free <= (p.size+4)/5:
		return low
	case idle == 0:
		return closed
	}
	return open
}

// connections returns how many connections c has to one server, without those for pipelines
// alone.
func connections(c client) int {
	size, most := 2*singleCouriers, 0
	switch client := c.(type) {
	case *redis.Client:
		size, most = client.Options().PoolSize, client.Options().MaxActiveConns
	case *redis.ClusterClient: // all calls may go to one master
		size, most = client.Options().PoolSize, client.Options().MaxActiveConns
	}
	if most > 0 {
		return min(size, most)
	}
	return size
}
