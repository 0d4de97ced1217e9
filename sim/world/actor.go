package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/sim/judge"
	"github.com/redlatch/redlatch/sim/plan"
)

// act carries out an operation.
func (w *world) act(o plan.Op) {
	if o.Number >= 0 {
		time.Sleep(o.At - time.Since(w.start))
	}
	a := &actor{world: w, op: o, locker: w.lockers[o.Locker], ask: w.ask(o)}
	ends := time.Now().Add(o.Patience)
	ctx, cancel := w.ctx(o.Patience, o.Cancels)
	defer cancel()
	a.call = w.record.called(a.ask, ends)
	var panicked string
	var err error
	exited := true
	over := make(chan struct{})
	go func() { // ends with the call
		defer close(over)
		panicked, err = guarded(func() error { return a.calls(ctx) })
		exited = false
	}()
	<-over
	switch {
	case exited:
		w.record.add(judge.Event{Kind: judge.Exited, Call: a.call, Text: string(plan.Exits)})
	case strings.HasPrefix(panicked, planned):
		w.record.add(judge.Event{Kind: judge.Exited, Call: a.call, Text: string(plan.Panics)})
	case panicked != "":
		w.record.add(judge.Event{Kind: judge.Panicked, Call: a.call, Text: panicked})
	case !a.noted:
		w.record.returned(a.call, err)
	}
	a.work.Wait()
}

// planned is the panic of a function.
const planned = "a planned panic"

// errOwn is the error of a function.
var errOwn = errors.New("the function failed")

// ctx returns a ctx that ends after a time.
func (w *world) ctx(d time.Duration, cancels bool) (context.Context, context.CancelFunc) {
	if !cancels {
		return context.WithTimeout(w.hurry, d)
	}
	ctx, cancel := context.WithCancel(w.hurry)
	if d == 0 {
		cancel()
	}
	timer := time.AfterFunc(d, cancel) // ends with the ctx
	return ctx, func() { timer.Stop(); cancel() }
}

// guarded calls f, and returns the text of its panic.
func guarded(f func() error) (panicked string, err error) {
	defer func() {
		if p := recover(); p != nil {
			panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	return "", f()
}

// An actor carries out one operation.
type actor struct {
	*world
	op     plan.Op
	locker redlatch.Locker
	ask    judge.Ask
	call   int
	noted  bool // the return of the call was
	work   sync.WaitGroup
}

// ask returns what an operation asks for.
func (w *world) ask(o plan.Op) judge.Ask {
	l := w.Lockers[o.Locker]
	g := w.Groups[l.Group]
	opts := l.Options
	if o.Own != nil {
		opts = *o.Own
	}
	a := judge.Ask{
		Op: o.Number, What: string(o.Call), Owner: owner(o.Locker), Mode: judge.Alone,
		Limit: max(cmp.Or(o.Limit, l.Limit), 1), TTL: opts.TTL,
		Trip:    2 * (w.Processes[l.Process].Delay + w.Processes[l.Process].Jitter),
		Timeout: opts.Timeout(), MaxHold: opts.MaxHold, MinHold: opts.MinHold, Fixed: opts.Fixed, Poll: opts.Longest,
		Fenced: true, Grace: opts.Grace, MaxWait: opts.MaxWait,
	}
	if a.Poll == 0 {
		a.Poll = 128 * time.Millisecond
	}
	kind := g.Kind
	switch {
	case kind == plan.Semaphore:
		a.Mode, a.Lock = judge.Permit, max(o.Limit, l.Limit) <= 1
	case kind == plan.ReadWrite && l.Write:
		a.Mode, a.Owner = judge.Writer, owner(o.Locker-1) // its options are those of the readers
	case kind == plan.ReadWrite:
		a.Mode = judge.Reader
	case kind == plan.Migration && l.Stage == plan.Old:
		kind = g.From
	case kind == plan.Migration && l.Stage == plan.New:
		kind = g.To
	}
	a.Whole = kind == plan.LegacySetNX || kind == plan.Migration && g.From == plan.LegacySetNX
	a.Quorum = kind == plan.Redlock || kind == plan.Migration && g.To == plan.Redlock
	a.Fenced = kind != plan.LegacySetNX
	a.Migrates, a.Confirms = kind == plan.Migration, opts.Replicas > 0
	a.Queues = !a.Quorum && !a.Whole && !a.Migrates && !opts.Polls
	alike := opts
	if alike.MaxWait = l.MaxWait; alike == l.Options {
		a.Line = owner(o.Locker)
	}
	if o.Limit > 0 && o.Limit != l.Limit && a.Line != "" {
		a.Line += fmt.Sprint(" limit ", o.Limit)
	}
	prefix := plan.Prefix(l.Group)
	for _, key := range o.Keys {
		switch l.Stage {
		case plan.Both:
			a.Places = append(a.Places, prefix+key, prefix+newer+key)
		case plan.New:
			a.Places = append(a.Places, prefix+newer+key)
		default:
			a.Places = append(a.Places, prefix+key)
		}
	}
	return a
}

// calls makes the call of the operation.
func (a *actor) calls(ctx context.Context) error {
	var opts []redlatch.Option
	if a.op.Own != nil {
		opts = options(*a.op.Own)
	}
	if a.op.Limit > 0 {
		opts = append(opts, redlatch.WithLimit(a.op.Limit))
	}
	key := a.op.Keys[0]
	one := func(ctx context.Context, lock *redlatch.Lock) error { return a.function(ctx, lock) }
	all := func(ctx context.Context, locks []*redlatch.Lock) error { return a.function(ctx, locks...) }
	switch a.op.Call {
	case plan.Do:
		return redlatch.Do(ctx, a.locker, key, one, opts...)
	case plan.TryDo:
		return redlatch.TryDo(ctx, a.locker, key, one, opts...)
	case plan.DoAll:
		return redlatch.DoAll(ctx, a.locker, a.op.Keys, all, opts...)
	case plan.TryDoAll:
		return redlatch.TryDoAll(ctx, a.locker, a.op.Keys, all, opts...)
	case plan.Lead:
		return redlatch.Lead(ctx, a.locker, key, one, opts...)
	case plan.Inspect:
		_, err := a.locker.Inspect(ctx, key)
		return err
	}
	acquire := a.locker.Lock
	if a.op.Call == plan.TryLock {
		acquire = a.locker.TryLock
	}
	lock, err := acquire(ctx, key, opts...)
	if lock == nil && err == nil {
		panic("it returned nil, nil")
	}
	if err != nil {
		return err
	}
	h := a.granted(a.call, a.ask, lock, 0)
	a.noted = true
	a.record.returned(a.call, nil)
	a.steps(h)
	return nil
}

// function runs under locks.
func (a *actor) function(ctx context.Context, locks ...*redlatch.Lock) (err error) {
	a.record.add(judge.Event{Kind: judge.Runs, Call: a.call})
	var held []*hold
	for _, lock := range locks {
		ask := a.ask
		if len(locks) > 1 {
			one := a.op
			one.Keys = []string{lock.Key()}
			ask.Places = a.world.ask(one).Places
		}
		held = append(held, a.granted(a.call, ask, lock, 0))
	}
	for _, h := range held {
		go func() { // ends with the lock
			<-ctx.Done()
			a.record.add(judge.Event{Kind: judge.CtxEnded, Hold: h.n, Err: context.Cause(ctx)})
		}()
	}
	a.steps(held[0])
	if a.op.Ending == plan.Unlocks {
		held[0].unlock("Unlock", plan.Step{})
	}
	for _, h := range held {
		h.check()
		h.unlocking(0)
	}
	return a.ends()
}

// ends ends a function as its operation says.
func (a *actor) ends() (err error) {
	switch a.op.Ending {
	case plan.Fails:
		err = errOwn
	case plan.Stops:
		err = fmt.Errorf("enough: %w", redlatch.ErrStop)
	case plan.Succeeds, plan.Unlocks, plan.Panics, plan.Exits:
	}
	a.record.add(judge.Event{Kind: judge.RunEnds, Call: a.call, Err: err, Text: string(a.op.Ending)})
	switch a.op.Ending {
	case plan.Panics:
		panic(planned)
	case plan.Exits:
		runtime.Goexit()
	case plan.Succeeds, plan.Unlocks, plan.Fails, plan.Stops:
	}
	return err
}

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
