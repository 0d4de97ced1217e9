package judge

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

var (
	errHeld     = redlatch.ErrNotAcquired
	errAway     = redlatch.ErrUnavailable
	errReleased = redlatch.ErrReleased
	errOwn      = errors.New("the function failed")
	errDeadline = fmt.Errorf("%w: %w", errAway, context.DeadlineExceeded)
)

var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// elsewhere has a loss of k before, and one of another key.
var elsewhere = History{
	Losses: []Loss{{At: 0, Places: []string{"k"}}, {At: s / 4, Places: []string{"l"}}}, Faulty: true,
}

// good tales break no rule.
var good = map[string]struct {
	History
	tell func(t *tale)
}{
	"a clock was set back, so a token ends late": {History{Faulty: true, Back: 12 * s}, func(t *tale) { t.calm(0); ghost(t, 0) }},
	"a command that comes in time": {History{}, func(t *tale) {
		t.held(0, 0, 64, ask())
		t.add(Event{Kind: Used, Places: []string{"k"}, Owner: "A", For: 90 * ms})
	}},
	"commands that are needed": {History{}, func(t *tale) {
		waitsFor10s(t)
		t.add(Event{Kind: Used, Places: []string{"k"}, Owner: "A", Sent: map[string]int{"Acquires": 12, "Extends": 4}})
		t.add(Event{At: s, Kind: Queued, Places: []string{"k"}, Owner: "A", For: 1})
		t.add(Event{Kind: Idle})
	}},
	"one after the other": {History{}, func(t *tale) {
		t.held(0, s/2, 64, ask())
		t.held(s/2, s, 128, ask(by("B")))
	}},
	"as many permits as the largest limit among them": {History{}, func(t *tale) {
		t.granted(0, 0, 900*ms, 64, ask(limit(1), by("B")))
		t.granted(0, 0, 900*ms, 128, ask(limit(2)))
	}},
	"readers together": {History{}, func(t *tale) {
		t.granted(0, 0, 900*ms, 64, ask(mode(Reader)))
		t.granted(0, 0, 900*ms, 64, ask(mode(Reader)))
		t.granted(0, 0, 900*ms, 128, ask(mode(Reader), by("B")))
	}},
	"the same fence within 10 ms, beside a loss": {History{Losses: []Loss{{At: 2 * ms, Places: []string{"k"}}}, Faulty: true}, func(t *tale) {
		t.held(0, ms, 64, ask())
		t.held(9*ms, s, 64, ask())
	}},
	"two holders of a key that was lost": {History{Losses: []Loss{{At: s / 4, Places: []string{"k"}}}, Faulty: true}, func(t *tale) {
		t.granted(0, 0, 900*ms, 64, ask())
		t.granted(0, s/2, 1300*ms, 128, ask(by("B")))
	}},
	"adopted": {History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		a := ask(what("Adopt"))
		t.holds++
		t.add(Event{At: 10 * ms, Kind: Granted, Call: t.called(10*ms, Never, a), Hold: t.holds, Of: h, Places: a.Places, Fence: 128, Until: 990 * ms})
		t.unlocks(20*ms, 20*ms, t.holds, 0, ask(), nil)
		t.held(30*ms, 40*ms, 192, ask(by("B")))
		t.unlocks(50*ms, 50*ms, h, 0, ask(), redlatch.ErrLost)
	}},
	"a lease that runs out": {History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(fixed))
		t.checked(899*ms, h, 900*ms, nil)
		t.ended(900*ms, h, 900*ms, redlatch.ErrLost)
		t.checked(s, h, 900*ms, redlatch.ErrLost)
		t.unlocks(s, s, h, 0, ask(), redlatch.ErrLost)
		t.unlocks(s, s, h, 0, ask(), errReleased)
	}},
	"a wait that its ctx ends": {History{}, func(t *tale) {
		t.granted(0, 0, 3*s, 64, ask(func(a *Ask) { a.TTL = 4 * s }))
		t.fails(0, s, s, ask(by("B")), fmt.Errorf("%w: %w", errHeld, context.DeadlineExceeded))
	}},
	"a timeout": {History{Faulty: true}, func(t *tale) {
		t.fails(0, 200*ms, Never, ask(what("TryLock")), errAway)
	}},
	"a place that a line keeps": {History{}, func(t *tale) {
		first := t.called(0, s/2, ask(by("B")))
		h := t.granted(0, 0, 3*s, 64, ask(func(a *Ask) { a.TTL = 4 * s }))
		early := t.called(100*ms, Never, ask(by("C")))
		next := t.called(400*ms, Never, ask(by("B")))
		t.returned(s/2, first, fmt.Errorf("%w: %w", errHeld, context.DeadlineExceeded))
		t.unlocks(2*s, 2*s, h, 0, ask(), nil)
		h = t.grants(next, 2*s, 2900*ms, 128, ask(by("B")))
		t.unlocks(2100*ms, 2100*ms, h, 0, ask(by("B")), nil)
		t.grants(early, 2100*ms, 3000*ms, 192, ask(by("C")))
	}},
	"out of order, while a line asks whose lock has just expired": {History{}, func(t *tale) {
		h := t.granted(0, 0, 1978*ms, 64, ask(fixed, func(a *Ask) { a.TTL = 2 * s }))
		first := t.called(10*ms, 20*s, ask())
		next := t.called(1900*ms, Never, ask(by("B")))
		t.ended(1978*ms, h, 1978*ms, redlatch.ErrLost)
		t.unlocks(1978*ms, 1978*ms, h, 0, ask(fixed), redlatch.ErrLost)
		t.grants(next, 1978*ms, 2500*ms, 128, ask(by("B")))
		t.grants(first, 2500*ms, 3400*ms, 192, ask())
	}},
	"out of order, for a line that somebody in Lead has begun": {History{}, func(t *tale) {
		h := t.granted(0, 0, 3*s, 64, ask(func(a *Ask) { a.TTL = 4 * s }))
		leads := t.called(100*ms, 2400*ms, ask(by("B"), what("Lead")))
		early := t.called(200*ms, Never, ask(by("C")))
		next := t.called(2*s, Never, ask(by("B")))
		t.returned(2400*ms, leads, errDeadline)
		t.unlocks(2500*ms, 2500*ms, h, 0, ask(), nil)
		h = t.grants(next, 2500*ms, 3400*ms, 128, ask(by("B")))
		t.unlocks(2600*ms, 2600*ms, h, 0, ask(by("B")), nil)
		t.grants(early, 2600*ms, 3500*ms, 192, ask(by("C")))
	}},
	"kept, but for the drift": {History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.unlocks(0, 0, h, s, ask(), nil)
		t.held(s-12*ms, s, 128, ask(by("B")))
	}},
	"kept by a reader, for writers": {History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(mode(Reader)))
		t.unlocks(0, 0, h, s, ask(), nil)
		t.held(s/2, s, 128, ask(mode(Reader), by("B")))
	}},
	"an answer, and an error, about the holder": {History{Start: began}, func(t *tale) {
		h := t.granted(0, 10*ms, 976*ms, 64, ask(fixed))
		t.inspects(20*ms, 30*ms, redlatch.Status{
			Held: true, Token: "A/1", Owner: "A", Since: began, TTL: 960 * ms, Holders: 1,
		})
		t.fails(20*ms, 30*ms, Never, ask(what("TryLock"), by("B")), &redlatch.HeldError{Owner: "A", Since: began, TTL: 960 * ms})
		t.unlocks(40*ms, 50*ms, h, 0, ask(fixed), nil)
		t.inspects(60*ms, 70*ms, redlatch.Status{})
	}},
	"what hooks say of a lock": {History{}, func(t *tale) {
		call := t.called(0, Never, ask())
		t.reports(10*ms, "Acquired", redlatch.Event{Fence: 64, Elapsed: 10 * ms, Attempts: 1})
		h := t.grants(call, 10*ms, 976*ms, 64, ask())
		t.reports(410*ms, "Renewed", redlatch.Event{Fence: 64, Elapsed: 410 * ms, Took: 10 * ms, Renewal: true})
		t.unlocks(s/2, s/2, h, 0, ask(), nil)
		t.reports(s/2, "Released", redlatch.Event{Fence: 64, Elapsed: s / 2})
	}},
	"a client that is closed": {History{Faulty: true}, func(t *tale) {
		t.fails(0, s, Never, ask(func(a *Ask) { a.Closed = s }), redis.ErrClosed)
	}},
	"a keep that Forget has ended": {History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.unlocks(0, 0, h, s, ask(), nil)
		t.returned(s/2, t.called(s/2, Never, ask(what("Forget"), by("B"))), nil)
		t.held(s/2, s, 128, ask(by("B")))
	}},
	"a function that fails": {History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do")))
		t.runEnds(s/2, call, h, "fails", errOwn)
		t.ctxEnded(s/2, h, errReleased)
		t.returned(s/2, call, errOwn)
	}},
	"a function that panics": {History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("TryDo")))
		t.runEnds(s/2, call, h, "panics", nil)
		t.ctxEnded(s/2, h, errReleased)
		t.add(Event{At: s / 2, Kind: Exited, Call: call, Text: "panics"})
	}},
	"a function whose lock is lost": {History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do"), fixed))
		t.ended(900*ms, h, 900*ms, redlatch.ErrLost)
		t.ctxEnded(900*ms, h, redlatch.ErrLost)
		t.runEnds(s, call, h, "", nil)
		t.returned(s, call, redlatch.ErrLost)
	}},
	"hooks for each end": {History{}, func(t *tale) {
		for _, text := range []string{"Acquired", "Released", "Acquired", "Lost"} {
			t.add(Event{Kind: Hooked, Owner: "A", Text: text})
		}
	}},
	"registers are left for a day": {History{}, func(t *tale) {
		t.held(0, 0, 64, ask())
		t.left(2*time.Minute, "redlatch:fence", time.Hour)
		t.left(2*time.Minute, "{k}:fence:k", time.Hour)
	}},
	"a token that its release takes out": {History{Faulty: true}, func(t *tale) {
		t.calm(0)
		t.fails(0, 100*ms, Never, ask(what("TryLock")), errAway)
		t.seen(s, "A", "t")
		t.seen(2*s, "A", "t")
	}},
}

// bad tales break one rule each.
var bad = map[string]struct {
	rule string
	History
	tell func(t *tale)
}{
	"nil, and the function was not called": {"functions", History{}, func(t *tale) {
		t.fails(0, ms, Never, ask(what("Do")), nil)
	}},
	"a function that runs twice": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do")))
		t.add(Event{At: ms, Kind: Runs, Call: call})
		t.runEnds(s/2, call, h, "", nil)
		t.returned(s/2, call, nil)
	}},
	"a lost error of a function": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do")))
		t.runEnds(s/2, call, h, "fails", errOwn)
		t.returned(s/2, call, nil)
	}},
	"a panic that becomes an error": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do")))
		t.runEnds(s/2, call, h, "panics", nil)
		t.returned(s/2, call, redlatch.ErrLost)
	}},
	"a ctx that outlasts its lock": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do"), fixed))
		t.ended(900*ms, h, 900*ms, redlatch.ErrLost)
		t.ctxEnded(901*ms, h, redlatch.ErrLost)
		t.runEnds(s, call, h, "", nil)
		t.returned(s, call, redlatch.ErrLost)
	}},
	"a ctx that ends early": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do"), fixed))
		t.ctxEnded(899*ms, h, redlatch.ErrLost)
		t.ended(900*ms, h, 900*ms, redlatch.ErrLost)
		t.runEnds(s, call, h, "", nil)
		t.returned(s, call, redlatch.ErrLost)
	}},
	"a ctx with another cause": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Do"), fixed))
		t.ended(900*ms, h, 900*ms, redlatch.ErrLost)
		t.ctxEnded(900*ms, h, errReleased)
		t.runEnds(s, call, h, "", nil)
		t.returned(s, call, redlatch.ErrLost)
	}},
	"a leader that stops without ErrStop": {"functions", History{}, func(t *tale) {
		call, h := t.runs(0, ask(what("Lead")))
		t.runEnds(s/2, call, h, "fails", errOwn)
		t.returned(s/2, call, nil)
	}},
	"two at once": {"exclusion", History{}, func(t *tale) {
		t.granted(0, 0, 900*ms, 64, ask(fixed))
		t.held(s/2, s, 128, ask(by("B")))
		t.ended(900*ms, 1, 900*ms, redlatch.ErrLost)
	}},
	"a permit too many": {"exclusion", History{}, func(t *tale) {
		for i := range uint64(3) {
			t.granted(0, 0, 900*ms, 64*(i+1), ask(limit(2), fixed))
			defer t.ended(900*ms, int(i+1), 900*ms, redlatch.ErrLost)
		}
	}},
	"a writer beside a reader": {"exclusion", History{}, func(t *tale) {
		t.granted(0, 0, 900*ms, 64, ask(mode(Reader), fixed))
		t.granted(0, 0, 900*ms, 128, ask(mode(Writer), by("B"), fixed))
		t.ended(900*ms, 1, 900*ms, redlatch.ErrLost)
		t.ended(900*ms, 2, 900*ms, redlatch.ErrLost)
	}},
	"the fence of an earlier lock": {"fences", History{}, func(t *tale) {
		t.held(0, s/2, 128, ask())
		t.held(s/2, s, 128, ask(by("B")))
	}},
	"a reader below an earlier writer, after a loss": {"fences", History{Losses: []Loss{{At: s / 4, Places: []string{"k"}}}, Faulty: true}, func(t *tale) {
		t.held(0, s/2, 128, ask(mode(Writer)))
		t.held(s/2, s, 64, ask(mode(Reader)))
	}},
	"the same fence soon after a loss": {"fences", History{Losses: []Loss{{At: 2 * ms, Places: []string{"k"}}}, Faulty: true}, func(t *tale) {
		t.held(0, ms, 64, ask())
		t.held(11*ms, s, 64, ask())
	}},
	"a permit that was passed on": {"fences", History{}, func(t *tale) {
		t.held(0, s, 65, ask(limit(2)))
	}},
	"a fence where there is none": {"fences", History{}, func(t *tale) {
		t.held(0, s, 64, ask(func(a *Ask) { a.Fenced = false }))
	}},
	"an end after Until": {"ends", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(fixed))
		t.ended(901*ms, h, 900*ms, redlatch.ErrLost)
	}},
	"a loss before Until": {"ends", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(fixed))
		t.ended(899*ms, h, 900*ms, redlatch.ErrLost)
	}},
	"trusted again": {"ends", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.checked(s/2, h, 900*ms, redlatch.ErrLost)
		t.checked(s/2, h, 900*ms, nil)
	}},
	"trusted after its end": {"ends", History{}, func(t *tale) {
		t.checked(900*ms, t.granted(0, 0, 900*ms, 64, ask()), 900*ms, nil)
	}},
	"held for longer than WithMaxHold": {"ends", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(maxHold(s/2)))
		t.checked(s/2, h, 900*ms, nil)
	}},
	"released twice": {"ends", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.unlocks(s/2, s/2, h, 0, ask(), nil)
		t.unlocks(s/2, s/2, h, 0, ask(), nil)
	}},
	"another reason for an end": {"ends", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.ended(900*ms, h, 900*ms, errAway)
	}},
	"a lock that was not renewed in time": {"lease", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.ended(900*ms, h, 900*ms, redlatch.ErrLost)
	}},
	"a lease from the reply": {"lease", History{}, func(t *tale) {
		t.held(0, 0, 64, ask(func(a *Ask) { a.TTL = s / 2 }))
		t.granted(0, 100*ms, 1100*ms, 128, ask())
	}},
	"the key is gone first": {"lease", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(fixed))
		t.add(Event{At: 900 * ms, Kind: Ended, Hold: h, Until: 900 * ms, Err: redlatch.ErrLost, Gone: true})
	}},
	"its ctx has ended": {"returns", History{}, func(t *tale) {
		t.granted(0, 0, 3*s, 64, ask(func(a *Ask) { a.TTL = 4 * s }))
		t.fails(0, s+1, s, ask(by("B")), fmt.Errorf("%w: %w", errHeld, context.DeadlineExceeded))
	}},
	"it has not returned": {"returns", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.add(Event{At: 10 * ms, Kind: Unlocking, Hold: h})
		t.called(10*ms, Never, ask(what("Unlock"), func(a *Ask) { a.Hold = h }))
		t.calm(5 * s)
	}},
	"a panic": {"errors", History{}, func(t *tale) {
		t.add(Event{At: s, Kind: Panicked, Call: t.called(0, Never, ask()), Text: "nil"})
	}},
	"an unknown error": {"errors", History{}, func(t *tale) {
		t.fails(0, 0, Never, ask(what("TryLock")), errors.New("EOF"))
	}},
	"a token": {"errors", History{Faulty: true}, func(t *tale) {
		t.fails(0, 0, Never, ask(what("TryLock")), fmt.Errorf("%w: held by 0198c0de-0000-7000-8000-000000000000", errAway))
	}},
	"the error of a ctx that has not ended": {"errors", History{Faulty: true}, func(t *tale) {
		t.fails(0, s/10, s, ask(what("TryLock")), errDeadline)
	}},
	"an outage without a fault": {"errors", History{}, func(t *tale) { t.fails(0, 0, Never, ask(what("TryLock")), errAway) }},
	"held by nobody":            {"errors", History{}, func(t *tale) { t.fails(0, 0, Never, ask(what("TryLock")), errHeld) }},
	"lost without a loss": {"errors", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.unlocks(10*ms, 10*ms, h, 0, ask(), redlatch.ErrLost)
	}},
	"a free key": {"gaps", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		wait := t.called(0, Never, ask(by("B")))
		t.unlocks(100*ms, 100*ms, h, 0, ask(), nil)
		t.grants(wait, s, 1900*ms, 128, ask(by("B")))
	}},
	"a free key, after faults": {"gaps", History{Faulty: true}, func(t *tale) {
		wait := t.called(0, Never, ask(by("B")))
		t.calm(s)
		t.grants(wait, 7*s, 7900*ms, 128, ask(by("B")))
	}},
	"out of order in a line": {"order", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.called(10*ms, Never, ask())
		next := t.called(20*ms, Never, ask())
		t.unlocks(100*ms, 100*ms, h, 0, ask(), nil)
		t.grants(next, 100*ms, s, 65, ask())
	}},
	"out of order in a line, after faults": {"order", History{Faulty: true}, func(t *tale) {
		h := t.granted(7*s, 7*s, 7900*ms, 64, ask())
		t.called(7010*ms, Never, ask())
		t.reports(7010*ms, "Waiting", redlatch.Event{Err: errHeld})
		next := t.called(7020*ms, Never, ask())
		t.unlocks(7100*ms, 7100*ms, h, 0, ask(), nil)
		t.grants(next, 7100*ms, 8*s, 65, ask())
	}},
	"out of order between lines": {"order", History{}, func(t *tale) {
		h := t.granted(0, 0, 3*s, 64, ask(func(a *Ask) { a.TTL = 4 * s }))
		t.called(10*ms, 20*s, ask(by("B")))
		next := t.called(2*s, Never, ask(by("C")))
		t.unlocks(2500*ms, 2500*ms, h, 0, ask(), nil)
		t.grants(next, 2500*ms, 3400*ms, 128, ask(by("C")))
	}},
	"not kept": {"kept", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask())
		t.unlocks(0, 0, h, s, ask(), nil)
		t.held(900*ms, s, 128, ask(by("B")))
	}},
	"a min hold that is too short": {"kept", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(minHold(s)))
		t.unlocks(s/2, s/2, h, 0, ask(), nil)
		t.held(900*ms, s, 128, ask(by("B")))
	}},
	"a reader's keep, for a writer": {"kept", History{}, func(t *tale) {
		h := t.granted(0, 0, 900*ms, 64, ask(mode(Reader)))
		t.unlocks(0, 0, h, s, ask(), nil)
		t.held(900*ms, s, 128, ask(mode(Writer), by("B")))
	}},
	"a holder that had left": {"answers", History{Start: began}, func(t *tale) {
		t.held(0, 10*ms, 64, ask())
		t.inspects(2*s, 2*s, redlatch.Status{Held: true, Token: "A/1", Owner: "A", Since: began, TTL: s, Holders: 1})
	}},
	"nobody, while somebody has it": {"answers", History{}, func(t *tale) {
		t.checked(500*ms, t.granted(0, 0, 976*ms, 64, ask()), 976*ms, nil)
		t.inspects(10*ms, 20*ms, redlatch.Status{})
	}},
	"a time since which nobody asks": {"answers", History{Start: began}, func(t *tale) {
		t.granted(s, s, 1976*ms, 64, ask())
		t.fails(s, 1100*ms, Never, ask(what("TryLock"), by("B")), &redlatch.HeldError{Owner: "A", Since: began, TTL: 900 * ms})
	}},
	"a lease that is told longer than it is": {"answers", History{Start: began}, func(t *tale) {
		t.granted(0, 0, 976*ms, 64, ask(fixed))
		t.fails(s/2, s/2, Never, ask(what("TryLock"), by("B")), &redlatch.HeldError{Owner: "A", Since: began, TTL: 900 * ms})
	}},
	"a line that does not wait": {"answers", History{}, func(t *tale) {
		t.inspects(0, 0, redlatch.Status{Waiters: 1, Queue: []redlatch.Waiter{{Owner: "C"}}})
	}},
	"two holders of a key, and another was lost": {"exclusion", elsewhere, func(t *tale) {
		t.granted(s/8, s/8, 900*ms, 64, ask())
		t.checked(900*ms, t.granted(s/2, s/2, 1300*ms, 128, ask(by("B"))), 1300*ms, nil)
		t.checked(899*ms, 1, 900*ms, nil)
	}},
	"a wait for a client that is closed": {"returns", History{Faulty: true}, func(t *tale) {
		t.granted(0, 0, 19*s, 64, ask(by("B"), func(a *Ask) { a.TTL = 20 * s }))
		t.fails(0, 18*s, 18*s, ask(func(a *Ask) { a.Closed = s }), errDeadline)
	}},
	"a client that is closed, and was not": {"errors", History{Faulty: true}, func(t *tale) {
		t.fails(0, 1, Never, ask(what("TryLock"), func(a *Ask) { a.Closed = s }), redis.ErrClosed)
	}},
	"a renewal that is told as an Extend": {"reports", History{}, func(t *tale) {
		call := t.called(0, Never, ask())
		t.reports(0, "Acquired", redlatch.Event{Fence: 64, Attempts: 1})
		h := t.grants(call, 0, 976*ms, 64, ask())
		t.reports(s/3, "Renewed", redlatch.Event{Fence: 64, Elapsed: s / 3})
		t.unlocks(s/2, s/2, h, 0, ask(), nil)
		t.reports(s/2, "Released", redlatch.Event{Fence: 64, Elapsed: s / 2})
	}},
	"another fence than the lock has": {"reports", History{}, func(t *tale) {
		call := t.called(0, Never, ask())
		t.reports(0, "Acquired", redlatch.Event{Fence: 128, Attempts: 1})
		h := t.grants(call, 0, 976*ms, 64, ask())
		t.unlocks(s/2, s/2, h, 0, ask(), nil)
		t.reports(s/2, "Released", redlatch.Event{Fence: 64, Elapsed: s / 2})
	}},
	"something is created late": {"late", History{}, func(t *tale) {
		t.held(0, 0, 64, ask())
		t.add(Event{Kind: Used, Places: []string{"k"}, Owner: "A", Text: "1s"})
	}},
	"a command that may come too late": {"late", History{}, func(t *tale) {
		t.held(0, 0, 64, ask())
		t.add(Event{Kind: Used, Places: []string{"k"}, Owner: "A", For: 101 * ms})
	}},
	"renewals that are sent often": {"costs", History{}, func(t *tale) {
		t.held(0, s/2, 64, ask())
		t.add(Event{Kind: Used, Places: []string{"k"}, Owner: "A", Sent: map[string]int{"Extends": 20}})
	}},
	"a line that polls": {"costs", History{}, func(t *tale) {
		waitsFor10s(t)
		t.add(Event{Kind: Used, Places: []string{"k"}, Owner: "A", Sent: map[string]int{"Acquires": 80}})
	}},
	"more entries than lines": {"costs", History{}, func(t *tale) {
		waitsFor10s(t)
		t.fails(0, 5*s, 5*s, ask(), fmt.Errorf("%w: %w", errHeld, context.DeadlineExceeded))
		t.add(Event{At: s, Kind: Queued, Places: []string{"k"}, Owner: "A", For: 2})
	}},
	"an entry that nobody has": {"costs", History{}, func(t *tale) {
		t.held(0, 0, 64, ask())
		t.add(Event{At: s, Kind: Queued, Places: []string{"k"}, Owner: "A", For: 1})
	}},
	"commands for nobody":     {"costs", History{}, func(t *tale) { t.add(Event{Kind: Idle, For: 1}) }},
	"a line is left":          {"left", History{}, func(t *tale) { t.left(s, "L0 k: waiting", 0) }},
	"an end that is not told": {"hooks", History{}, func(t *tale) { t.add(Event{Kind: Hooked, Owner: "A", Text: "Acquired"}) }},
	"an end that is told twice": {"hooks", History{}, func(t *tale) {
		for _, text := range []string{"Acquired", "Lost", "Released"} {
			t.add(Event{Kind: Hooked, Owner: "A", Text: text})
		}
	}},
	"a queue is left":           {"left", History{}, func(t *tale) { t.left(s, "{k}:queue:k", s) }},
	"a register without a TTL":  {"left", History{}, func(t *tale) { t.left(s, "redlatch:fence", 0) }},
	"a register after a day":    {"left", History{}, func(t *tale) { t.left(25*time.Hour, "redlatch:fence", s) }},
	"a goroutine is left":       {"left", History{}, func(t *tale) { t.left(s, "goroutine 7 [select]", 0) }},
	"a token that nobody has":   {"ghosts", History{}, func(t *tale) { ghost(t, 0) }},
	"the same, after the fault": {"ghosts", History{Faulty: true}, func(t *tale) { t.calm(0); ghost(t, 0) }},
}

// waitsFor10s is a call of A that waits while B holds the key.
func waitsFor10s(t *tale) {
	b := ask(by("B"), func(a *Ask) { a.TTL = 20 * s })
	h := t.granted(0, 0, 19*s, 64, b)
	call := t.called(0, Never, ask())
	t.unlocks(10*s, 10*s, h, 0, b, nil)
	t.grants(call, 10*s, 10900*ms, 128, ask())
}

func ghost(t *tale, at time.Duration) {
	t.held(at, at, 64, ask())
	for ; at < 12*s; at += s / 2 {
		t.seen(at, "A", "t")
	}
}

func TestGoodTalesBreakNoRule(t *testing.T) {
	for name, c := range good {
		t.Run(name, func(t *testing.T) {
			var told tale
			c.tell(&told)
			c.Events = told.events
			require.Empty(t, Check(c.History))
		})
	}
}

func TestBadTalesBreakTheirRule(t *testing.T) {
	seen := make(map[string]bool)
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			var told tale
			c.tell(&told)
			c.Events = told.events
			broken := Check(c.History)
			require.NotEmpty(t, broken)
			for _, b := range broken {
				require.Equal(t, c.rule, b.Rule, b)
			}
		})
		seen[c.rule] = true
	}
	for _, r := range rules {
		require.True(t, seen[r.name], "no tale breaks %s", r.name)
	}
}

// TestRulesQuoteTheGuarantees: what a rule quotes stands in docs/guarantees.md, or in docs/operations.md.
func TestRulesQuoteTheGuarantees(t *testing.T) {
	var text []byte
	for _, name := range []string{"guarantees.md", "operations.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		text = append(text, page...)
	}
	guarantees := strings.Join(strings.Fields(string(text)), " ")
	guarantees = strings.ReplaceAll(guarantees, " > ", " ") // the main one
	quoted := regexp.MustCompile(`(?s)"([^"]{20,})"`)
	n := 0
	files, err := filepath.Glob("[a-z]*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, comment := range file.Comments {
			for _, quote := range quoted.FindAllStringSubmatch(comment.Text(), -1) {
				sentence := strings.Join(strings.Fields(quote[1]), " ")
				require.True(t, strings.Contains(guarantees, sentence), "%s: %q", name, sentence)
				n++
			}
		}
	}
	require.GreaterOrEqual(t, n, len(rules))
}
