package main

// recoveries are mistakes about waiting beside processes that are frozen, poll or have left, and during outages.
var recoveries = []mutant{
	{
		name: "a frozen process keeps its place", rule: "25", file: "release.lua",
		old: `if heads[2] == '0' then
  call('ZREM', queue, entry)
`,
		new: `if heads[2] == '0' then
`,
		tests: "TestReleaseForgetsAFrozenProcess",
	},
	{
		name: "nobody knows who was handed a lock that expired", rule: "25", file: "release.lua",
		old:   `call('ZADD', queue, 0, entry)`,
		new:   `call('ZREM', queue, entry)`,
		tests: "TestReleaseForgetsAFrozenProcess",
	},
	{
		name: "a lock is handed over for a short time", rule: "25", file: "release.lua",
		old:   `call('SET', KEYS[1], token, 'PX', ttl)`,
		new:   `call('SET', KEYS[1], token, 'PX', math.min(ttl, 1000))`,
		tests: "TestHandedLockHasItsFullTTL",
	},
	{
		name: "a handed lock trusted for a short time", rule: "25", file: "turn.go",
		old: `length := clock.Validity(w.r.ttl(), cfg.drift)`,
		new: `length := clock.Validity(w.r.ttl(), cfg.drift)
	if got == nil {
		length = min(length, time.Second)
	}`,
		tests: "TestHandedLockHasItsFullTTL",
	},
	{
		name: "an entry that lost its lock counts as the first", rule: "25", file: "queue.lua",
		old:   `if not place or place == '0' then`,
		new:   `if not place then`,
		tests: "TestEntryThatLostItsLock",
	},
	{
		name: "an entry that lost its lock does not count as new", rule: "25", file: "queue.lua",
		old:   `place and 'CH' or 'NX'`,
		new:   `'NX'`,
		tests: "TestEntryThatLostItsLock",
	},
	{
		name: "a lock that was deleted makes its process count as frozen", rule: "25", file: "unlock.go",
		old: `p := &releaseParams{target: &l.params.target, entry: l.entry}
	var next`,
		new: `p := &releaseParams{target: &l.params.target}
	var next`,
		tests: "TestUnlockOfALostHandedLock",
	},
	{
		name: "an entry that was handed the lock counts as a waiter", rule: "Inspect", file: "inspect.lua",
		old:   `'(0', '+inf'`,
		new:   `'0', '+inf'`,
		tests: "TestHandedLockHasItsFullTTL",
	},
	{
		name: "a lock that comes to a token that was given up is kept", rule: "26", file: "turn.go",
		old: `case a.state.settled():
		go a.undo(context.Background()) // ends`,
		new: `case a.state.settled():
		// ends`,
		tests: "TestPlaceThatWasNotGivenUp",
	},
	{
		name: "a token that was given up is forgotten", rule: "26", file: "entry.go",
		old: `a.ended = time.Now()
`,
		new: `a.ended = time.Now()
	delete(w.engine.lines.tokens, a.params.token)
`,
		tests: "TestPlaceThatWasNotGivenUp",
	},
	{
		name: "a handed lock that is acquired again keeps its entry", rule: "25", file: "acquire.lua",
		old:   `pcall('ZREMRANGEBYSCORE', queue, 0, 0)`,
		new:   ``,
		tests: "TestHandedLockThatIsTakenAgainLeavesTheQueue/SetNXPX/acquired",
	},
	{
		name: "a handed lock that is adopted keeps its entry", rule: "25", file: "extend.lua",
		old:   `pcall('ZREMRANGEBYSCORE', KEYS[3], 0, 0)`,
		new:   ``,
		tests: "TestHandedLockThatIsTakenAgainLeavesTheQueue/SetNXPX/adopted",
	},
	{
		name: "the first of the queue does not poll where others poll", rule: "27", file: "internal/handoff/watch.go",
		old:   `case w.seen != "" && w.seen != got.Holder && w.polls == 0 && !got.Shared && !got.Kept && !got.Handed:`,
		new:   `case false:`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "all waiters in the queue poll where others poll", rule: "27", file: "internal/handoff/watch.go",
		old:   `case !got.First:`,
		new:   `case false:`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "a holder that hands on to nobody is looked at once a second", rule: "27", file: "internal/handoff/watch.go",
		old:   `case got.First && got.Foreign:`,
		new:   `case false:`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "all look once a second", rule: "Waiting", file: "internal/handoff/watch.go",
		old:   `every = min(LookEvery<<min(w.same, 2), lookRarely)`,
		new:   `every = LookEvery`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "WithoutQueue queues", rule: "27", file: "ask.go",
		old:   `return w.engine.channel != nil && !w.r.cfg.noQueue`,
		new:   `return w.engine.channel != nil`,
		tests: "TestWithoutQueueLeavesNoEntry",
	},
	{
		name: "a full Redis hands nothing on", rule: "29", file: "release.lua",
		old: `-- a queue that hands on is kept by the looks of its waiters
  call('PEXPIRE', queue, queueMemory)`,
		new:   `-- a queue that hands on is kept by the looks of its waiters`,
		tests: "TestReleaseInAFull",
	},
	{
		name: "a release is not retried when Redis lacks replicas", rule: "29", file: "internal/node/errors.go",
		old:   `"NOREPLICAS", `,
		new:   ``,
		tests: "TestReleaseInAFull",
	},
	{
		name: "a release that Redis cannot save is sent once", rule: "29", file: "internal/node/courier.go",
		old:   ` || c.OutlivesCaller && refusesWrites(err)`,
		new:   ``,
		tests: "TestReleaseIsTriedAgainWhereRedisCannotSave",
	},
	{
		name: "a refused process leaves no mark on a quorum", rule: "32", file: "quorum_acquire.lua",
		old:   `redis.pcall('SET', KEYS[3], '', 'NX', 'PX', wantedMemory)`,
		new:   ``,
		tests: "TestWantedKeyIsYielded",
	},
	{
		name: "a key that others want is acquired again at once", rule: "32", file: "wait.go",
		old:   ` && (len(l.resting) == 0 || l.resting[key].IsZero())`,
		new:   ``,
		tests: "TestWantedKeyIsYielded",
	},
	{
		name: "a key that expired while a script ran is an error", rule: "18", file: "operations.go",
		old:   `len(fields) > 1 && fields[1] != nil {`,
		new:   `len(fields) > 1 {`,
		tests: "TestKeyExpiresWhileAScriptRuns",
	},
	{
		name: "a key that expired while a script ran counts as held forever", rule: "18", file: "operations.go",
		old:   `if left != -1 {`,
		new:   `if left >= 0 {`,
		tests: "TestKeyExpiresWhileAScriptRuns",
	},
	{
		name: "Inspect reports a key that expired while a script ran as held forever", rule: "18", file: "operations.go",
		old:   `; ok && left != -2 {`,
		new:   `; ok {`,
		tests: "TestKeyExpiresWhileAScriptRuns",
	},
	{
		name: "a semaphore whose key expired while a script ran is an error", rule: "18", file: "semaphore_acquire.lua",
		old:   `ends and math.ceil((ends - now) / 1000) or 0`,
		new:   `math.ceil((ends - now) / 1000)`,
		tests: "TestKeyExpiresWhileAScriptRuns",
	},
	{
		name: "every holder counts as one that hands on", rule: "27", file: "operations.go",
		old:   `a.Foreign = !a.Kept && !minted(a.Holder)`,
		new:   `a.Foreign = false`,
		tests: "TestHolderThatHandsOn",
	},
	{
		name: "no holder counts as one that hands on", rule: "27", file: "operations.go",
		old:   `a.Foreign = !a.Kept && !minted(a.Holder)`,
		new:   `a.Foreign = true`,
		tests: "TestHolderThatHandsOn",
	},
	{
		name: "a line that has waited longer asks as often as others", rule: "32", file: "ask.go",
		old:   `max(4*longestPause/(4+time.Duration(p.changes)), shortestPause)`,
		new:   `longestPause`,
		tests: "TestWhoeverWaitsLongerAsksSooner",
	},
	{
		name: "a lost lock leaves its process in the queue as if frozen", rule: "25", file: "lease.go",
		old:   `if l.entry != "" {`,
		new:   `if false {`,
		tests: "TestLockThatEndsByItselfLeavesNoNote",
	},
	{
		name: "a holder with an owner counts as one that does not hand on", rule: "15", file: "keys.go",
		old:   `return at >= 0 &&`,
		new:   `return at == 0 &&`,
		tests: "TestOwnerIsHandedOn",
	},
	{
		name: "whoever the queue has handed the lock has overtaken its first", rule: "27", file: "internal/handoff/watch.go",
		old:   ` && !got.Handed:`,
		new:   `:`,
		tests: "TestHandOverPassesNobody",
	},
	{
		name: "one of several holders has overtaken the first", rule: "27", file: "internal/handoff/watch.go",
		old:   `!got.Shared && `,
		new:   ``,
		tests: "TestHandOverPassesNobody",
	},
	{
		name: "a line that was passed and then acquired the key relies on the queue", rule: "27", file: "internal/handoff/watch.go",
		old:   `if w.passed ||`,
		new:   `if`,
		tests: "TestLineThatWasPassedPollsOn",
	},
	{
		name: "a line that found the key free relies on the queue", rule: "27", file: "internal/handoff/watch.go",
		old:   `if w.passed || found && w.redis != 0 {`,
		new:   `if w.passed {`,
		tests: "TestLineThatWasPassedPollsOn|TestProcessWithoutPublishLeavesOthersTheirShare",
	},
	{
		name: "a line that came first polls on", rule: "27", file: "internal/handoff/watch.go",
		old:   `found && w.redis != 0 {`,
		new:   `found {`,
		tests: "TestLineThatWasPassedPollsOn",
	},
	{
		name: "a lock that was handed over counts as one that was found free", rule: "27", file: "turn.go",
		old:   `got != nil && !got.alreadyHeld), 0`,
		new:   `got != nil), 0`,
		tests: "TestLineThatFindsTheKeyFreePollsOn",
	},
	{
		name: "a line that was passed polls forever", rule: "27", file: "internal/handoff/watch.go",
		old:   `func (w *Watch) Announced() { w.passed = false }`,
		new:   `func (w *Watch) Announced() {}`,
		tests: "TestOnlyTheMessageOfAnotherProcessEndsPolling",
	},
	{
		name: "a message of the own release ends polling", rule: "27", file: "turn.go",
		old:   `if !a.carried { // else this process`,
		new:   `if true { // else this process`,
		tests: "TestOnlyTheMessageOfAnotherProcessEndsPolling",
	},
	{
		name: "nobody says that the queue has handed the lock", rule: "27", file: "acquire.lua",
		old:   `handed = handed and first and string`,
		new:   `handed = false and string`,
		tests: "TestRefusalSaysWhetherTheQueueHandedTheLock",
	},
	{
		name: "any holder counts as one that was handed the lock", rule: "27", file: "acquire.lua",
		old:   `handed = handed and first and string.match(heads[1], '^%d+ %S+ (.*)$') == holder`,
		new:   `handed = handed and first`,
		tests: "TestRefusalSaysWhetherTheQueueHandedTheLock",
	},
	{
		name: "a token that was given up is forgotten soon", rule: "24, 26", file: "entry.go",
		old: `now.Sub(a.ended) > rememberFor
`,
		new: `now.Sub(a.ended) > rememberFor/10
`,
		tests: "TestGivenUpTokensAreRemembered",
	},
	{
		name: "a token that waits is forgotten", rule: "26", file: "entry.go",
		old:   `return !a.ended.IsZero() && now`,
		new:   `return now`,
		tests: "TestGivenUpTokensAreRemembered",
	},
	{
		name: "tokens that were given up are never forgotten", rule: "24", file: "entry.go",
		old:   `return !a.ended.IsZero() && now.Sub(a.ended) > rememberFor`,
		new:   `return false && !a.ended.IsZero()`,
		tests: "TestGivenUpTokensAreRemembered",
	},
	{
		name: "a token is forgotten while a release may queue it again", rule: "26", file: "entry.go",
		old:   `if !a.carried && l`,
		new:   `if l`,
		tests: "TestGivenUpTokensAreRemembered",
	},
	{
		name: "the entry of a release of unknown outcome stays behind", rule: "25", file: "turn.go",
		old:   `got != nil && !a.carried && w.handed == nil {`,
		new:   `got != nil && w.handed == nil {`,
		tests: "TestEntryOfAnUnknownReleaseLeavesWithTheLock",
	},
	{
		name: "a line that cannot know whether others want the key asks at once after its turn", rule: "32", file: "turn.go",
		old:   `blind: !e`,
		new:   `blind: false && !e`,
		tests: "TestLineYieldsAfterItsTurn",
	},
}
