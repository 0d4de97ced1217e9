package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wire"
)

const (
	// endedHere is the longest time after which the process that keeps a key hands it on. Whoever is
	// the first in the queue has looked meanwhile if a key is kept for longer, and knows when to ask.
	endedHere = 10 * time.Second

	// keepMargin is how much longer Redis keeps a key that its process is to hand on. It ends by
	// itself if that process is gone.
	keepMargin = 100 * time.Millisecond
)

// endsKeep reports whether this process hands on a key that was kept for a time.
func (e *engine) endsKeep(keep time.Duration) bool {
	return e.inbox != nil && 0 < keep && keep <= endedHere
}

// endKeep hands on the key that a release of the attempt keeps, at a time. Until then there are the
// names of the key and of its keeper, and nothing else of the lock or of its calls.
func (a *attempt) endKeep(at clock.Mono) {
	e, prefix, lock := a.engine, a.request.cfg.prefix, a.id.lock
	token, timeout := wire.Keeper(a.id.token), a.acquire.timeout
	// It posts a command, and ends. Nobody waits for it.
	time.AfterFunc(at.Sub(clock.MonoNow()), func() {
		id := identity{names: &names{lock, e.strategy.wordsOf(prefix, lock)}, token: token}
		p := params{identity: &id, timeout: timeout, began: clock.MonoNow()}
		e.strategy.do(context.Background(), toRelease, &p, &answer{came: make(chan struct{})})
	})
}
