package line

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
)

// Lines has the lines of one Locker. Many goroutines may use it.
//
// The mutex guards all lines, and the calls and attempts in them. Under it, lines only decide. What they
// have decided is carried out without it.
type Lines struct {
	inbox *inbox.Inbox // of what Redis hands to this process; nil: lines poll

	yielding recent // keys that this process leaves to others for a while
	queued   recent // keys that a Locker that queues held a short time ago
	untold   recent // keys that a Locker which cannot tell others held a short time ago

	mu      sync.Mutex            // guards the fields below, and what is in them
	shared  map[ID]*keyLine       // of calls without options of their own
	waiting map[*keyLine]struct{} // those that use the channel
	pulse   Pulse
}

// An ID says which calls stand in a line: those of a key, with a limit. Permits have several lines.
type ID struct {
	Lock  string // the name of the lock in Redis
	Limit int    // of the permits; 0: the key has one holder
	lane  int    // which of them; ownLane: none
}

// ownLane is the lane of a line that is not shared: its call has options of its own.
const ownLane = -1

// New returns the lines of a Locker without calls. Without an inbox they poll.
func New(in *inbox.Inbox) *Lines {
	return &Lines{inbox: in, shared: make(map[ID]*keyLine), waiting: make(map[*keyLine]struct{})}
}

// locked calls do with the mutex locked.
func (l *Lines) locked(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// shortestLocked returns the line of a key and a limit to join, of a number of lanes: one that is not there
// yet, or else the shortest. used is how many lanes have one.
func (l *Lines) shortestLocked(id ID, lanes int) (shortest ID, used int) {
	shortest = id
	for id.lane = range lanes {
		w := l.shared[id]
		if w != nil {
			used++
		}
		if best := l.shared[shortest]; best != nil && (w == nil || w.machine.Length() < best.machine.Length()) {
			shortest = id
		}
	}
	return shortest, used
}

// lineLocked returns the line that a call joins. Without lanes, the call is a line by itself.
func (l *Lines) lineLocked(id ID, lanes int, by Waiter) *keyLine {
	if lanes == 0 {
		id.lane = ownLane
		return newLine(l, id, by)
	}
	id, _ = l.shortestLocked(id, lanes)
	if l.shared[id] == nil {
		l.shared[id] = newLine(l, id, by)
	}
	return l.shared[id]
}

// TriesAlone reports whether a call for a permit makes its first attempt by itself: no line waits for the
// key, and the process does not leave it to others. lanes is as for Join.
func (l *Lines) TriesAlone(id ID, lanes int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, used := l.shortestLocked(id, lanes)
	return used == 0 && l.yielding.until(id.Lock) == 0
}

// Observe notes how long an attempt has taken that a call has made by itself. answered says whether Redis has
// granted or refused it.
func (l *Lines) Observe(now clock.Mono, took time.Duration, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulse.Observe(now, took, answered)
}

// Join adds a call at the end of a line: the shortest of a number of lanes, or with none a line of its own. The
// wait ends with Serve or Fail of its attempt or of the call, or with Leave. ctx is used until then.
func (l *Lines) Join(ctx context.Context, c *Call, id ID, lanes int, now clock.Instant) {
	c.Of, c.ctx = c, ctx
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = clock.MonoOf(deadline)
	}
	m := l.moment(now)
	var room effects
	out := room[:0]
	l.locked(func() {
		c.line = l.lineLocked(id, lanes, c.By)
		c.line.factsLocked(&m)
		out = c.line.machine.Join(m.Facts, &c.Caller, out)
		c.line.settleLocked(&m, out)
	})
	c.line.carry(&m, out)
}

// Last is the last that a call knows that has left its line.
type Last struct {
	News
	Holder  *Attempt      // that has the key; nil: no attempt of the line has it
	Silence time.Duration // of Redis, since the acquire that is under way; 0: none is
}

// Leave takes a call out of its line. It reports false if the wait has ended before, or is about to.
func (l *Lines) Leave(c *Call, now clock.Instant) (last Last, waited bool) {
	w, m := c.line, l.moment(now)
	var room effects
	out := room[:0]
	l.locked(func() {
		last.News = w.machine.News(&c.Caller)
		if w.machine.State() == Holding {
			last.Holder = w.newest
		}
		if out, waited = w.machine.Leave(&c.Caller, out); waited {
			c.ctx = nil // the line may last
		}
		w.settleLocked(&m, out)
	})
	w.carry(&m, out)
	if last.Asking > 0 {
		last.Silence = max(m.Now.Sub(last.Asking), 1)
	}
	return last, waited
}

// Changed tells all lines that messages may have been lost, or come again. It returns the first call of each.
func (l *Lines) Changed() (first []Waiter) {
	var all []*keyLine
	l.locked(func() { all = slices.Collect(maps.Keys(l.waiting)) })
	for _, w := range all {
		first = append(first, w.first)
		w.changed()
	}
	return first
}

// Yield has this process leave a key to others for a while, up to longest. Otherwise they would never
// find it free.
func (l *Lines) Yield(lock string, longest time.Duration) {
	l.yielding.note(lock, longest-rand.N(longest/2+1))
}

// String describes the lines, for the report of a bug. It shows no token.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(l.waiting)
	for _, w := range l.shared {
		all[w] = struct{}{}
	}
	var text []string
	for w := range all {
		text = append(text, fmt.Sprintf("\n\t%q: %v", w.id.Lock, &w.machine))
	}
	slices.Sort(text)
	return strings.Join(text, "")
}

// A recent notes keys, each for a while.
type recent struct{ sync.Map }

// note notes a key.
func (b *recent) note(key string, d time.Duration) {
	until := clock.MonoNow().Add(d)
	b.Store(key, until)
	time.AfterFunc(d, func() { b.CompareAndDelete(key, until) }) // it ends with that time
}

// until returns until when a key is noted, or 0.
func (b *recent) until(key string) clock.Mono {
	until, known := b.Load(key)
	if !known {
		return 0
	}
	return until.(clock.Mono)
}
