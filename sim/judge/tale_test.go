package judge

import (
	"time"

	"github.com/redlatch/redlatch"
)

const s, ms = time.Second, time.Millisecond

// ask is what A asks for: a lock on k, with a TTL of a second.
func ask(change ...func(*Ask)) Ask {
	a := Ask{
		What: "Lock", Places: []string{"k"}, Owner: "A", Line: "A", Mode: Alone, Limit: 1,
		TTL: s, Timeout: 100 * ms, Poll: 100 * ms, Queues: true, Fenced: true,
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

func by(owner string) func(*Ask)         { return func(a *Ask) { a.Owner, a.Line = owner, owner } }
func what(call string) func(*Ask)        { return func(a *Ask) { a.What = call } }
func mode(m Mode) func(*Ask)             { return func(a *Ask) { a.Mode = m } }
func limit(n int) func(*Ask)             { return func(a *Ask) { a.Mode, a.Limit = Permit, n } }
func maxHold(d time.Duration) func(*Ask) { return func(a *Ask) { a.MaxHold = d } }
func minHold(d time.Duration) func(*Ask) { return func(a *Ask) { a.MinHold = d } }
func fixed(a *Ask)                       { a.Fixed = true }

// A tale is a list of events in the making.
type tale struct {
	events []Event
	calls  int
	holds  int
}

func (t *tale) add(e Event) { t.events = append(t.events, e) }

// called begins a call whose ctx ends at a time.
func (t *tale) called(at, ends time.Duration, a Ask) int {
	t.calls++
	t.add(Event{At: at, Kind: Called, Call: t.calls, Ask: &a, Ends: ends})
	return t.calls
}

func (t *tale) returned(at time.Duration, call int, err error) {
	t.add(Event{At: at, Kind: Returned, Call: call, Err: err})
}

// fails is a call that returns an error.
func (t *tale) fails(from, to, ends time.Duration, a Ask, err error) {
	t.returned(to, t.called(from, ends, a), err)
}

// granted is a call that is granted a lock, which lasts until a time.
func (t *tale) granted(from, at, until time.Duration, fence uint64, a Ask) (hold int) {
	return t.grants(t.called(from, Never, a), at, until, fence, a)
}

func (t *tale) grants(call int, at, until time.Duration, fence uint64, a Ask) (hold int) {
	t.holds++
	t.add(Event{At: at, Kind: Granted, Call: call, Hold: t.holds, Places: a.Places, Fence: fence, Until: until})
	t.returned(at, call, nil)
	return t.holds
}

func (t *tale) checked(at time.Duration, hold int, until time.Duration, err error) {
	t.add(Event{At: at, Kind: Checked, Hold: hold, Until: until, Err: err})
}

func (t *tale) ended(at time.Duration, hold int, until time.Duration, err error) {
	t.add(Event{At: at, Kind: Ended, Hold: hold, Until: until, Err: err})
}

// unlocks gives a lock back, and keeps others out for a time.
func (t *tale) unlocks(from, to time.Duration, hold int, keep time.Duration, a Ask, err error) {
	a.What, a.Hold = "Unlock", hold
	t.add(Event{At: from, Kind: Unlocking, Hold: hold, For: keep})
	t.returned(to, t.called(from, Never, a), err)
}

// held is a lock from its call to the return of its Unlock.
func (t *tale) held(from, to time.Duration, fence uint64, a Ask) {
	hold := t.granted(from, from, from+a.TTL-drift(a.TTL), fence, a)
	t.unlocks(to, to, hold, 0, a, nil)
}

// runs is a call that runs a function under a lock.
func (t *tale) runs(at time.Duration, a Ask) (call, hold int) {
	call = t.called(at, Never, a)
	t.add(Event{At: at, Kind: Runs, Call: call})
	t.holds++
	t.add(Event{At: at, Kind: Granted, Call: call, Hold: t.holds, Places: a.Places, Fence: 64, Until: at + 900*ms})
	return call, t.holds
}

func (t *tale) runEnds(at time.Duration, call, hold int, how string, err error) {
	t.add(Event{At: at, Kind: Unlocking, Hold: hold})
	t.add(Event{At: at, Kind: RunEnds, Call: call, Text: how, Err: err})
}

func (t *tale) ctxEnded(at time.Duration, hold int, cause error) {
	t.add(Event{At: at, Kind: CtxEnded, Hold: hold, Err: cause})
}

// reports is a hook of A that is called.
func (t *tale) reports(at time.Duration, hook string, r redlatch.Event) {
	r.Key, r.Owner = "k", "A"
	t.add(Event{At: at, Kind: Hooked, Owner: "A", Text: hook, Places: []string{"k"}, Report: &r})
}

// inspects is a call of Inspect by B, with its answer.
func (t *tale) inspects(from, to time.Duration, s redlatch.Status) {
	call := t.called(from, Never, ask(what("Inspect"), by("B")))
	t.add(Event{At: to, Kind: Answered, Call: call, Status: &s})
	t.returned(to, call, nil)
}

func (t *tale) calm(at time.Duration) { t.add(Event{At: at, Kind: Calm}) }

func (t *tale) seen(at time.Duration, owner, token string) {
	t.add(Event{At: at, Kind: Seen, Places: []string{"k"}, Owner: owner, Text: token})
}

func (t *tale) left(at time.Duration, key string, ttl time.Duration) {
	t.add(Event{At: at, Kind: Left, Text: key, For: ttl})
}
