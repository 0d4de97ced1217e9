package main

// waits are mistakes about waiting where nothing is handed on.
var waits = []mutant{
	{
		name: "a pause that does not heed the holder's lease", rule: "15", file: "wait.go",
		old:   `d = min(d, held+time.Millisecond)`,
		new:   `d = max(d, time.Millisecond)`,
		tests: "TestPauseEndsWithTheHoldersLease",
	},
	{
		name: "a refusal that does not tell the holder's lease", rule: "15", file: "operations.go",
		old:   `a.left = max(milliseconds(left), time.Millisecond)`,
		new:   `a.left = 0`,
		tests: "TestCrashedHolderCostsItsTTL",
	},
	{
		name: "trouble at the first attempt is waited out", rule: "16", file: "engine.go",
		old:   `case !errors.Is(err, ErrNotAcquired):`,
		new:   `case false:`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "trouble that ctx outlasted is forgotten", rule: "16", file: "engine.go",
		old:   `case endedBy(ctx, err) && !errors.As(err, new(*node.CutShort)):`,
		new:   `case ctx.Err() != nil && !errors.As(err, new(*node.CutShort)):`,
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
		old: `trouble = err`,
		new: `if trouble = err; !errors.Is(err, ErrNotAcquired) {
			return nil, err
		}`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "trouble ends a place in the queue", rule: "16", file: "queue.go",
		old: `trouble = err
			e.waitlist.onError`,
		new: `return nil, err
			e.waitlist.onError`,
		tests: "TestWaitTellsWhatTroubledIt",
	},
	{
		name: "polling does not tell what troubled it", rule: "16", file: "wait.go",
		old:   `trouble = err`,
		new:   `_ = err`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "a place in the queue does not tell what troubled it", rule: "16", file: "queue.go",
		old: `trouble = err
			e.waitlist.onError`,
		new: `_ = err
			e.waitlist.onError`,
		tests: "TestWaitTellsWhatTroubledIt",
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
		name: "a waiter that gave up is remembered", rule: "17", file: "wait.go",
		old:   `t.leave(key, mine)` + "\n\t\treturn false",
		new:   `return false`,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "a hidden number of tries", rule: "18", file: "wait.go",
		old: `trouble = nil`,
		new: `if trouble = nil; r.attempts == 64 {
				return nil, err
			}`,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "trouble taken for a refusal", rule: "16", file: "engine.go",
		old:   `case endedBy(ctx, err) && !errors.As(err, new(*node.CutShort)):`,
		new:   `case endedBy(ctx, err):`,
		tests: "TestTroubleIsNoRefusal",
	},
	{
		name: "trouble taken for a refusal in the queue", rule: "16", file: "queue.go",
		old:   `case first && errors.As(err, new(*node.CutShort)):`,
		new:   `case first && errors.As(err, new(*gaveUp)):`,
		tests: "TestTroubleIsNoRefusal",
	},
	{
		name: "a dead quorum is forgotten while it is given back", rule: "16", file: "engine.go",
		old:   `errors.Is(err, end) || errors.Is(err, ErrNotAcquired)`,
		new:   `true`,
		tests: "TestDeadQuorumIsTrouble",
	},
}
