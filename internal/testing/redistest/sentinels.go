package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// StartReplica is like [StartTCP] with a replica that has copied the data of primary.
func StartReplica(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	host, port := hostPort(tb, primary)
	// By default a primary waits 5 s for more replicas before it sends its data.
	if err := primary.Client(tb).ConfigSet(tb.Context(), "repl-diskless-sync-delay", "0").Err(); err != nil {
		tb.Fatal(err)
	}
	s := StartTCP(tb, "--replicaof", host, port)
	c := s.Client(tb)
	until(tb, "it has replicated", func() bool {
		return strings.Contains(c.Info(tb.Context(), "replication").Val(), "master_link_status:up")
	})
	return s
}

const (
	// downAfter is how long a server may be silent before sentinels consider it down: longer than a
	// busy machine takes to answer.
	downAfter = 500 * time.Millisecond

	// failoverTimeout is how long sentinels try to promote a replica.
	failoverTimeout = 5 * time.Second

	sentinelCount = 3
	sentinelVotes = 2
)

// StartSentinels returns three sentinels that watch primary under the given name. They know each
// other and the replicas of primary, of which there must be one. If primary is silent for half a
// second, they promote a replica.
func StartSentinels(tb testing.TB, name string, primary *Server) []*Server {
	tb.Helper()
	host, port := hostPort(tb, primary)
	var sentinels []*Server
	for range sentinelCount {
		s := StartTCP(tb, "--sentinel")
		sentinels = append(sentinels, s)
		// By default they announce themselves to each other every 2 s, and ask the primary for its
		// replicas every 10 s. This shortens both. Not every version supports it.
		_ = command(tb, s, "sentinel", "debug", "publish-period", 100, "info-period", 200)
		for _, words := range [][]any{
			{"sentinel", "monitor", name, host, port, sentinelVotes},
			{"sentinel", "set", name, "down-after-milliseconds", downAfter.Milliseconds()},
			{"sentinel", "set", name, "failover-timeout", failoverTimeout.Milliseconds()},
		} {
			if err := command(tb, s, words...); err != nil {
				tb.Fatalf("redistest: %v: %v", words, err)
			}
		}
	}
	for _, s := range sentinels {
		c := s.Client(tb)
		until(tb, "the sentinels know each other and a replica", func() bool {
			known, err := c.Do(tb.Context(), "info", "sentinel").Text()
			all := fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", primary.Addr(), sentinelCount)
			return err == nil && strings.Contains(known, all)
		})
	}
	return sentinels
}

// hostPort returns the two parts of the address of a server with a TCP port.
func hostPort(tb testing.TB, s *Server) (host, port string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		tb.Fatalf("redistest: it needs a TCP port: %v", err)
	}
	return host, port
}

// command sends s one command.
func command(tb testing.TB, s *Server, words ...any) error {
	tb.Helper()
	return s.Client(tb).Do(tb.Context(), words...).Err()
}

// until waits for an event. Only a failure reaches its deadline.
func until(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(startLimit); !f(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: waited without success: %s", what)
		}
	}
}
