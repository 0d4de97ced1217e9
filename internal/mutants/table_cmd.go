package main

// commands are mistakes of the command redlatch.
var commands = []mutant{
	{
		name: "a group that ignores SIGTERM lives on without its lock", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `w.command.signal(syscall.SIGKILL)`,
		new:   ``,
		tests: "TestGroupIsKilledAfterTheGrace",
	},
	{
		name: "a signal goes to the command and not to its group", rule: "41, 42", file: "cmd/redlatch/command.go",
		old:   `syscall.Kill(-c.group, s)`,
		new:   `syscall.Kill(c.group, s)`,
		tests: "TestSignalsReachTheWholeGroup",
	},
	{
		name: "the end of the command ends the grace of its children", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `if !w.ending || killed || w.command.empty() {`,
		new:   `if killed || true {`,
		tests: "TestGroupIsKilledAfterTheGrace",
	},
	{
		name: "zombies keep a run", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `if !w.ending || killed || w.command.empty() {`,
		new:   `if !w.ending || killed && false || w.command.empty() {`,
		tests: "TestLossEndsARunBesideZombies",
	},
	{
		name: "orphans of the command stay zombies", rule: "42", file: "cmd/redlatch/command.go",
		old:   `syscall.Wait4(-1,`,
		new:   `syscall.Wait4(c.group,`,
		tests: "TestOrphansAreReaped",
	},
	{
		name: "a run forgets its longest hold", rule: "42", file: "cmd/redlatch/run.go",
		old:   `opts = append(opts, redlatch.WithMaxHold(f.maxHold))`,
		new:   ``,
		tests: "TestMaxHoldEndsAJobThatHangs",
	},
	{
		name: "a command is killed without a grace", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `return time.After(grace)`,
		new:   `return time.After(0)`,
		tests: "TestCommandHasItsGrace",
	},
	{
		name: "the grace begins when the lock has ended", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `switch left := w.left() - w.grace; {`,
		new:   `switch left := w.left() + time.Second; {`,
		tests: "TestOutageEndsTheCommandBeforeRedisGivesTheKeyAway",
	},
	{
		name: "a renewal does not put off the end of the command", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `case left > 0: // it was renewed`,
		new:   `case left > time.Hour: // it was renewed`,
		tests: "TestShortOutageDoesNotEndTheCommand",
	},
	{
		name: "a lost lock has the status of the command", rule: "42", file: "cmd/redlatch/run.go",
		old:   `return exitLost, nil // it was reported`,
		new:   `return code, nil`,
		tests: "TestLossEndsTheCommand",
	},
	{
		name: "a loss that Unlock finds has the status of the command", rule: "42", file: "cmd/redlatch/run.go",
		old: `return exitLost, err
	}
	return code, err`,
		new: `return code, err
	}
	return code, err`,
		tests: "TestLossThatTheCommandDidNotLiveToSee",
	},
	{
		name: "a command that was stopped goes on without its lock", rule: "42", file: "cmd/redlatch/watch.go",
		old:   `if w.lock.Err() != nil {`,
		new:   `if false {`,
		tests: "TestSuspendedCommandDoesNotGoOnWithoutItsLock",
	},
	{
		name: "the lock is released before the command ends", rule: "41", file: "cmd/redlatch/run.go",
		old:   `code := w.wait()`,
		new:   `_ = lock.Unlock(context.Background()); code := w.wait()`,
		tests: "TestLockIsHeldWhileTheCommandRuns|TestRunsTakeTurns",
	},
	{
		name: "the lock is taken for a command that is not there", rule: "41", file: "cmd/redlatch/command.go",
		old: `if err != nil {
		return nil, err
	}
	cmd := exec`,
		new: `if err != nil {
		path = argv[0]
	}
	cmd := exec`,
		tests: "TestCommandThatCannotRunTakesNoLock",
	},
	{
		name: "-try waits", rule: "41", file: "cmd/redlatch/acquire.go",
		old:   `if f.try {`,
		new:   `if false {`,
		tests: "TestBusyKeyIsNotWaitedForForever",
	},
	{
		name: "the end of a wait leaves its place in the queue", rule: "41", file: "cmd/redlatch/run.go",
		old:   `defer c.settle()`,
		new:   `_ = c.settle`,
		tests: "TestSignalEndsTheWait",
	},
	{
		name: "a clean-up that has not begun counts as done", rule: "41", file: "cmd/redlatch/settle.go",
		old:   `for last := time.Now();`,
		new:   `for last := time.Now().Add(-quiet);`,
		tests: "TestCleanUpHasTimeToBegin",
	},
	{
		name: "the end of a run leaves the lock on a slow node", rule: "41", file: "cmd/redlatch/settle.go",
		old:   `if !c.quorum || errors.Is(err, redlatch.ErrLost) {`,
		new:   `if true {`,
		tests: "TestSlowNodeOfAQuorumIsReleasedToo",
	},
	{
		name: "a release that a node has no script for counts as done", rule: "41", file: "cmd/redlatch/settle.go",
		old:   `if err == nil && strings.HasPrefix(`,
		new:   `if strings.HasPrefix(`,
		tests: "TestNodeWithoutTheScriptHasNotRunIt",
	},
	{
		name: "a run waits for a dead node of its quorum", rule: "41", file: "cmd/redlatch/settle.go",
		old:   `for node.alive() && (`,
		new:   `for (`,
		tests: "TestDeadNodeOfAQuorumCostsNoTime",
	},
	{
		name: "an outage ends a wait that has just begun", rule: "41", file: "cmd/redlatch/acquire.go",
		old:   `if ctx.Err() != nil || !errors.Is(err, redlatch.ErrUnavailable) {`,
		new:   `if ctx.Err() != nil || !errors.Is(err, context.Canceled) {`,
		tests: "TestRunRidesOutAnOutage",
	},
	{
		name: "a min hold keeps a key under which nothing ran", rule: "41", file: "cmd/redlatch/acquire.go",
		old: `if f.minHold > 0 {
		var err`,
		new: `if false {
		var err`,
		tests: "TestMinHoldIsForCommandsThatRan",
	},
	{
		name: "unlock releases what is newer than what it has shown", rule: "43", file: "cmd/redlatch/unlock.go",
		old: `lock, err := l.Adopt(`,
		new: `if now, err := l.Inspect(ctx, key); err == nil && now.Held {
		seen = now
	}
	lock, err := l.Adopt(`,
		tests: "TestUnlockReleasesNothingNewer",
	},
	{
		name: "unlock tries to end a min hold", rule: "43", file: "cmd/redlatch/unlock.go",
		old:   `case isKept(seen):`,
		new:   `case false:`,
		tests: "TestUnlockEndsNoMinHold",
	},
	{
		name: "-q reports another owner", rule: "41", file: "cmd/redlatch/run.go",
		old:   `case f.quiet && code == exitBusy:`,
		new:   `case false:`,
		tests: "TestQuietRunSaysNothingOfAnotherOwner",
	},
	{
		name: "unlock asks nobody", rule: "43", file: "cmd/redlatch/unlock.go",
		old:   `case !*force && !confirmed(`,
		new:   `case false && !confirmed(`,
		tests: "TestUnlockAsksOnATerminal",
	},
	{
		name: "a URL that cannot be parsed is printed", rule: "43", file: "cmd/redlatch/connection.go",
		old:   `i+1, source, forms))`,
		new:   `i+1, source, text))`,
		tests: "TestArgumentsThatCannotWork",
	},
	{
		name: "a run with a limit locks", rule: "44", file: "cmd/redlatch/connection.go",
		old:   `case f.limit > 0:`,
		new:   `case false:`,
		tests: "TestLimitMakesASemaphore",
	},
	{
		name: "a limit of a quorum is ignored", rule: "20", file: "cmd/redlatch/connection.go",
		old:   `case c.quorum && f.limit > 0:`,
		new:   `case false:`,
		tests: "TestArgumentsThatCannotWork",
	},
}
