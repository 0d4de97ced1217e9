package main

// queues are mistakes about the queue and the hand-off.
var queues = []mutant{
	{
		name: "a line queues however soon its callers leave", rule: "31", file: "entry.go",
		old:   `case w.hurriedLocked():`,
		new:   `case false:`,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "a line without an entry sends a release when its callers leave", rule: "31", file: "ask.go",
		old:   `|| !knownNotDone(err) || p.entry != "" && !errors.As`,
		new:   `|| !errors.As`,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "a line that is in a hurry makes one attempt", rule: "31", file: "entry.go",
		old: `case w.hurriedLocked():
		w.watch.Poll()
`,
		new: `case w.hurriedLocked():
`,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "attempts that got no answer make commands look quick", rule: "31", file: "entry.go",
		old:   `if int64(took) > before || err == nil || errors.Is(err, ErrNotAcquired) {`,
		new:   `if true {`,
		tests: "TestUnansweredAttemptsDoNotLookQuick",
	},
	{
		name: "a release that frees a key that is waited for", rule: "Hand-off", file: "release.lua",
		old:   `if not entry then return reply(call('DEL', KEYS[1])) end`,
		new:   `if true then return reply(call('DEL', KEYS[1])) end`,
		tests: "TestReleaseLeavesNoGap",
	},
	{
		name: "last come, first served", rule: "Hand-off", file: "release.lua",
		old:   `pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')`,
		new:   `pcall('ZREVRANGE', queue, 0, 1, 'WITHSCORES')`,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a hand-off that mints no fence", rule: "Fencing", file: "fence.lua",
		old:   `want, want > 1 and pcall('INCRBY', KEYS[2], want)`,
		new:   `want, want > 1 and tonumber(call('GET', KEYS[2]) or '0')`,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a hand-off by the register alone", rule: "Fencing", file: "fence.lua",
		old:   `if fence - more < now - slack then`,
		new:   `if false then`,
		tests: "TestFenceIsTheRegisterOrTheClock",
	},
	{
		name: "a queue without a TTL", rule: "6", file: "acquire.lua",
		old:   `call('PEXPIRE', queue, queueMemory)`,
		new:   ``,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a dead process holds up the queue", rule: "Hand-off", file: "announce.lua",
		old:   `token and not forbidden and (listeners > 0 or cluster or polls ~= '')`,
		new:   `token and not forbidden`,
		tests: "TestCrashedWaitersAreSkipped",
	},
	{
		name: "a line depends on its message", rule: "15", file: "internal/handoff/watch.go",
		old:   `LookEvery  = time.Second`,
		new:   `LookEvery  = 10 * time.Second`,
		tests: "TestLostMessageCostsASecond",
	},
	{
		name: "a handed lease begins when its message arrives", rule: "2", file: "internal/handoff/handoff.go",
		old:   `age = max(age, 0)`,
		new:   `age = 0`,
		tests: "TestHandedLeaseNeverBeginsAfterRedisGranted",
	},
	{
		name: "a turn that passed while the machine slept is taken", rule: "10", file: "internal/handoff/handoff.go",
		old:   `age := arrived.Since(asked)`,
		new:   `age := arrived.Mono.Sub(asked.Mono)`,
		tests: "TestSleptOverItsTurn",
	},
	{
		name: "a message whose entry is longer than the message", rule: "Hand-off", file: "internal/handoff/handoff.go",
		old:   `length > uint64(len(rest))`,
		new:   `length > uint64(len(message))`,
		tests: "TestHandoverIsReadStrictly",
	},
	{
		name: "a grant leaves its place in the queue", rule: "17", file: "acquire.lua",
		old:   `if entry then pcall('ZREM', queue, entry) end -- a key`,
		new:   `if false then pcall('ZREM', queue, entry) end -- a key`,
		tests: "TestGrantTakesItsPlaceOut",
	},
	{
		name: "a grant that no replica confirmed keeps others out", rule: "15", file: "ask.go",
		old:   ` || errors.Is(err, ErrNotReplicated)`,
		new:   ``,
		tests: "TestUnconfirmedWaiter",
	},
	{
		name: "grants that end at once are retried without a pause", rule: "15", file: "ask.go",
		old:   `d = w.backoff(w.tries, 0, w.quietLocked)`,
		new:   `d = time.Millisecond`,
		tests: "TestHopelessGrants",
	},
	{
		name: "a grant that no replica confirmed ends a wait", rule: "18", file: "ask.go",
		old:   `permanent(err) || !r.refused`,
		new:   `permanent(err) || regranted(err) || !r.refused`,
		tests: "TestUnconfirmedWaiter",
	},
	{
		name: "a token that was never sent is released", rule: "21, 31", file: "entry.go",
		old:   `if !a.sent {`,
		new:   `if false {`,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "a caller who can wait does not have its line queue", rule: "31", file: "entry.go",
		old:   `p.Of.deadline.IsZero() || p.Of.deadline.After(t)`,
		new:   `p.Of.deadline.IsZero()`,
		tests: "TestLineHurriesWhileNobodyCanWait",
	},
	{
		name: "a line that always has callers never queues", rule: "31", file: "entry.go",
		old:   `time.Since(w.filled) < enough && w`,
		new:   `w`,
		tests: "TestLineHurriesWhileNobodyCanWait",
	},
	{
		name: "a lost place is not taken again", rule: "15", file: "queue.lua",
		old:   `if not place or place == '0' then`,
		new:   `if not again or place == '0' then`,
		tests: "TestLostPlaceIsTakenAgain/SetNXPX",
	},
	{
		name: "a lost place for a permit is not taken again", rule: "15", file: "queue.lua",
		old:   `if not place or place == '0' then`,
		new:   `if not again or place == '0' then`,
		tests: "TestLostPlaceIsTakenAgain/Semaphore",
	},
	{
		name: "a message that claims more fences than any release mints", rule: "Hand-off", file: "internal/handoff/handoff.go",
		old:   `more > mostFences || `,
		new:   ``,
		tests: "TestHandoverIsReadStrictly",
	},
	{
		name: "an entry says that its process listens, though it polls", rule: "28", file: "internal/handoff/handoff.go",
		old:   `if polls {`,
		new:   `if false {`,
		tests: "TestEntryNamesWhatAReleaseNeeds",
	},
}
