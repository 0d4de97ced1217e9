package main

// recoveries are mistakes about waiting beside processes that are frozen, poll or have left, and during outages.
var recoveries = []mutant{
	{
		name: "a frozen process keeps its places", rule: "25", file: "release.lua",
		old: `else
    entry = forget(process)
  end`,
		new: `else
    call('ZREM', queue, entry)
    entry = heads[3]
  end`,
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
		name: "a handed lock trusted for a short time", rule: "25", file: "engine.go",
		old: `length := clock.Validity(l.params.ttl, l.r.cfg.drift)`,
		new: `length := clock.Validity(l.params.ttl, l.r.cfg.drift)
	if l.entry != "" {
		length = min(length, time.Second)
	}`,
		tests: "TestHandedLockHasItsFullTTL",
	},
	{
		name: "an entry that lost its lock counts as the first", rule: "25", file: "acquire.lua",
		old:   `local keeps = place and place ~= '0'`,
		new:   `local keeps = place`,
		tests: "TestEntryThatLostItsLock",
	},
	{
		name: "an entry that lost its lock does not count as new", rule: "25", file: "acquire.lua",
		old:   `place and 'CH' or 'NX'`,
		new:   `'NX'`,
		tests: "TestEntryThatLostItsLock",
	},
	{
		name: "a lock that was deleted makes its process count as frozen", rule: "25", file: "lease.go",
		old:   "p := &releaseParams{target: l.params.target, entry: l.entry}\n\tbefore",
		new:   "p := &releaseParams{target: l.params.target}\n\tbefore",
		tests: "TestUnlockOfALostHandedLock",
	},
	{
		name: "the waiters of a purged process do not queue again", rule: "25", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `if l.Subscription.IsReady() {`,
		new:   `if false {`,
		tests: "TestWaitersOfALostQueue",
	},
	{
		name: "an entry that was handed the lock counts as a waiter", rule: "Inspect", file: "inspect.lua",
		old:   `'(0', '+inf'`,
		new:   `'0', '+inf'`,
		tests: "TestHandedLockHasItsFullTTL",
	},
	{
		name: "a lock handed to a waiter that left is kept", rule: "26", file: "internal/handoff/waitlist.go",
		old:   `if giveBack := l.departed.take(h.entry); giveBack != nil {`,
		new:   `if giveBack := l.departed.take(h.entry); giveBack != nil && false {`,
		tests: "TestPlaceThatWasNotGivenUp",
	},
	{
		name: "a waiter that left while Redis was away is forgotten", rule: "26", file: "internal/handoff/departures.go",
		old:   `d.byEntry[entry] = departure{giveBack, now}`,
		new:   `_ = departure{giveBack, now}`,
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
		old:   `redis.pcall('ZREMRANGEBYSCORE', KEYS[3], 0, 0)`,
		new:   ``,
		tests: "TestHandedLockThatIsTakenAgainLeavesTheQueue/SetNXPX/adopted",
	},
	{
		name: "the first of the queue does not poll where others poll", rule: "27", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `case w.seen != "" && w.seen != got.Holder && w.pauses == 0 && !got.Shared && !got.Kept:`,
		new:   `case false:`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "all waiters in the queue poll where others poll", rule: "27", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `case !got.First:`,
		new:   `case false:`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "a holder that hands on to nobody is looked at once a second", rule: "27", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `case got.First && got.Foreign:`,
		new:   `case false:`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "all look once a second", rule: "Waiting", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `d = min(lookEvery<<min(l.keys[w.key].same, 2), lookRarely)`,
		new:   `d = lookEvery`,
		tests: "TestLooksComeAtIntervals",
	},
	{
		name: "WithoutQueue queues", rule: "27", file: "engine.go",
		old:   `queues := e.waitlist != nil && !r.cfg.noQueue`,
		new:   `queues := e.waitlist != nil`,
		tests: "TestWithoutQueueLeavesNoEntry",
	},
	{
		name: "waiters without a channel never queue", rule: "28", file: "queue.go",
		old:   `case w.Degraded && asked.Since(r.started) < patience:`,
		new:   `case w.Degraded:`,
		tests: "TestProcessWithoutAChannel",
	},
	{
		name: "a turn is published to a process that polls", rule: "28", file: "release.lua",
		old:   `if polls == '' then`,
		new:   `if true then`,
		tests: "TestReleaseHandsOnToAProcessThatPolls",
	},
	{
		name: "a process that polls is skipped", rule: "28", file: "release.lua",
		old:   `if listeners > 0 or cluster or polls ~= '' then`,
		new:   `if listeners > 0 or cluster then`,
		tests: "TestReleaseHandsOnToAProcessThatPolls",
	},
	{
		name: "a full Redis hands nothing on", rule: "29", file: "release.lua",
		old:   `call('PEXPIRE', queue, queueMemory)`,
		new:   ``,
		tests: "TestReleaseInAFull",
	},
	{
		name: "a release is not retried when Redis lacks replicas", rule: "29", file: "internal/node/errors.go",
		old:   `"NOREPLICAS", `,
		new:   ``,
		tests: "TestReleaseInAFull",
	},
	{
		name: "a silent subscription is kept", rule: "30", file: "internal/handoff/waitlist.go",
		old:   `if w.Degraded || !w.queued {`,
		new:   `if true {`,
		tests: "TestSilentSubscription",
	},
	{
		name: "a message that has arrived counts as missing", rule: "30", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `(w.told || len(w.handed) > 0)`,
		new:   `w.told`,
		tests: "TestMessageThatCameIsNotMissed",
	},
	{
		name: "an expired handover counts as a message that came", rule: "25", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `if handed && (w.told || len(w.handed) > 0) {`,
		new:   `if w.told || len(w.handed) > 0 {`,
		tests: "TestNextWaiterLooksAfterAnExpiredHandover",
	},
	{
		name: "a release that Redis cannot save is sent once", rule: "29", file: "internal/node/courier.go", in: "internal/node",
		old:   ` || c.Persist && refusesWrites(err)`,
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
		old:   `!e.turns.JustServed(r.place.key)`,
		new:   `true`,
		tests: "TestWantedKeyIsYielded",
	},
	{
		name: "a release soon after another one is not noted", rule: "32", file: "internal/handoff/turns.go", in: "internal/handoff",
		old:   `timer != nil && timer.Reset(within) {`,
		new:   `timer != nil {`,
		tests: "TestReleasedKeyIsYielded",
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
		name: "a waiter loses its place when PUBLISH is tried again", rule: "28", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `return w.deaf && !deaf`,
		new:   `return !degraded && !deaf`,
		tests: "TestRefusedPublishCostsNoPlace",
	},
	{
		name: "a waiter that gets no messages stops polling", rule: "28", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `(polling || w.Degraded) && w.pauses == 0`,
		new:   `polling && w.pauses == 0`,
		tests: "TestRefusedPublishCostsNoPlace",
	},
	{
		name: "a message that ended the sleep is missed", rule: "30", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `(w.told || len(w.handed) > 0)`,
		new:   `(len(w.handed) > 0)`,
		tests: "TestMessageThatEndedTheSleep",
	},
	{
		name: "PUBLISH counts as refused for ever", rule: "28", file: "internal/handoff/subscription.go", in: "internal/handoff",
		old:   `return time.Now().Before(s.mute)`,
		new:   `return !s.mute.IsZero()`,
		tests: "TestPublishIsTriedAgain",
	},
	{
		name: "a waiter that has waited longer asks as often as others", rule: "32", file: "wait.go",
		old:   `max(4*longestPause/(4+time.Duration(p.changes)), shortestPause)`,
		new:   `longestPause`,
		tests: "TestWhoeverWaitsLongerAsksSooner",
	},
	{
		name: "a lost lock leaves its process in the queue as if frozen", rule: "25", file: "lease.go",
		old:   `!errors.Is(after, ErrReleased) && l.entry != ""`,
		new:   `false`,
		tests: "TestLockThatEndsByItselfLeavesNoNote",
	},
}
