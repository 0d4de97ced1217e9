package lease

import (
	"strings"
	"testing"
	"time"
)

// A mistake is planted outside of the core: it changes what the core knows before or after an event.
type mistake struct {
	name   string
	finds  string
	world  string
	before func(event string, w *world)
	after  func(event string, w *world)
}

func is(event string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(event, p) {
			return true
		}
	}
	return false
}

var mistakes = []mistake{
	{name: "the lease counts from the reply", finds: "more is left than Redis keeps", world: "a lock", after: func(event string, w *world) {
		if event == "done" && w.why == None {
			w.start = w.now()
		}
	}},
	{name: "an answer that comes too late counts", finds: "the end is not final", world: "a lock", before: func(event string, w *world) {
		if event == "done" && w.why != Unlocked && w.phase == lost {
			w.phase, w.why, w.start = held, None, w.now()
		}
	}},
	{name: "only the monotonic clock is read", finds: "more is left than Redis keeps", world: "a fixed lease", before: func(_ string, w *world) {
		w.start.Wall = w.now().Wall - w.now().Mono.Sub(w.start.Mono)
	}},
	{name: "the maximum hold is forgotten", finds: "an extension passes the maximum hold", world: "a maximum hold", before: func(_ string, w *world) {
		w.MaxHold = 0
	}},
	{name: "a lease grows beyond the maximum hold", finds: "more is left than Redis keeps", world: "a maximum hold", after: func(event string, w *world) {
		if event == "done" && w.why == None {
			w.length = w.TTL
		}
	}},
	{name: "a second renewal starts", finds: "two renewals are under way", world: "a lock", before: func(event string, w *world) {
		if event == "tick" {
			w.flight, w.renewAt = Nothing, 0
		}
	}, after: func(event string, w *world) {
		if event == "send" {
			w.due = w.mono + 1
		}
	}},
	{name: "a renewal that failed is not repeated", finds: "it is lost though nothing has failed", world: "a lock", after: func(event string, w *world) {
		if event == "fail" {
			w.renewAt, w.due = time.Hour, time.Hour
		}
	}},
	{name: "a long lease is not renewed", finds: "a deleted key is not noticed", world: "a lock", after: func(event string, w *world) {
		if event == "done" && w.length > w.TTL {
			w.renewAt, w.due = time.Hour, time.Hour
		}
	}},
	{name: "a check is forgotten", finds: "a check is missing", world: "a fixed lease", before: func(event string, w *world) {
		if event == "tick" {
			w.renewed, w.checked = w.now(), false
			w.flight = Check
		}
	}},
	{name: "a released lock is renewed", finds: "what has no handle is renewed", world: "a lock", before: func(event string, w *world) {
		if event == "tick" && w.phase == released {
			w.phase, w.renewAt = held, 0
		}
	}},
	{name: "the lock is passed on though others know the token", finds: "Unlock answers pass, not give", world: "a lock", after: func(event string, w *world) {
		if event == "share" {
			w.stage = young
		}
	}},
	{name: "the lock is passed on after Extend", finds: "Unlock answers pass, not give", world: "a lock", after: func(event string, w *world) {
		if is(event, "extend") {
			w.stage = young
		}
	}},
	{name: "the lock is passed on with a renewal under way", finds: "Unlock answers pass, not give", world: "a lock", after: func(event string, w *world) {
		if event == "tick" {
			w.stage = young
		}
	}},
	{name: "two calls of Unlock release", finds: "Unlock answers give, not refuse", world: "a minimum hold", before: func(event string, w *world) {
		if is(event, "unlock") && w.phase == released {
			w.phase, w.why = held, None
		}
	}},
	{name: "the key of a lost lock is released though others know the token", finds: "Unlock answers clear, not leave", world: "a lock", before: func(event string, w *world) {
		if is(event, "unlock") && w.phase == lost {
			w.stage = settled
		}
	}},
	{name: "an old handle unlocks", finds: "Unlock answers", world: "a lock", before: func(event string, w *world) {
		if event == "unlock the handle before" {
			w.handle = 0
		}
	}},
	{name: "a lease ends between two handles", finds: "it is lost though nothing has failed", world: "a lock", before: func(event string, w *world) {
		if event == "tick" && w.phase == passing {
			w.phase, w.why = lost, Late
		}
	}},
	{name: "Unlock changes the reason", finds: "the end is not final", world: "a lock", after: func(event string, w *world) {
		if is(event, "unlock") && w.phase == cleared {
			w.why = Unlocked
		}
	}},
	{name: "a lost lock goes on", finds: "a lost lock goes on", world: "a lock", before: func(event string, w *world) {
		if event == "end" {
			w.handle++
		}
	}, after: func(event string, w *world) {
		if event == "end" {
			w.handle--
		}
	}},
	{name: "others are let in before the minimum hold", finds: "others are let in too early", world: "a minimum hold", before: func(event string, w *world) {
		if is(event, "unlock") {
			w.replied = at(-time.Second)
		}
	}},
	{name: "a released lock is restored", finds: "a lock that is not held may be restored", world: "a lock", before: func(event string, w *world) {
		if event == "send" && w.why == Unlocked {
			w.why = None
		}
	}, after: func(event string, w *world) {
		if event == "send" && w.phase == released {
			w.why = Unlocked
		}
	}},
	{name: "a claim is not extended", finds: "it is lost though nothing has failed", world: "a claim", after: func(event string, w *world) {
		if event == "begin" {
			w.renewAt, w.due = w.TTL, w.length.Truncate(grid)+grid
		}
	}},
}

func TestMistakesAreFound(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			x := &explorer{mistake: m}
			f := x.walk().Explore(start(m.world, 2))
			if !strings.HasPrefix(f.Wrong, m.finds) {
				t.Errorf("found %q, not %q", f.Wrong, m.finds)
			}
			t.Logf("%v\n%s", f, f.History)
		})
	}
}
