package main

// turns are mistakes about the line of the callers of one process, and about the turns that serve it.
var turns = []mutant{
	{
		name: "a turn serves those who came later", rule: "18", file: "internal/line/line.go",
		old:   `p == nil || p.number > t.last || `,
		new:   `p == nil || `,
		tests: "TestWhoeverComesLaterWaitsForTheNextTurn",
	},
	{
		name: "a turn serves a caller again who comes back", rule: "18", file: "internal/line/line.go",
		old: `p.in, p.number, p.before, p.after = true, l.arrivals, l.tail, nil`,
		new: `if p.number == 0 {
		p.number = l.arrivals
	}
	p.in, p.before, p.after = true, l.tail, nil`,
		tests: "TestServedCallerWaitsForTheNextTurn",
	},
	{
		name: "a turn serves without a limit", rule: "18", file: "internal/line/line.go",
		old: `t.left--
`,
		new:   ``,
		tests: "TestTurnServesAtMostItsPassesAndOne",
	},
	{
		name: "a turn serves the newest caller first", rule: "18", file: "internal/line/line.go",
		old: `p := l.head
`,
		new: `p := l.tail
`,
		tests: "TestLineAgreesWithItsModelInEveryShortSequence",
	},
	{
		name: "the last of a line leaves and takes its end along", rule: "18", file: "internal/line/line.go",
		old:   `l.tail = p.before`,
		new:   `l.tail = nil`,
		tests: "TestLineAgreesWithItsModelInRandomSequences",
	},
	{
		name: "a caller that was served leaves the line again", rule: "17", file: "internal/line/line.go",
		old:   `if !p.in {`,
		new:   `if p.number == 0 {`,
		tests: "TestWhoeverWasServedCannotLeave",
	},
	{
		name: "a place that was served keeps the next one in memory", rule: "17", file: "internal/line/line.go",
		old:   `p.in, p.before, p.after = false, nil, nil`,
		new:   `p.in = false`,
		tests: "TestPlaceThatWasServedHoldsNoOther",
	},
	{
		name: "a loop ends at a place that it removes", rule: "18", file: "internal/line/line.go",
		old: `after := p.after
			if !yield(p) {
				return
			}
			p = after`,
		new: `if !yield(p) {
				return
			}
			p = p.after`,
		tests: "TestLoopMayRemoveWhatItIsGiven",
	},
	{
		name: "a semaphore asks at once for a key that it leaves to others", rule: "32", file: "wait.go",
		old:   `== nil && l.resting[r.place.key].IsZero()`,
		new:   `== nil`,
		tests: "TestSemaphoreLeavesAKeyToOthers",
	},
	{
		name: "a newcomer overtakes the line of its process", rule: "45", file: "wait.go",
		old:   `return l.byKey[r.place.key] == nil && l`,
		new:   `return l`,
		tests: "TestNewcomerDoesNotOvertakeItsLine",
	},
	{
		name: "a line waits for a channel that it will not get", rule: "28", file: "entry.go",
		old:   `!state.Ready && !state.Polls {`,
		new:   `!state.Ready {`,
		tests: "TestRefusedSemaphorePollsSoon",
	},
	{
		name: "a panic of WithBackoff forgets that the token may be in Redis", rule: "3", file: "ask.go",
		old: `	l.mu.Unlock()
	next := w.nextAsk(asked, got, err)
	l.mu.Lock()
`,
		new: `	before := w.attempt != nil && w.attempt.sent
	if before {
		w.attempt.sent = false
	}
	l.mu.Unlock()
	next := w.nextAsk(asked, got, err)
	l.mu.Lock()
	if before {
		w.attempt.sent = true
	}
`,
		tests: "TestPanicOfBackoffLeavesNoKey",
	},
	{
		name: "a slow hook makes a lease longer", rule: "9", file: "turn.go",
		old:   `now = w.engine.now() // a hook`,
		new:   `_ = now // a hook`,
		tests: "TestSlowHookMakesNoLeaseLonger",
	},
	{
		name: "a lock for nobody waits for the release that queued it", rule: "26", file: "turn.go",
		old: `	} else { // everybody has left
		undo = w.giveUpLocked()
	}
	w.quietLocked()
	w.settleLocked()`,
		new: `	}
	w.quietLocked()
	undo = w.settleLocked()`,
		tests: "TestLockForNobodyIsGivenBackDuringARelease",
	},
	{
		name: "a renewal in flight counts for the release", rule: "34", file: "unlock.go",
		old: `	l.running.Wait()
`,
		new: `	l.running.Wait()
	replied = l.engine.now()
`,
		tests: "TestReleaseIsTimedWithoutARenewal",
	},
}
