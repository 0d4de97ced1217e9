package main

// queues are mistakes about the queue and the hand-off.
var queues = []mutant{
	{
		name: "a waiter queues however soon it leaves", rule: "31", file: "queue.go",
		old:   `return ok && time.Until(end) < hurry`,
		new:   `return ok && time.Until(end) < 0`,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "a waiter without an entry in the queue sends a release when it leaves", rule: "31", file: "queue.go",
		old:   `place != "" && !errors.As(err, new(*node.NotDone)) || !knownNotDone(err)`,
		new:   `!errors.As(err, new(*node.NotDone))`,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "a waiter that does not queue makes one attempt", rule: "31", file: "queue.go",
		old:   `e.waitlist.Poll(w)`,
		new:   ``,
		tests: "TestShortWaitsDoNotQueueWhenCommandsAreSlow",
	},
	{
		name: "attempts that got no answer make commands look quick", rule: "31", file: "queue.go",
		old:   `if int64(took) > before || err == nil || errors.Is(err, ErrNotAcquired) {`,
		new:   `if true {`,
		tests: "TestUnansweredAttemptsDoNotLookQuick",
	},
	{
		name: "a hand-off found by its key and its token only", rule: "Hand-off", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `if w.Entry == h.entry {`,
		new:   `if h.entry[max(0, len(h.entry)-len(w.token)):] == w.token {`,
		tests: "TestHandoverNamesItsKeyAndItsPlace",
	},
	{
		name: "two waiters with one token have one entry", rule: "17", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `l.numbers.Uint64(), token)`,
		new:   `7, token)`,
		tests: "TestHandoverNamesItsKeyAndItsPlace",
	},
	{
		name: "a release that frees a key that is waited for", rule: "Hand-off", file: "release.lua",
		old:   `if not heads[1] then`,
		new:   `if true then`,
		tests: "TestReleaseLeavesNoGap",
	},
	{
		name: "last come, first served", rule: "Hand-off", file: "release.lua",
		old:   `pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')`,
		new:   `pcall('ZREVRANGE', queue, 0, 1, 'WITHSCORES')`,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a hand-off that mints no fence", rule: "Fencing", file: "release.lua",
		old:   `local fence = pcall('INCR', KEYS[2])`,
		new:   `local fence = tonumber(redis.call('GET', KEYS[2]) or '0')`,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a hand-off by the register alone", rule: "Fencing", file: "release.lua",
		old:   `if fence < now - 10000 then -- as in acquire.lua`,
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
		name: "a dead process holds up the queue", rule: "Hand-off", file: "release.lua",
		old:   `if listeners > 0 or cluster or polls ~= '' then`,
		new:   `if true then`,
		tests: "TestCrashedWaitersAreSkipped",
	},
	{
		name: "a waiter depends on its message", rule: "15", file: "internal/handoff/looks.go",
		old:   `lookEvery  = time.Second`,
		new:   `lookEvery  = 10 * time.Second`,
		tests: "TestLostMessageCostsASecond",
	},
	{
		name: "a handed lease begins when its message arrives", rule: "2", file: "internal/handoff/handoff.go", in: "internal/handoff",
		old:   `age = max(age, 0)`,
		new:   `age = 0`,
		tests: "TestHandedLeaseNeverBeginsAfterRedisGranted",
	},
	{
		name: "a turn that passed while the machine slept is taken", rule: "10", file: "internal/handoff/handoff.go", in: "internal/handoff",
		old:   `age := arrived.Since(asked)`,
		new:   `age := arrived.Mono.Sub(asked.Mono)`,
		tests: "TestSleptOverItsTurn",
	},
	{
		name: "a message whose entry is longer than the message", rule: "Hand-off", file: "internal/handoff/handoff.go", in: "internal/handoff",
		old:   `length > uint64(len(rest))`,
		new:   `length > uint64(len(message))`,
		tests: "TestHandoverIsReadStrictly",
	},
	{
		name: "a hand-off found by its key only", rule: "Hand-off", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old:   `if w.Entry == h.entry {`,
		new:   `if w.Entry == h.entry || w.key == h.key {`,
		tests: "TestHandoverNamesItsKey",
	},
	{
		name: "a hand-off found by its place only", rule: "Hand-off", file: "internal/handoff/waitlist.go", in: "internal/handoff",
		old: `q := l.keys[h.key]
	if q == nil {
		return
	}`,
		new: `var q *keyQueue
	for _, other := range l.keys {
		for _, w := range other.waiters {
			if w.Entry == h.entry {
				q = other
			}
		}
	}
	if q == nil {
		return
	}`,
		tests: "TestHandoverNamesItsKey",
	},
	{
		name: "a grant leaves its place in the queue", rule: "17", file: "acquire.lua",
		old: `if entry then
  pcall(`,
		new: `if false then
  pcall(`,
		tests: "TestGrantTakesItsPlaceOut",
	},
	{
		name: "a grant that no replica confirmed keeps others out", rule: "15", file: "queue.go",
		old:   ` || errors.Is(err, ErrNotReplicated)`,
		new:   ``,
		tests: "TestUnconfirmedWaiter",
	},
	{
		name: "grants that end at once are retried without a pause", rule: "15", file: "queue.go",
		old:   `if !sleep(ctx, r.cfg.pause(r.attempts, 0)) {`,
		new:   `if ctx.Err() != nil {`,
		tests: "TestHopelessGrants",
	},
	{
		name: "a lost queue is forgotten", rule: "15", file: "internal/handoff/looks.go", in: "internal/handoff",
		old:   `other.queued = false`,
		new:   ``,
		tests: "TestLostQueueIsRemembered",
	},
	{
		name: "a grant that no replica confirmed ends a wait", rule: "18", file: "queue.go",
		old:   `case r.attempts == 1 || !regranted(err):`,
		new:   `default:`,
		tests: "TestUnconfirmedWaiter",
	},
	{
		name: "a waiter that was never queued leaves the queue", rule: "21", file: "queue.go",
		old:   `case sent:`,
		new:   `case true:`,
		tests: "TestWaiterThatWasNeverQueued",
	},
}
