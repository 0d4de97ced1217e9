package lease

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/redistest"
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
	ghost
}

// A ghost is what a test has seen, which the core does not know.
type ghost struct {
	maxHold time.Duration
	calm    bool // nothing has delayed the shell or Redis by more than a grid
	relied  bool // somebody but the handle relies on the lease
	known   bool // others may know the token
	ended   Why
	handles int
	decided int // by bit: handles that Unlock has ended
	proofs  [8]proof
	renews  time.Duration // when the newest request was sent that is known to have renewed the key
	checked bool
}

// A flight is an extension under way.
type flight struct {
	Extension
	ttl  time.Duration // of an extension that is no check
	sent bool
}

// A proof says that Redis keeps the key, counted from start.
type proof struct {
	start  clock.Instant
	length time.Duration
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

// prove notes a proof, and forgets those that have run out.
func (w *world) prove(start clock.Instant, ttl time.Duration) string {
	for i := range w.proofs {
		if p := &w.proofs[i]; w.now().Since(p.start) >= p.length {
			*p = proof{start, clock.Validity(ttl, w.Drift)}
			return ""
		}
	}
	return "more extensions than expected"
}

// left returns for how long the key is known to be kept.
func (w *world) left() (most time.Duration) {
	for _, p := range w.proofs {
		most = max(most, p.length-w.now().Since(p.start))
	}
	if w.maxHold > 0 {
		most = min(most, w.maxHold-w.now().Since(at(0)))
	}
	return max(most, 0)
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

// An explorer walks all states of a world, and plants a mistake.
type explorer struct {
	seen    map[uint64]struct{}
	mistake *mistake
	trace   []string
}

var seed = maphash.MakeSeed()

func (x *explorer) explore(w world) string {
	key := maphash.Comparable(seed, w)
	if _, ok := x.seen[key]; ok {
		return ""
	}
	x.seen[key] = struct{}{}
	for _, e := range w.events() {
		next := w
		if x.mistake != nil && x.mistake.before != nil {
			x.mistake.before(e.name, &next)
		}
		broken := e.do(&next)
		if x.mistake != nil && x.mistake.after != nil {
			x.mistake.after(e.name, &next)
		}
		if broken == "" {
			broken = next.check()
		}
		if broken == "" {
			broken = x.explore(next)
		}
		if broken != "" {
			x.trace = append(x.trace, fmt.Sprintf("%v %s", w.mono, e.name))
			return broken
		}
	}
	return ""
}

// An event changes a world, and says what is wrong.
type event struct {
	name string
	do   func(w *world) string
}

// choices are the events that may come next.
type choices struct {
	*world
	all []event
}

// add adds an event that a budget limits.
func (c *choices) add(name string, budget int, do func(w *world) string) {
	if budget == free {
		c.all = append(c.all, event{name, do})
		return
	}
	if c.budget[budget] > 0 && (budget == unlocks || c.total > 0) {
		c.all = append(c.all, event{name, func(w *world) string {
			if w.budget[budget]--; budget != unlocks {
				w.total--
			}
			return do(w)
		}})
	}
}

func (w *world) events() []event {
	c := &choices{world: w}
	if w.phase == asked {
		c.add("begin", free, (*world).begin)
		return c.all
	}
	c.ofShell()
	c.ofHandles()
	if w.why == None {
		c.ofCallers()
	}
	return c.all
}

// ofShell adds what the shell, Redis and the clock do. Time that passes while the shell has something to do is a delay.
func (c *choices) ofShell() {
	waits := c.phase == passing
	if c.due > 0 && c.due <= c.mono {
		waits = true
		c.add("tick", free, (*world).tick)
	}
	for i := range c.flights {
		switch f := &c.flights[i]; {
		case f.Kind == Nothing:
		case !f.sent:
			waits = true
			c.add("send", free, func(w *world) string { return w.send(&w.flights[i]) })
		default:
			waits = waits || c.now().Mono.Sub(f.Start.Mono) > grid/2
			c.add("done", free, func(w *world) string { return w.answer(&w.flights[i], nil, false) })
			c.add("fail", fails, func(w *world) string { return w.answer(&w.flights[i], errFailed, false) })
			c.add("gone", losses, func(w *world) string { return w.answer(&w.flights[i], errGone, true) })
		}
	}
	switch {
	case c.why != None:
		c.add("tick", hints, (*world).tick) // it was on its way
	case !waits && c.mono < horizon:
		c.add("time", free, func(w *world) string { w.pass(grid - w.mono%grid); return "" })
	case c.mono < horizon:
		c.add("delay", late, func(w *world) string { w.pass(grid - w.mono%grid); w.calm = false; return "" })
	}
}

// ofHandles adds the calls that end a handle, or begin one.
func (c *choices) ofHandles() {
	for handle := max(c.handles-1, 0); handle <= c.handles; handle++ {
		for _, after := range []time.Duration{0, 1500 * time.Microsecond} {
			c.add(fmt.Sprintf("unlock %d %v", handle, after), unlocks, func(w *world) string { return w.unlock(handle, after) })
		}
		c.add("end", losses, func(w *world) string { return w.end(handle) })
	}
	if c.phase == passing {
		c.add("serve", free, (*world).serve)
		c.add("notpassed", free, func(w *world) string { w.NotPassed(); return "" })
	}
}

// ofCallers adds what else may happen to a lease that has not ended.
func (c *choices) ofCallers() {
	c.add("judge", free, func(w *world) string { w.Judge(w.now()); return "" })
	for _, ttl := range []time.Duration{c.TTL / 2, 2 * c.TTL} {
		if c.phase != passing && c.flights[1].Kind == Nothing {
			c.add("extend "+ttl.String(), calls, func(w *world) string { return w.extend(ttl) })
		}
	}
	c.add("share", hints, func(w *world) string { w.Share(); w.known, w.relied = true, true; return "" })
	c.add("settle", hints, func(w *world) string { w.Settle(); w.relied = true; return "" })
	c.add("drop", hints, func(w *world) string { w.dropped = !w.Young(); return "" })
	c.add("wall on", jumps, func(w *world) string { w.wall, w.calm = w.wall+3*grid, false; return "" })
	c.add("wall back", jumps, func(w *world) string { w.wall -= 3 * grid; return "" })
}

func (w *world) begin() string {
	w.calm = true
	_ = w.prove(at(0), w.Asked)
	length := w.proofs[0].length
	if w.renews > 0 { // a claim
		length, w.renews = w.renews, 0
		w.proofs[0].length = length
	}
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
	over := w.maxHold > 0 && x.TTL > max(w.maxHold-w.now().Since(at(0)), 0)+3*time.Millisecond
	f.Extension, f.sent = x, true
	defer w.pass(1) // no two commands leave at once
	switch {
	case over:
		return "an extension passes the maximum hold"
	case f.Kind != Check && x.TTL < f.ttl && w.maxHold == 0, f.Kind == Check && x.TTL != time.Millisecond:
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
		if broken := w.prove(x.Start, x.TTL); broken != "" {
			return broken
		}
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
	defer func() {
		w.ended = w.why
		if w.why != None {
			w.due = 0
		}
	}()
	switch {
	case w.ended != None && w.why != w.ended, w.ended != None && goes:
		return "the end is not final"
	case (w.why == None) != (w.phase == held || w.phase == passing):
		return "the phase and the reason differ"
	case goes && w.phase == held && w.left() == 0:
		return "it is trusted for too long"
	case w.Left(now) > w.left():
		return "more is left than Redis keeps"
	case w.why == MaxHold && now.Since(at(0)) < w.maxHold:
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

// start returns the world of a name.
func start(name string, total int8) world {
	c := worlds[name]
	w := world{Lease: Lease{Config: c}, budget: once, total: total, ghost: ghost{maxHold: c.MaxHold}}
	if name == "a claim" {
		w.renews = 5*grid - 2*time.Millisecond
	}
	return w
}

func TestAllHistories(t *testing.T) {
	for name := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total := int8(2)
			if testing.Short() || redistest.RaceDetector() {
				total = 1
			}
			x := explorer{seen: make(map[uint64]struct{})}
			if broken := x.explore(start(name, total)); broken != "" {
				t.Fatalf("%s\n%s", broken, x.history())
			}
			t.Logf("%d states", len(x.seen))
		})
	}
}

// history returns the events that led to what is broken.
func (x *explorer) history() string {
	slices.Reverse(x.trace)
	return strings.Join(x.trace, "\n")
}
