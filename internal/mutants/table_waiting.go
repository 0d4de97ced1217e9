package main

// waits are mistakes about waiting without a queue.
var waits = []mutant{
	{
		name: "a pause that ignores the holder's lease", rule: "15", file: "ask.go",
		old:   `d = min(d, held+time.Millisecond)`,
		new:   `d = max(d, time.Millisecond)`,
		tests: "TestPauseEndsWithTheHoldersLease",
	},
	{
		name: "a refusal does not report the holder's lease", rule: "15", file: "operations.go",
		old:   `a.Left = max(clock.Milliseconds(left), time.Millisecond)`,
		new:   `a.Left = 0`,
		tests: "TestCrashedHolderCostsItsTTL",
	},
	{
		name: "an error of the first attempt is retried", rule: "16", file: "ask.go",
		old:   `permanent(err) || !r.refused && r.joined < w.asked {`,
		new:   `permanent(err) {`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "one node's data ends a wait for the others", rule: "18", file: "errors.go",
		old:   `errors.Is(err, node.ErrOtherData) ||`,
		new:   `errors.Is(err, node.ErrOtherData) || strings.Contains(err.Error(), "WRONGTYPE") ||`,
		tests: "TestNodesWithOtherDataEndNoWait",
	},
	{
		name: "trouble ends a wait", rule: "16", file: "ask.go",
		old:   `!r.refused && r.joined < w.asked {`,
		new:   `r.joined < w.asked {`,
		tests: "TestPollingRidesTroubleOut|TestWaitReportsItsTrouble",
	},
	{
		name: "the error of a wait does not report the trouble", rule: "16", file: "ask.go",
		old: `failedLocked(err error) (report func()) {
	w.last = err
`,
		new: `failedLocked(err error) (report func()) {
`,
		tests: "TestPollingRidesTroubleOut|TestWaitReportsItsTrouble",
	},
	{
		name: "ctx not honored in mid-command", rule: "17", file: "internal/node/node.go",
		old: `case <-ctx.Done():
		return c.cutShort(`,
		new: `case <-ctx.Done():
		<-done
		return c.cutShort(`,
		tests: "TestCtxEndsACallInMidCommand/client",
	},
	{
		name: "the end of ctx is honored late", rule: "17", file: "wait.go",
		old: `case <-ctx.Done():
			waiting = false`,
		new: `case <-ctx.Done():
			time.Sleep(5 * time.Second)
			waiting = false`,
		tests: "TestWhoeverLeavesDuringSilence",
	},
	{
		name: "a line that everybody has left is remembered", rule: "17", file: "wait.go",
		old:   `delete(l.byKey, w.r.place.key)`,
		new:   `_ = l.byKey`,
		tests: "TestTurnServesWhoeverStoodInLine",
	},
	{
		name: "a hidden number of tries", rule: "18", file: "ask.go",
		old: `told := w.refusedLocked(err, w.asked)`,
		new: `told := w.refusedLocked(err, w.asked)
		if p := w.Head(); w.asked == 64 && p != nil {
			w.Leave(p)
			p.Of.serveLocked(w, nil, err)
		}`,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "trouble taken for a refusal", rule: "16", file: "ask.go",
		old:   `w.next, w.last = time.Time{}, w.reasonLocked(asked, err)`,
		new:   `w.next = time.Time{}`,
		tests: "TestTroubleIsNoRefusal|TestLastAttemptDecidesTheError",
	},
	{
		name: "silence of the attempt under way taken for the refusal before it", rule: "16, 33", file: "wait.go",
		old:   `last == nil || slow && errors.Is`,
		new:   `last == nil || false && slow && errors.Is`,
		tests: "TestWhoeverLeavesDuringSilence",
	},
	{
		name: "a caller asks although its process holds the key", rule: "Lines", file: "wait.go",
		old:   ` && w.lease == nil && (`,
		new:   ` && (`,
		tests: "TestHolderInThisProcessIsARefusal",
	},
	{
		name: "a holder in this process is no refusal", rule: "33", file: "wait.go",
		old: `w.last = &HeldError{Owner: w.r.cfg.owner, err: ErrNotAcquired}
`,
		new:   ``,
		tests: "TestGrantShowsTheHolderToThoseInLine",
	},
	{
		name: "a caller that waits for its own process gets an error", rule: "16", file: "wait.go",
		old:   `r.refused, r.told = true, true`,
		new:   `r.told = true`,
		tests: "TestHolderInThisProcessIsARefusal",
	},
	{
		name: "a holder in this process is not named", rule: "35", file: "wait.go",
		old:   `return w, w.lease.refusal, false`,
		new:   `return w, func() error { return nil }, false`,
		tests: "TestHolderInThisProcessIsARefusal",
	},
	{
		name: "whoever joins a line that was refused is not told", rule: "34", file: "wait.go",
		old: `case errors.Is(last, ErrNotAcquired):
		r.told = true`,
		new:   `case errors.Is(last, ErrNotAcquired):`,
		tests: "TestWhoeverJoinsLaterIsToldOnce",
	},
	{
		name: "a caller gets the error of an attempt that began before it joined", rule: "16", file: "ask.go",
		old:   `!r.refused && r.joined < w.asked {`,
		new:   `!r.refused {`,
		tests: "TestErrorOfTheFirstAttemptAfterJoining",
	},
	{
		name: "a refusal before a caller joined has it ride out an error", rule: "16", file: "ask.go",
		old:   `r.refused = r.refused || r.joined < attempt`,
		new:   `r.refused = true`,
		tests: "TestErrorOfTheFirstAttemptAfterJoining",
	},
	{
		name: "a caller gets the error of another caller's ctx", rule: "16", file: "ask.go",
		old:   `ended := ctx.Err() != nil && !errors.Is(err, ErrNotAcquired)`,
		new:   `ended := false`,
		tests: "TestEndOfAnothersCtxIsNobodysError",
	},
	{
		name: "a line that is empty keeps its subscription", rule: "17", file: "wait.go",
		old: `		w.engine.channel.Leave()
`,
		new:   ``,
		tests: "TestHourOfWaiting",
	},
	{
		name: "a function of WithBackoff runs under a mutex", rule: "WithBackoff", file: "ask.go",
		old: `d := w.r.cfg.pause(attempt, held)
	returned`,
		new: `w.engine.lines.mu.Lock()
	d := w.r.cfg.pause(attempt, held)
	w.engine.lines.mu.Unlock()
	returned`,
		tests: "TestBackoffRunsUnderNoMutex",
	},
	{
		name: "a panic of WithBackoff leaves the line asking", rule: "18", file: "ask.go",
		old:   `if !returned {`,
		new:   `if false && !returned {`,
		tests: "TestPanicOfBackoffEndsNoLine",
	},
	{
		name: "a line asks for the caller that is about to leave", rule: "17, 21", file: "ask.go",
		old:   `leaves := ended && w.cancel == nil && w.Len() == 1`,
		new:   `leaves := false`,
		tests: "TestCtxThatEndsAnAcquireOfItsLine",
	},
	{
		name: "a line waits because one caller leaves", rule: "17", file: "ask.go",
		old:   `leaves := ended && w.cancel == nil && w.Len() == 1`,
		new:   `leaves := ended && w.cancel == nil`,
		tests: "TestCtxThatEndsAnAcquireOfItsLine",
	},
}
