package main

// handles are mistakes about the handles that a turn ends and begins.
var handles = []mutant{
	{
		name: "a pass does not end the handle before", rule: "11, 18", file: "turn.go",
		old: `	l.handle++
`,
		new:   ``,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "a handle that was passed on unlocks the next one", rule: "7, 11", file: "unlock.go",
		old:   `if l.unlocked || handle != l.handle {`,
		new:   `if l.unlocked {`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "a handle that was passed on is trusted", rule: "11", file: "lease.go",
		old: `if handle != l.handle {
		return ErrReleased`,
		new: `if false {
		return ErrReleased`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "a handle that was passed on extends the lock", rule: "11", file: "renewal.go",
		old:   `if handle != l.handle {`,
		new:   `if false {`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "a handle that was passed on shows the token", rule: "11, 18", file: "lease.go",
		old: `if handle != l.handle {
		id :=`,
		new: `if false {
		id :=`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "all handles that were passed on have one token", rule: "11", file: "lease.go",
		old:   `[]byte(strconv.Itoa(handle)+l.params.token)`,
		new:   `[]byte(strconv.Itoa(0)+l.params.token)`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "Done of a handle that was passed on is that of the next one", rule: "11", file: "lease.go",
		old:   `if handle != l.handle || l.err != nil {`,
		new:   `if l.err != nil {`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "Context of a handle that was passed on is that of the next one", rule: "11", file: "lease.go",
		old: `case handle != l.handle:
		cancel(ErrReleased)`,
		new: `case false:
		cancel(ErrReleased)`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "Done and Context outlive the handle that gave them out", rule: "11", file: "unlock.go",
		old: `	l.endHandleLocked(ErrReleased)
	return true`,
		new:   `	return true`,
		tests: "TestPassedHandleHasEnded",
	},
	{
		name: "the other side of a migration ends the handle of another caller", rule: "11, Migration", file: "lease.go",
		old:   `if handle == l.handle && l.err == nil {`,
		new:   `if l.err == nil {`,
		tests: "TestMigrationEndsOnlyItsOwnHandle",
	},
	{
		name: "a pass is no event", rule: "34", file: "unlock.go",
		old:   `l.fire(hooks.Released, Event{Elapsed: now.Since(since), Fence: fence})`,
		new:   `_, _, _ = hooks, since, fence`,
		tests: "TestHooksRunOnceForEachHandle",
	},
	{
		name: "the end of a handle reports the time of its turn", rule: "34", file: "turn.go",
		old:   `l.since, l.hooks = now, &next.Of.cfg.hooks`,
		new:   `l.hooks = &next.Of.cfg.hooks`,
		tests: "TestHooksRunOnceForEachHandle",
	},
	{
		name: "a handle has the hooks of another caller", rule: "34", file: "turn.go",
		old:   `l.since, l.hooks = now, &next.Of.cfg.hooks`,
		new:   `l.since = now`,
		tests: "TestPassedHandleHasItsCallersHooks",
	},
	{
		name: "a caller that was served keeps its lock alive", rule: "13", file: "engine.go",
		old: `	r.lock = nil
`,
		new:   ``,
		tests: "TestDroppedLockOfALineIsNotRenewed",
	},
	{
		name: "all handles of a lease have one fence", rule: "18, Fencing", file: "turn.go",
		old: `		l.fence++
`,
		new: `		_ = l.fence
`,
		tests: "TestTurnServesWhoeverStoodInLine",
	},
	{
		name: "the hook of a grant to Lock shows the token", rule: "35", file: "engine.go",
		old:   `hook(r.event(e, ownerOf(lock.lease.params.token), lock.fence))`,
		new:   `hook(r.event(e, lock.lease.params.token, lock.fence))`,
		tests: "TestPassedHandleHasItsCallersHooks",
	},
}
