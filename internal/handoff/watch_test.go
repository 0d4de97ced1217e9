package handoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// refusals are answers to looks, which this watch gets one after the other.
type refusals struct {
	Watch
	t *testing.T
}

// The holders of these tests. Only theirs may be a client that does not hand the lock on.
const (
	ours   = "ours"
	others = "another of ours"
	theirs = "theirs"
)

// look notes an answer whose holder has a minute left.
func (w *refusals) look(holder string, change ...func(*Refusal)) (polls int, next time.Duration) {
	got := Refusal{At: time.Hour, Holder: holder, Left: time.Minute, Foreign: holder == theirs}
	for _, f := range change {
		f(&got)
	}
	return w.Refused(clock.Now(), got)
}

// rests fails unless the line does not poll, and looks again after least, or up to a quarter later.
func (w *refusals) rests(least time.Duration, holder string, change ...func(*Refusal)) {
	w.t.Helper()
	polls, next := w.look(holder, change...)
	require.Zero(w.t, polls)
	require.GreaterOrEqual(w.t, next, least)
	require.Less(w.t, next, least+least/4)
}

// polled fails unless the line has polled n times.
func (w *refusals) polled(n int, holder string, change ...func(*Refusal)) {
	w.t.Helper()
	polls, next := w.look(holder, change...)
	require.Equal(w.t, n, polls)
	require.Zero(w.t, next)
}

func first(got *Refusal)  { got.First = true }
func handed(got *Refusal) { got.Handed = true }
func kept(got *Refusal)   { got.Kept = true }
func shared(got *Refusal) { got.Shared = true }

// TestLooksComeAtIntervals: the first of the queue polls if the lock changes hands past it. Other lines look
// less and less often while the key stays with one holder.
func TestLooksComeAtIntervals(t *testing.T) {
	w := refusals{t: t}
	w.rests(time.Second, ours)
	w.rests(2*time.Second, ours)
	w.rests(4*time.Second, ours)
	w.rests(4*time.Second, ours)
	w.rests(time.Second, others)
	w.rests(time.Second, others, first)
	w.rests(time.Second, others, first)
	w.polled(1, ours, first)
	w.polled(2, ours, first)
	w.polled(3, others, first)

	w = refusals{t: t}
	w.rests(250*time.Millisecond, theirs, first)
	w.polled(1, ours, first)
}

// TestHandOverPassesNobody: a holder that the queue has handed the lock has not overtaken the first of the queue.
// Nor has a keeper of WithMinHold, nor one of several holders.
func TestHandOverPassesNobody(t *testing.T) {
	for name, how := range map[string]func(*Refusal){"handed": handed, "kept": kept, "one of several": shared} {
		t.Run(name, func(t *testing.T) {
			w := refusals{t: t}
			w.rests(time.Second, ours, first)
			w.rests(time.Second, others, first, how)
			w.rests(time.Second, others, first, how)
			if name == "handed" {
				w.polled(1, ours, first)
			}
		})
	}
}

// TestOnlyTheFirstIsOvertaken: what happened before a line became the first of the queue does not count. A line
// that polls counts anew from when it is the first.
func TestOnlyTheFirstIsOvertaken(t *testing.T) {
	w := refusals{t: t}
	w.rests(time.Second, ours, first)
	w.rests(time.Second, others) // the queue was lost, and another line came first
	w.rests(time.Second, ours, first)
	w.polled(1, others, first)

	w = refusals{t: t}
	w.Poll()
	w.polled(1, ours)
	w.polled(2, others)
	w.polled(1, ours, first)
	w.polled(2, others, first)
	w.Poll()
	w.polled(3, others, first)
}

// TestLineThatWasPassedPollsOn: the next entry of a line polls from the start if the key has changed hands past
// the line, or if the line found it free while it was in the queue. A message from another process ends that.
func TestLineThatWasPassedPollsOn(t *testing.T) {
	passed := func(w *Watch) {
		w.Refused(clock.Now(), Refusal{At: time.Hour, Holder: ours, First: true})
		w.Refused(clock.Now(), Refusal{At: time.Hour, Holder: others, First: true})
	}
	queued := func(w *Watch) { w.Told(clock.Now(), time.Hour) }
	for name, c := range map[string]struct {
		before func(*Watch)
		found  bool
		polls  bool
	}{
		"the line came first":      {func(*Watch) {}, true, false},
		"it was handed the lock":   {queued, false, false},
		"it found the key free":    {queued, true, true},
		"it was passed":            {passed, false, true},
		"that was announced":       {func(w *Watch) { passed(w); w.Announced() }, false, false},
		"it was passed before":     {func(w *Watch) { passed(w); *w = w.Next(false) }, false, true},
		"it polls for its process": {func(w *Watch) { w.Poll() }, false, false},
	} {
		var w Watch
		c.before(&w)
		next := w.Next(c.found)
		require.Equal(t, c.polls, next.Polls(), name)
	}
}

// TestLookWithoutAnEntryPollsOnlyIfTheLineDoes: the reply to it does not have the time of Redis.
func TestLookWithoutAnEntryPollsOnlyIfTheLineDoes(t *testing.T) {
	var w Watch
	polls, _ := w.Refused(clock.Now(), Refusal{Holder: ours, Left: time.Minute})
	require.Zero(t, polls)
	require.Zero(t, w.redis)
	w.Poll()
	polls, _ = w.Refused(clock.Now(), Refusal{Holder: others, Left: time.Minute})
	require.Equal(t, 1, polls)
}

// TestLookComesWhenTheLeaseMayHaveEnded: a crashed holder costs what is left of its TTL. The first of the queue
// looks then, and the others soon after it.
func TestLookComesWhenTheLeaseMayHaveEnded(t *testing.T) {
	ends := func(left time.Duration) func(*Refusal) { return func(got *Refusal) { got.Left = left } }
	fresh := func(got *Refusal) { got.Fresh = true }
	w := refusals{t: t}
	next := func(change ...func(*Refusal)) time.Duration {
		w.Watch = Watch{}
		_, next := w.look(ours, change...)
		return next
	}
	require.Equal(t, 301*time.Millisecond, next(first, ends(300*time.Millisecond)))
	require.Equal(t, 400*time.Millisecond, next(ends(300*time.Millisecond)))
	require.Equal(t, 250*time.Millisecond, next(ends(time.Millisecond)), "the first has had time to look")
	require.GreaterOrEqual(t, next(fresh, ends(time.Millisecond)), time.Second, "it does not know yet who is before it")
	require.GreaterOrEqual(t, next(first, ends(0)), time.Second, "the lease has no end")
}

// TestHandedLeaseBeginsAtTheNewestQuestion: a handed lease is computed from the newest command that returned the time of
// Redis. Until one has, it begins at the newest command that may have queued the line.
func TestHandedLeaseBeginsAtTheNewestQuestion(t *testing.T) {
	base := clock.Now()
	at := func(d time.Duration) clock.Instant {
		return clock.Instant{Mono: base.Mono.Add(d), Wall: base.Wall + d}
	}
	g := Grant{At: time.Hour + 10*time.Second, Arrived: at(10 * time.Second)}
	var w Watch
	w.Sent(at(0))
	require.Equal(t, at(0), w.Started(g, 0))
	w.Sent(at(2 * time.Second))
	require.Equal(t, at(2*time.Second), w.Started(g, 0))
	w.Told(at(time.Second), time.Hour+3*time.Second)
	require.Equal(t, at(8*time.Second), w.Started(g, 0))
	w.Sent(at(9 * time.Second))
	require.Equal(t, at(8*time.Second), w.Started(g, 0), "this one has returned nothing yet")
	w.Told(at(4*time.Second), time.Hour+5*time.Second)
	require.Equal(t, at(9*time.Second), w.Started(g, 0))
	w.Told(at(3*time.Second), time.Hour+3*time.Second)
	require.Equal(t, at(9*time.Second), w.Started(g, 0), "a late reply to an older command")
}
