package main

// lates are mistakes about acquires that run after their attempt has ended.
var lates = []mutant{
	{
		name: "a late entry of a held lock stays in the queue", rule: "26", file: "strategy.go",
		old:   `case held, kept:`,
		new:   `case kept:`,
		tests: "TestLateAcquireLeavesWhoeverHasItsToken/held",
	},
	{
		name: "the late entry of a held lock takes the lock with it", rule: "4", file: "operations.go",
		old:   `p.state.is(held) || p.state`,
		new:   `p.state`,
		tests: "TestLateAcquireLeavesWhoeverHasItsToken/held",
	},
	{
		name: "a late acquire that its release overtook stays", rule: "4", file: "strategy.go",
		old:   `return overtaken`,
		new:   `return false`,
		tests: "TestLateAcquireIsReleased",
	},
	{
		name: "a late acquire that its release follows is released twice", rule: "4", file: "strategy.go",
		old:   `return overtaken`,
		new:   `return true`,
		tests: "TestLateAcquireIsReleased",
	},
	{
		name: "an acquire that may still run is not looked for", rule: "4", file: "strategy.go",
		old:   `if node.MayStillRun(err) {`,
		new:   `if false {`,
		tests: "TestAcquireThatRunsLastIsReleased",
	},
	{
		name: "a lock that is held is released like a late acquire", rule: "4", file: "strategy.go",
		old:   `if s.settled() {`,
		new:   `if s.settled() || s.is(held) {`,
		tests: "TestLateAcquireIsLeftToUnlock",
	},
	{
		name: "a late acquire is released before Unlock has released it", rule: "7", file: "strategy.go",
		old:   `if s.settled() {`,
		new:   `if s.settled() || s.is(releasing) {`,
		tests: "TestLateAcquireIsNotReleasedBeforeUnlock",
	},
	{
		name: "an adopter's lock is released like a late acquire", rule: "4", file: "strategy.go",
		old:   `if s.settled() {`,
		new:   `if s.settled() || s.is(lost) {`,
		tests: "TestAdoptedLock",
	},
	{
		name: "a late acquire is looked for once", rule: "4", file: "strategy.go",
		old:   `case pause < lastLook:`,
		new:   `case false:`,
		tests: "TestLateAcquireIsLeftToUnlock",
	},
	{
		name: "a late acquire is not looked for while the server is silent", rule: "4", file: "strategy.go",
		old:   `case n.Silent() && time.Now().Before(end):`,
		new:   `case false && time.Now().Before(end):`,
		tests: "TestLateAcquireIsLookedForWhileTheServerIsSilent",
	},
	{
		name: "a late acquire is looked for without an end", rule: "24", file: "strategy.go",
		old:   `case n.Silent() && time.Now().Before(end):`,
		new:   `case n.Silent() && !end.IsZero():`,
		tests: "TestLateAcquireIsLookedForWhileTheServerIsSilent",
	},
}
