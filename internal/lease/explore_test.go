package lease

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/explore"
)

const (
	grid    = time.Second // all events happen at multiples
	horizon = 8 * time.Second
)

var epoch = clock.Now()

// A world is a lease, and what its shell has under way. The budgets limit what may still happen.
type world struct {
	Lease
	mono, wall time.Duration // the time on both clocks
	due        time.Duration // of the timer; 0: it is off
	flights    [2]flight
	dropped    bool
	budget     [budgets]int8
	total      int8 // of all but unlocks

	// What a test has seen, which the core does not know.
	calm    bool // nothing has delayed the shell or Redis by more than a grid
	relied  bool // somebody but the handle relies on the lease
	known   bool // others may know the token
	ended   Why
	handles int
	decided int           // by bit: handles that Unlock has ended
	kept    time.Duration // until then Redis keeps the key
	renews  time.Duration // when the newest request was sent that is known to have renewed the key
	checked bool
}

// A flight is an extension under way.
type flight struct {
	Extension
	ttl  time.Duration // of an extension that is no check
	sent bool
}

// Budgets.
const (
	late = iota
	fails
	losses
	calls
	jumps
	hints
	unlocks
	budgets
	free
)

func (w *world) now() clock.Instant {
	return clock.Instant{Mono: epoch.Mono.Add(w.mono), Wall: epoch.Wall + w.wall}
}

func at(d time.Duration) clock.Instant {
	return clock.Instant{Mono: epoch.Mono.Add(d), Wall: epoch.Wall + d}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.mono, w.wall = w.mono+d, w.wall+d }

// since returns the true time from 0 on. There is at most one jump: either a machine sleeps, or its wall clock is set back.
func since(i clock.Instant) time.Duration { return max(i.Mono.Sub(epoch.Mono), i.Wall-epoch.Wall) }

// prove notes that a request has extended the key.
func (w *world) prove(start clock.Instant, length time.Duration) {
	w.kept = max(w.kept, since(start)+length)
}

// left returns for how long the lease may be trusted.
func (w *world) left() time.Duration {
	left := w.kept - since(w.now())
	if w.MaxHold > 0 {
		left = min(left, w.MaxHold-since(w.now()))
	}
	return max(left, 0)
}

// arm sets the timer, which may be late by less than a grid.
func (w *world) arm() string {
	next := w.Next(w.now(), !w.dropped)
	if next > w.length-w.now().Since(w.start) && w.phase == held {
		return "the timer comes after the end"
	}
	w.due = (w.mono + next + grid - 1).Truncate(grid)
	if next <= 0 {
		w.due = w.mono
	}
	return ""
}

// An explorer walks all states of a world.
type explorer struct {
	explore.Walk[world]
	*world // the current one
	broken string
}

// tidy makes worlds equal that differ only in what cannot matter. When the lease has ended, no time passes any more.
func (w *world) tidy() {
	if w.why == None {
		return
	}
	waits := false
	for i := range w.flights {
		f := &w.flights[i]
		waits = waits || f.Kind != Nothing && !f.sent
		if f.sent {
			*f = flight{Extension: Extension{Kind: f.Kind}, sent: true}
		}
	}
	l := Lease{Config: w.Config, phase: w.phase, stage: w.stage, why: w.why, handle: w.handle, granted: w.granted}
	if waits {
		l.claim = w.claim
	} else {
		w.mono, w.wall = 0, 0
	}
	w.Lease, w.due, w.kept, w.renews = l, 0, 0, 0
	w.calm, w.relied, w.checked, w.dropped = false, false, false, false
}

// add is an event, which a budget may limit. do says what is wrong.
func (x *explorer) add(name string, budget int, do func(w *world) string) {
	kind := explore.Calm
	if budget != free {
		if kind = explore.Fault; x.budget[budget] == 0 || budget != unlocks && x.total == 0 {
			return
		}
	}
	x.Step(x.world, kind, func(w *world) {
		if x.Log != nil {
			fmt.Fprintf(x.Log, "%v %s\n", w.mono, name)
		}
		if budget != free {
			w.budget[budget]--
		}
		if budget < unlocks {
			w.total--
		}
		x.broken = cmp.Or(do(w), w.check())
		w.tidy()
	})
}

func (x *explorer) steps(w *world) {
	x.world = w
	if w.phase == asked {
		x.add("begin", free, (*world).begin)
		return
	}
	x.ofShell()
	x.ofHandles()
	if w.why == None {
		x.ofCallers()
	}
}

// ofShell adds what the shell, Redis and the clock do. Time that passes while the shell has something to do is a delay.
func (x *explorer) ofShell() {
	waits := x.phase == passing
	if x.due > 0 && x.due <= x.mono {
		waits = true
		x.add("tick", free, (*world).tick)
	}
	for i := range x.flights {
		switch f := &x.flights[i]; {
		case f.Kind == Nothing:
		case !f.sent:
			waits = true
			x.add("send", free, func(w *world) string { return w.send(&w.flights[i]) })
		default:
			waits = waits || x.now().Mono.Sub(f.Start.Mono) > grid/2
			x.add("done", free, func(w *world) string { return w.answer(&w.flights[i], nil, false) })
			x.add("fail", fails, func(w *world) string { return w.answer(&w.flights[i], errFailed, false) })
			x.add("gone", losses, func(w *world) string { return w.answer(&w.flights[i], errGone, true) })
		}
	}
	switch {
	case x.why != None:
		x.add("tick", hints, (*world).tick) // it was on its way
	case !waits && x.mono < horizon:
		x.add("time", free, func(w *world) string { w.pass(grid - w.mono%grid); return "" })
	case x.mono < horizon:
		x.add("delay", late, func(w *world) string { w.pass(grid - w.mono%grid); w.calm = false; return "" })
	}
}

// ofHandles adds the calls that end a handle, or begin one.
func (x *explorer) ofHandles() {
	for handle := max(x.handles-1, 0); handle <= x.handles; handle++ {
		name := "unlock"
		if handle < x.handles {
			name = "unlock the handle before"
		}
		x.add(name, unlocks, func(w *world) string { return w.unlock(handle, 0) })
		x.add("unlock after some time", unlocks, func(w *world) string { return w.unlock(handle, 1500*time.Microsecond) })
		x.add("end", losses, func(w *world) string { return w.end(handle) })
	}
	if x.phase == passing {
		x.add("serve", free, (*world).serve)
		x.add("notpassed", free, func(w *world) string { w.NotPassed(); return "" })
	}
}

// ofCallers adds what else may happen to a lease that has not ended.
func (x *explorer) ofCallers() {
	x.add("judge", free, func(w *world) string { w.Judge(w.now()); return "" })
	if x.phase != passing && x.flights[1].Kind == Nothing {
		x.add("extend by half of the TTL", calls, func(w *world) string { return w.extend(w.TTL / 2) })
		x.add("extend by twice the TTL", calls, func(w *world) string { return w.extend(2 * w.TTL) })
	}
	x.add("share", hints, func(w *world) string { w.Share(); w.known, w.relied = true, true; return "" })
	x.add("settle", hints, func(w *world) string { w.Settle(); w.relied = true; return "" })
	x.add("drop", hints, func(w *world) string { w.dropped = !w.Young(); return "" })
	x.add("wall on", jumps, func(w *world) string { w.wall, w.calm = w.wall+3*grid, false; return "" })
	x.add("wall back", jumps, func(w *world) string { w.wall -= 3 * grid; return "" })
}

func (w *world) begin() string {
	w.calm = true
	length := clock.Validity(w.Asked, w.Drift)
	if w.renews > 0 { // a claim
		length, w.renews = w.renews, 0
	}
	w.prove(at(0), length)
	check := time.Duration(0)
	if !w.Renews {
		check = 2 * grid
	}
	w.Begin(at(0), w.now(), length, check)
	return w.arm()
}

func (w *world) tick() string {
	w.due = 0
	between := w.phase == passing
	w.relied, w.calm = w.relied || !between, w.calm && !between
	k := w.Tick(w.now(), !w.dropped)
	switch {
	case k != Nothing && (w.why != None || between):
		return "what has no handle is renewed"
	case k == Renewal && (w.dropped || !w.Renews):
		return "what is not to be renewed is"
	case k != Nothing && w.flights[0].Kind != Nothing:
		return "two renewals are under way"
	case k != Nothing:
		w.flights[0] = flight{Extension: Extension{Kind: k}, ttl: w.TTL}
	}
	if w.why != None {
		return ""
	}
	if next := w.Next(w.now(), !w.dropped); next <= 0 {
		return "the timer spins"
	}
	return w.arm()
}

func (w *world) extend(ttl time.Duration) string {
	w.Settle()
	w.relied = true
	if w.Judge(w.now()) {
		w.flights[1] = flight{Extension: Extension{Kind: Call}, ttl: ttl}
	}
	return ""
}

func (w *world) send(f *flight) string {
	x := w.Send(f.Kind, f.ttl, w.now())
	over := w.MaxHold > 0 && x.TTL > max(w.MaxHold-w.now().Since(at(0)), 0)+3*time.Millisecond
	f.Extension, f.sent = x, true
	f.Restore = 0
	defer w.pass(1) // no two commands leave at once
	switch {
	case over:
		return "an extension passes the maximum hold"
	case f.Kind != Check && x.TTL < f.ttl && w.MaxHold == 0, f.Kind == Check && x.TTL != time.Millisecond:
		return "an extension is too short"
	case x.Restore > 0 && (f.Kind == Check || w.ended != None || w.left() == 0):
		return "a lock that is not held may be restored"
	case x.Restore == 0 && f.Kind != Check && w.Left(w.now()) > 0:
		return "a lock that is held is not restored"
	case x.Timeout < patience || x.Timeout > max(w.Timeout, w.left()):
		return "an odd timeout"
	}
	return ""
}

func (w *world) answer(f *flight, err error, gone bool) string {
	x, renews := f.Extension, f.Kind != Check && f.ttl >= w.TTL
	*f = flight{}
	w.calm = w.calm && (err == nil || w.now().Since(x.Start) < grid/2) // a failure that comes late leaves no time for another attempt
	w.pass(1)                                                          // an answer takes its time
	trusted := w.why == None && w.left() > 0
	if err == nil && w.why == None && w.left() > 0 {
		w.prove(x.Start, clock.Validity(x.TTL, w.Drift))
		w.checked = w.checked || x.Start.Mono.Sub(epoch.Mono) >= w.checkAt
		if renews {
			w.renews = max(w.renews, x.Start.Mono.Sub(epoch.Mono))
		}
	}
	goes := w.Extended(&x, w.now(), err, gone, 0.5)
	switch {
	case goes != (w.why == None):
		return "Extended reports what is not so"
	case gone && w.why == None:
		return "a lost lock goes on"
	case !gone && trusted && !goes:
		return "an answer ends the lease"
	case !goes:
		return ""
	}
	return w.arm()
}

func (w *world) unlock(handle int, after time.Duration) string {
	newest := handle == w.handles && w.phase != passing && w.decided>>handle&1 == 0
	trusted := w.why == None && w.left() > 0
	ended := w.why
	want := Refuse
	switch {
	case !newest:
	case trusted && w.Passes && !w.relied && after == 0:
		want = Pass
	case trusted:
		want = Give
	case w.known:
		want = Leave
	default:
		want = Clear
	}
	r, keep := w.Unlock(handle, w.now(), after)
	if newest {
		w.decided |= 1 << handle
	}
	switch {
	case r != want:
		return fmt.Sprintf("Unlock answers %s, not %s", releaseNames[r], releaseNames[want])
	case ended != None && w.why != ended:
		return "Unlock changes the reason"
	case r == Pass && (w.flights[0].Kind != Nothing || w.flights[1].Kind != Nothing):
		return "an extension is under way when the lock is passed on"
	case r != Give && keep != 0:
		return "what is not given back is kept"
	case r == Give && (keep < after || keep+w.now().AtLeast(at(0)) < w.MinHold || keep%time.Millisecond != 0):
		return "others are let in too early"
	}
	return ""
}

func (w *world) serve() string {
	w.handles++
	if w.Serve(w.now()) != w.handles {
		return "a handle has an odd number"
	}
	return ""
}

func (w *world) end(handle int) string {
	holds := handle == w.handles && w.phase == held
	w.End(handle, errGone)
	if holds && w.why == None {
		return "a lost lock goes on"
	}
	return ""
}

// check returns which invariant is broken.
func (w *world) check() string {
	l := w.Lease // a call of Judge would change it
	goes, now := l.Judge(w.now()), w.now()
	ended := w.ended
	w.ended = w.why
	switch {
	case ended != None && (w.why != ended || goes):
		return "the end is not final"
	case (w.why == None) != (w.phase == held || w.phase == passing):
		return "the phase and the reason differ"
	case goes && w.phase == held && w.left() == 0:
		return "it is trusted for too long"
	case w.Left(now) > w.left():
		return "more is left than Redis keeps"
	case ended == None && w.why == MaxHold && now.Since(at(0)) < w.MaxHold:
		return "the maximum hold ends early"
	case w.Holds(w.handles) != (w.phase != passing):
		return "a handle is confused with another"
	case w.why == None && w.due == 0:
		return "the timer is off"
	case l.why == None || l.why == Unlocked || l.why == MaxHold || l.why == Gone || !w.calm || !w.Renews || w.dropped:
	default:
		return "it is lost though nothing has failed"
	}
	if w.calm && w.phase == held && goes {
		if w.Renews && !w.dropped && w.mono > w.renews+w.TTL/3+4*grid {
			return "a deleted key is not noticed"
		}
		if w.checkAt > 0 && !w.checked && w.mono > w.checkAt+4*grid {
			return "a check is missing"
		}
	}
	return ""
}

var (
	once   = [budgets]int8{late: 1, fails: 1, losses: 1, calls: 1, jumps: 1, hints: 1, unlocks: 2}
	worlds = map[string]Config{
		"a lock":         {TTL: 6 * grid, Asked: 6 * grid, Timeout: grid, Renews: true, Passes: true},
		"a claim":        {TTL: 6 * grid, Asked: 6 * grid, Timeout: grid, Renews: true, Passes: true},
		"a fixed lease":  {TTL: 6 * grid, Asked: 6 * grid, Timeout: grid, Passes: true},
		"a maximum hold": {TTL: 6 * grid, Asked: 6 * grid, Timeout: grid, Renews: true, MaxHold: 7 * grid},
		"a minimum hold": {TTL: 6 * grid, Asked: 9 * grid, Timeout: grid, Renews: true, MinHold: 9*grid - 1},
	}
)

func TestAllHistories(t *testing.T) {
	for name, c := range worlds {
		t.Run(name, func(t *testing.T) {
			explore.Parallel(t)
			x := new(explorer)
			x.Walk = explore.Walk[world]{Steps: x.steps, Wrong: func(*world) string { return x.broken }}
			w := world{Lease: Lease{Config: c}, budget: once, total: 1 + int8(explore.Chosen())}
			if name == "a claim" {
				w.renews = 5*grid - 2*time.Millisecond
			}
			x.Test(t, w)
		})
	}
}
