package world

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/sim/judge"
	"github.com/redlatch/redlatch/sim/plan"
)

// A hold is a lock that an actor has.
type hold struct {
	*actor
	lock  *redlatch.Lock
	ask   judge.Ask // of the call that was granted it
	n     int
	ended chan struct{} // closed when the end was noted; nil: nobody watches

	mu   sync.Mutex // guards the field below
	gave bool       // Unlock was called
}

// granted notes a lock, and watches its end.
func (a *actor) granted(call int, ask judge.Ask, lock *redlatch.Lock, of int) *hold {
	h := &hold{actor: a, lock: lock, ask: ask}
	h.n = a.record.granted(judge.Event{
		Call: call, Places: ask.Places, Fence: lock.Fence(), Until: lock.Until().Sub(a.start), Of: of,
	})
	if a.op.Watches {
		h.ended = make(chan struct{})
		go h.watch() // ends with the lock
	}
	return h
}

// watch notes the end of the lock.
func (h *hold) watch() {
	<-h.lock.Done()
	e := judge.Event{Kind: judge.Ended, Hold: h.n, Err: h.lock.Err(), Until: h.until()}
	h.mu.Lock()
	if !h.gave && errors.Is(e.Err, redlatch.ErrLost) && time.Since(h.start) == e.Until {
		e.Gone = !h.holds(h.ask.Places, h.ask.Owner)
	}
	h.record.add(e)
	h.mu.Unlock()
	close(h.ended)
}

func (h *hold) until() time.Duration { return h.lock.Until().Sub(h.start) }

// unlocking notes that the lock is given back, and others are kept out for a time.
func (h *hold) unlocking(keep time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gave = true
	h.record.add(judge.Event{Kind: judge.Unlocking, Hold: h.n, For: keep})
}

// check notes what the lock says of itself.
func (h *hold) check() {
	err := h.lock.Err()
	h.record.add(judge.Event{Kind: judge.Checked, Hold: h.n, Err: err, Until: h.until()})
}

// steps carries out what is to be done under a lock.
func (a *actor) steps(h *hold) {
	for i, s := range a.op.Steps {
		if h.pause(s.After) && i < len(a.op.Steps)-1 {
			continue // it has ended: go on to the last step
		}
		h.do(s)
	}
}

// pause waits, and reports whether the caller heeds that the lock has ended.
func (h *hold) pause(d time.Duration) (over bool) {
	if !h.op.Heeds || h.ended == nil {
		time.Sleep(d)
		return false
	}
	select {
	case <-h.ended:
		return true
	default:
	}
	select {
	case <-h.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// do carries out a step. A function that runs under a lock does not unlock it, but for a time.
func (h *hold) do(s plan.Step) {
	inside := h.op.Call != plan.Lock && h.op.Call != plan.TryLock
	switch s.Act {
	case plan.Check:
		h.check()
	case plan.Extend:
		h.check()
		h.method("Extend", s, func(ctx context.Context) error { return h.lock.Extend(ctx, s.For) })
		h.check()
	case plan.Share:
		_ = h.lock.Token()
	case plan.Adopt:
		h.adopt(s)
	case plan.Abandon, plan.Unlock, plan.UnlockTwice:
		h.check()
		switch {
		case inside || s.Act == plan.Abandon:
		case s.Act == plan.UnlockTwice:
			h.work.Go(func() { h.unlock("Unlock", s) })
			fallthrough
		default:
			h.unlock("Unlock", s)
		}
	case plan.UnlockAfter:
		h.check()
		h.unlock("UnlockAfter", s)
	}
}

// unlock gives the lock back. Its ctx may have ended.
func (h *hold) unlock(what string, s plan.Step) {
	if what == "UnlockAfter" && h.ask.Whole {
		what = "Unlock" // the other is not supported
	}
	if what == "Unlock" {
		s.For = 0
	}
	h.unlocking(s.For)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if h.op.Cancels {
		cancel()
	}
	h.noting(h.methodAsk(what), time.Time{}, func(int) error { return h.lock.UnlockAfter(ctx, s.For) })
}

// method notes a call of a method of the lock, with a ctx of its own.
func (h *hold) method(what string, s plan.Step, f func(context.Context) error) {
	patience := s.Patience
	if patience == 0 {
		patience = time.Hour
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ask := h.methodAsk(what)
	ask.TTL = s.For
	h.noting(ask, time.Now().Add(patience), func(int) error { return f(ctx) })
}

func (h *hold) methodAsk(what string) judge.Ask {
	ask := h.ask
	ask.What, ask.Hold = what, h.n
	return ask
}

// noting notes a call.
func (h *hold) noting(ask judge.Ask, ends time.Time, f func(call int) error) {
	call := h.record.called(ask, ends)
	panicked, err := guarded(func() error { return f(call) })
	if panicked != "" {
		h.record.add(judge.Event{Kind: judge.Panicked, Call: call, Text: panicked})
		return
	}
	h.record.returned(call, err)
}

// adopt has another Locker adopt the lock, for a time.
func (h *hold) adopt(s plan.Step) {
	token := h.lock.Token()
	if token == "" {
		return
	}
	ask := h.world.ask(plan.Op{Number: h.op.Number, Locker: s.Locker, Keys: []string{h.lock.Key()}, Call: "Adopt"})
	if ask.Mode != judge.Reader { // who gets a permit of its own
		ask.Owner = h.ask.Owner
	}
	var adopted *hold
	h.noting(ask, time.Time{}, func(call int) error {
		lock, err := h.lockers[s.Locker].Adopt(context.Background(), h.lock.Key(), token)
		if err == nil {
			adopted = h.granted(call, ask, lock, h.n)
		}
		return err
	})
	if adopted != nil {
		h.work.Go(func() {
			adopted.pause(s.For)
			adopted.check()
			adopted.unlock("Unlock", s)
		})
	}
}
