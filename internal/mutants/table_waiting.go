package main

// waits are mistakes about waiting without a queue.
var waits = []mutant{
	{
		name: "a pause that ignores the holder's lease", rule: "15", file: "wait.go",
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
		name: "an error of the first attempt is retried", rule: "16", file: "engine.go",
		old:   `case !errors.Is(err, ErrNotAcquired):`,
		new:   `case false:`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "trouble before the end of ctx is forgotten", rule: "16", file: "engine.go",
		old:   `case endedBy(ctx, err):`,
		new:   `case ctx.Err() != nil:`,
		tests: "TestTroubleIsNotForgottenWhileItIsUndone",
	},
	{
		name: "one node's data ends a wait for the others", rule: "18", file: "errors.go",
		old:   `errors.Is(err, node.ErrOtherData) ||`,
		new:   `errors.Is(err, node.ErrOtherData) || strings.Contains(err.Error(), "WRONGTYPE") ||`,
		tests: "TestOneNodesDataEndsNoWait",
	},
	{
		name: "trouble ends polling", rule: "16", file: "wait.go",
		old:   `e.reportTrouble(r, err)`,
		new:   `return nil, err`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "trouble ends a place in the queue", rule: "16", file: "queue.go",
		old: `e.reportTrouble(r, err)
			e.waitlist.OnError`,
		new: `return nil, err
			e.waitlist.OnError`,
		tests: "TestWaitReportsItsTrouble",
	},
	{
		name: "the error of polling does not report the trouble", rule: "16", file: "wait.go",
		old: `r.last, refusal = err, g`,
		new: `if refusal = g; errors.Is(err, ErrNotAcquired) {
			r.last = err
		}`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "the error of a queued wait does not report the trouble", rule: "16", file: "queue.go",
		old: `r.last = e.waitlist.Last(w)`,
		new: `if last := e.waitlist.Last(w); errors.Is(last, ErrNotAcquired) {
			r.last = last
		}`,
		tests: "TestWaitReportsItsTrouble",
	},
	{
		name: "ctx not honoured in mid-command", rule: "17", file: "internal/node/node.go",
		old: `case <-ctx.Done():
		return c.leave(`,
		new: `case <-ctx.Done():
		<-done
		return c.leave(`,
		tests: "TestCtxEndsACallInMidCommand/client",
	},
	{
		name: "ctx not honoured between attempts", rule: "17", file: "wait.go",
		old: `case <-ctx.Done():
		return false
`,
		new:   ``,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "a waiter that gave up is remembered", rule: "17", file: "internal/handoff/turns.go", in: "internal/handoff",
		old:   `defer t.leave(key, mine)`,
		new:   ``,
		tests: "TestTurnsAreForgotten",
	},
	{
		name: "a hidden number of tries", rule: "18", file: "wait.go",
		old: `r.last, refusal = err, g`,
		new: `if r.last, refusal = err, g; r.attempts == 64 {
			return nil, err
		}`,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "trouble taken for a refusal", rule: "16", file: "engine.go",
		old: `return nil, e.gaveUp(ctx, r, asked, err)`,
		new: `_ = asked
		return nil, &gaveUp{node.CtxError(ctx), r.last}`,
		tests: "TestTroubleIsNoRefusal",
	},
	{
		name: "trouble taken for a refusal in the queue", rule: "16", file: "queue.go",
		old:   `return nil, e.gaveUp(ctx, r, asked, err)`,
		new:   `return nil, &gaveUp{node.CtxError(ctx), r.last}`,
		tests: "TestTroubleIsNoRefusal",
	},
	{
		name: "a dead quorum is forgotten while its attempt is released", rule: "16", file: "engine.go",
		old:   `errors.Is(err, end) || errors.Is(err, ErrNotAcquired)`,
		new:   `true`,
		tests: "TestDeadQuorumIsTrouble",
	},
}
