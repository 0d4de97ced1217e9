package main

// passes are mistakes about how a turn begins, what it passes on, and how it ends.
var passes = []mutant{
	{
		name: "a grant is no refusal for those left in line", rule: "16, 33", file: "turn.go",
		old:   `if w.lease == a {`,
		new:   `if false {`,
		tests: "TestGrantShowsTheHolderToThoseInLine",
	},
	{
		name: "a message is missed that came before the replicas were asked", rule: "30", file: "turn.go",
		old:   `a.announced || w.handed`,
		new:   `w.handed`,
		tests: "TestMessageThatCameIsNotMissed",
	},
	{
		name: "a lost lease is passed on", rule: "7, 18", file: "unlock.go",
		old:   `if ended == nil && l.passLocked(now) {`,
		new:   `if ended != nil && l.line != nil && l.line.pass(l, now) || ended == nil && l.passLocked(now) {`,
		tests: "TestLostLeaseIsNotPassedOn",
	},
	{
		name: "a lease whose token was shown is passed on", rule: "18", file: "lease.go",
		old:   `l.pinned, l.shared = true, true`,
		new:   `l.shared = true`,
		tests: "TestWhatIsNotPassedOn/^Token$",
	},
	{
		name: "a lease that was extended is passed on", rule: "18", file: "renewal.go",
		old: `	l.pinned = true
`,
		new:   ``,
		tests: "TestWhatIsNotPassedOn/Extend",
	},
	{
		name: "a lease that was adopted is passed on", rule: "18", file: "engine.go",
		old:   `holder.pin(token)`,
		new:   `_ = holder`,
		tests: "TestWhatIsNotPassedOn/Adopt of the token",
	},
	{
		name: "Adopt of another token ends the turn", rule: "18", file: "lease.go",
		old:   `l.pinned = l.pinned || l.params.token == token`,
		new:   `l.pinned = true`,
		tests: "TestWhatIsNotPassedOn/Adopt of another token",
	},
	{
		name: "a turn lasts for a hundredth of the TTL", rule: "18", file: "unlock.go",
		old:   `min(turnLasts, l.params.ttl/turnShare)`,
		new:   `l.params.ttl/turnShare`,
		tests: "TestWhatIsNotPassedOn/^too old$",
	},
	{
		name: "a turn lasts for 5 ms, however short its TTL is", rule: "18", file: "unlock.go",
		old:   `min(turnLasts, l.params.ttl/turnShare)`,
		new:   `turnLasts`,
		tests: "TestWhatIsNotPassedOn/too old for its TTL",
	},
	{
		name: "the age of a turn counts from the start of its lease", rule: "18", file: "unlock.go",
		old:   `now.Mono.Sub(l.replied.Mono)`,
		new:   `now.Mono.Sub(l.granted.Mono)`,
		tests: "TestWhatIsNotPassedOn/almost too old",
	},
	{
		name: "a turn passes on what it has no fence for", rule: "18, Fencing", file: "turn.go",
		old:   `passes := min(g.More, mostPasses)`,
		new:   `passes := mostPasses`,
		tests: "TestTurnServesAtMost64",
	},
	{
		name: "a turn passes on for as long as it has fences", rule: "18", file: "turn.go",
		old:   `passes := min(g.More, mostPasses)`,
		new:   `passes := g.More`,
		tests: "TestTurnServesAtMost64",
	},
	{
		name: "options that pass nothing on do not count", rule: "18", file: "turn.go",
		old:   `if !w.passable() {`,
		new:   `if false {`,
		tests: "TestWhatIsNotPassedOn/With(MaxHold|MinHold|Replicas)",
	},
	{
		name: "a lock with WithMaxHold is passed on", rule: "18", file: "ask.go",
		old:   ` && cfg.maxHold == 0`,
		new:   ``,
		tests: "TestWhatIsNotPassedOn/WithMaxHold",
	},
	{
		name: "a lock with WithMinHold is passed on", rule: "18", file: "ask.go",
		old:   ` && cfg.minHold == 0`,
		new:   ``,
		tests: "TestWhatIsNotPassedOn/WithMinHold",
	},
	{
		name: "a lock with WithReplicas is passed on", rule: "18", file: "ask.go",
		old:   ` && cfg.replicas == 0`,
		new:   ``,
		tests: "TestWhatIsNotPassedOn/WithReplicas",
	},
	{
		name: "a pass invents a fence where the strategy issues none", rule: "18, Fencing", file: "turn.go",
		old:   `if l.fence > 0 {`,
		new:   `if true {`,
		tests: "TestPassWithoutFences",
	},
	{
		name: "a caller that leaves as it is served loses the lock", rule: "17", file: "wait.go",
		old: `l.mu.Unlock()
		return r.result(e)
`,
		new: `l.mu.Unlock()
		return nil, node.CtxError(ctx)
`,
		tests: "TestCallerThatWasServedCannotLeave",
	},
	{
		name: "a turn measured from the reply", rule: "2", file: "ask.go",
		old: `got, err = w.engine.strategy.acquire(ctx, p)`,
		new: `got, err = w.engine.strategy.acquire(ctx, p)
		asked = w.engine.now()`,
		tests: "TestTurnIsCountedFromBeforeTheRequest",
	},
	{
		name: "the next turn has the token of the one before", rule: "1", file: "turn.go",
		old:   `w.attempt, w.handed, w.watch, w.tries = nil, nil, w.watch.Next(got != nil && !got.alreadyHeld), 0`,
		new:   `w.handed, w.watch, w.tries = nil, w.watch.Next(got != nil && !got.alreadyHeld), 0`,
		tests: "TestEachTurnHasAFreshToken",
	},
	{
		name: "two leases of a process on one key", rule: "7", file: "turn.go",
		old: `		old.lose(errDeleted)
`,
		new: `		_ = old
`,
		tests: "TestLostKeyEndsTheOldLeaseFirst",
	},
	{
		name: "a permit ends that of another caller", rule: "44", file: "turn.go",
		old:   `case !w.engine.strategy.habits().shares:`,
		new:   `default:`,
		tests: "TestOneReleaseQueuesTheLine",
	},
	{
		name: "a lock that comes to an empty line is kept", rule: "26", file: "turn.go",
		old: `	case got == nil:
		time.AfterFunc(0, undo.undoAlone) // a goroutine that ends with the op timeout`,
		new:   `	case got == nil:`,
		tests: "TestLockThatComesToAnEmptyLineIsGivenBack",
	},
	{
		name: "a grant to an empty line counts as never sent", rule: "26", file: "turn.go",
		old: `	a.sent = true
`,
		new:   ``,
		tests: "TestAcquireOfAnEmptyLineIsGivenBack",
	},
	{
		name: "a release that hands on is believed without replicas", rule: "Replicas", file: "turn.go",
		old:   `take = w.handLocked(g)`,
		new:   `take, w.asking, w.since = true, true, g.Arrived.Mono`,
		tests: "TestReplicasConfirmWhatAReleaseHandsOver/reply",
	},
	{
		name: "two releases queue a line", rule: "45", file: "turn.go",
		old:   `if queued && (w.attempt.carried || e.strategy.habits().shares) {`,
		new:   `if false {`,
		tests: "TestOneReleaseQueuesTheLine",
	},
	{
		name: "a release queues an entry that another release may serve", rule: "26", file: "turn.go",
		old:   `if queued && (w.attempt.carried || e.strategy.habits().shares) {`,
		new:   `if queued && w.attempt.carried {`,
		tests: "TestReleaseOfAPermitQueuesNoEntryAgain",
	},
	{
		name: "a release queues a line that is in a hurry", rule: "31", file: "turn.go",
		old:   ` || w.hurriedLocked()):`,
		new:   `):`,
		tests: "TestHurriedLineIsNotQueuedByItsRelease",
	},
	{
		name: "a release queues a line that asks", rule: "26", file: "turn.go",
		old:   `case w.asking: // the release`,
		new:   `case false: // the release`,
		tests: "TestReleaseDoesNotQueueALineThatAsks",
	},
	{
		name: "a panic of WithBackoff after a turn keeps the line from asking", rule: "18", file: "turn.go",
		old:   `func() { w.releases-- })`,
		new:   `func() {})`,
		tests: "TestPanicOfBackoffEndsNoLine",
	},
	{
		name: "a message during a look is lost", rule: "15", file: "turn.go",
		old:   `w.handed = &g`,
		new:   `_ = g`,
		tests: "TestMessageDuringALookIsNotLost",
	},
	{
		name: "a rest ends with the release before", rule: "32", file: "turn.go",
		old:   `if l.resting[key].Equal(until) {`,
		new:   `if true {`,
		tests: "TestRestIsCountedFromTheNewestRelease",
	},
	{
		name: "calls with options of their own share a line", rule: "18", file: "wait.go",
		old:   `r.cfg.settings == e.cfg.settings`,
		new:   `true`,
		tests: "TestCallsWithOptionsStandAlone",
	},
}
