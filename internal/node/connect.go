package node

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// A connection may take longer to open than a call may last: OnConnect, credentials and a Cluster's
// slots need network calls. Their ctx is that of the batch, which ends with its calls, so go-redis
// would give each such connection up, and no call would ever succeed. So when a call has been under
// way for half of its timeout, the node sends a script that does nothing to the same server, with a
// ctx that does not end. go-redis then opens a connection, unless one is free, and keeps it for
// later calls. There is at most one such batch at a time. It counts as one whose courier was written
// off.

// A call that has ended is not sent on the new connection, since its ctx has ended. If OnConnect
// ignores its ctx, go-redis sends the call all the same. That is as if the network were slow: a
// command that creates something is refused then, and one that releases or extends compares the
// token.

// connectLocked sends a script that does nothing to the server of c, which is in a batch, unless one
// is under way.
func (n *Node) connectLocked(c *Call) {
	if n.connects != nil || n.writtenOff >= n.mostWrittenOff {
		return
	}
	nothing := []any{"eval", "return 0", 0}
	if len(c.words) > 3 { // the script has a key, so that the server is the same
		nothing = append(nothing[:2], 1, c.words[3])
	}
	b := &batch{Context: c.ctx, writtenOff: true}
	i := item{call: &Call{times: times{at: over}, Key: c.key()}, cmd: newCmd(b, nothing)}
	if len(c.batch.items) > 1 || c.Then != nil { // pipelines have connections of their own
		i.then = newCmd(b, nothing)
	}
	b.items = []item{i}
	n.connects = b
	n.writtenOff++
	go func() { // ends when go-redis returns
		n.carry(b)
		n.mu.Lock()
		n.landLocked(b)
		n.unlock()
	}()
}

// A slowConnectionError says that no connection was open in time.
type slowConnectionError struct {
	within time.Duration
	hint   string
}

func (e *slowConnectionError) Error() string {
	return fmt.Sprintf("no connection within %v%s", e.within, e.hint)
}

// firstLocked reports whether the reason for the trouble of c, whose time has passed, may be that the
// first connection takes long to open. The call after the first answer may also lack the time: it sends
// a script and learns the clock. A server that hangs looks the same, so this ends when a dial that began
// with the first call may take no longer.
func (n *Node) firstLocked(c *Call, trouble error, now clock.Mono) bool {
	var slow *slowConnectionError
	if errors.As(trouble, &slow) && slow.hint != "" {
		return false
	}
	opens := trouble == nil || trouble == errTooLate || slow != nil //nolint:errorlint // as it is
	return opens && (n.first == 0 || n.first > c.deadline.Add(-2*c.Timeout)) && now.Sub(n.began) < dialTimeout(n.client)
}

// dialTimeout returns how long c lets a dial take. The default is that of go-redis.
func dialTimeout(c client) (d time.Duration) {
	switch client := c.(type) {
	case *redis.Client:
		d = client.Options().DialTimeout
	case *redis.ClusterClient:
		d = client.Options().DialTimeout
	case *redis.Ring:
		d = client.Options().DialTimeout
	}
	return cmp.Or(d, 5*time.Second)
}
