package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// Drain waits until nothing that l has sent is under way. Releases without a reply are sent again for a
// minute. Drain waits for them, for releases of attempts that were given up, and for keys that are kept
// for 10 s or less, see [Lock.UnlockAfter]. Call it before the process ends, after the last Unlock, and
// close the client afterwards. Without Drain, such a lock can last until its TTL has passed.
//
// Drain releases no lock. It does not wait for locks that are held or for calls that wait. It also waits
// for commands of other goroutines that use l, and may return while they go on. With [NewMigration] it
// does this on both sides. Call it for each Locker of [NewReadWrite]. A Locker that wraps another one
// must have a method Unwrap() Locker, which returns the wrapped one.
//
// If ctx ends first, the error matches ctx's error and says how much was left. It is [ErrInvalid] if l
// or ctx is nil, and matches [errors.ErrUnsupported] if l has no such method.
func Drain(ctx context.Context, l Locker) error {
	switch {
	case isNil(l):
		return wrap("drain", "", invalid("the Locker is nil"))
	case ctx == nil:
		return wrap("drain", "", invalid("ctx is nil"))
	}
	for pause := shortestDrainPause; ; pause = min(2*pause, longestDrainPause) {
		left, err := underWay(l)
		if err == nil && left > 0 && !sleep(ctx, pause) {
			err = fmt.Errorf("%w: commands under way: %d", ctxError(ctx), left)
		}
		if err != nil || left == 0 {
			return wrap("drain", "", err)
		}
	}
}

// The pauses after which Drain looks again.
const (
	shortestDrainPause = time.Millisecond
	longestDrainPause  = 20 * time.Millisecond
)

// underWay returns how many commands of l are under way, or due.
func underWay(l Locker) (int, error) {
	switch l := l.(type) {
	case *engine:
		return l.strategy.underWay() + l.pending.count(), nil
	case *migration:
		from, err := underWay(l.from)
		if err != nil {
			return 0, err
		}
		to, err := underWay(l.to)
		return from + to, err
	case interface{ Unwrap() Locker }:
		return underWay(l.Unwrap())
	}
	return 0, fmt.Errorf("%w: a %T has no method Unwrap() Locker", errors.ErrUnsupported, l)
}

// A pending counts commands that are under way, or that will be sent. What follows from an outcome is
// added before that outcome is done.
type pending struct{ n atomic.Int64 }

func (p *pending) begin()     { p.n.Add(1) }
func (p *pending) done()      { p.n.Add(-1) }
func (p *pending) count() int { return int(p.n.Load()) }

// and returns how many calls are under way, with those that nodes repeat though nobody waits for them.
// A call that is repeated is added there before it is done here.
func (p *pending) and(nodes ...*node.Node) int {
	n := p.count()
	for _, of := range nodes {
		n += of.Repeats()
	}
	return n
}
