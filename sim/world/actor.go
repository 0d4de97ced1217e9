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
		Fenced: true, Grace: opts.Grace, MaxWait: opts.MaxWait, Closed: w.Closed(l.Process),
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
	switch {
	case a.Mode == judge.Writer:
		a.Strategy = redlatch.StrategyWrite
	case a.Mode == judge.Reader:
		a.Strategy = redlatch.StrategyRead
	case kind != plan.Migration:
		a.Strategy = redlatch.Strategy(kind)
	}
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
		status, err := a.locker.Inspect(ctx, key)
		if err == nil {
			a.record.add(judge.Event{Kind: judge.Answered, Call: a.call, Status: &status})
		}
		return err
	case plan.Forget:
		return redlatch.Forget(ctx, a.locker, key)
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
