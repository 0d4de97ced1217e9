package main

// queues are mistakes about the queue and the hand-off.
var queues = []mutant{
	{
		name: "a release that frees a key that is waited for", rule: "Hand-off", file: "release.lua",
		old:   `while queue do`,
		new:   `while false do`,
		tests: "TestReleaseLeavesNoGap",
	},
	{
		name: "last come, first served", rule: "Hand-off", file: "release.lua",
		old:   `pcall('ZPOPMIN', queue)`,
		new:   `pcall('ZPOPMAX', queue)`,
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
		old:   `if fence < now - 10000 then -- as acquire.lua has it`,
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
		old:   `if heard > 0 or ARGV[3] then`,
		new:   `if true then`,
		tests: "TestCrashedWaitersAreSkipped",
	},
	{
		name: "a waiter depends on its message", rule: "15", file: "queue.go",
		old:   `lookEvery = time.Second`,
		new:   `lookEvery = 10 * time.Second`,
		tests: "TestLostMessageCostsASecond",
	},
	{
		name: "a handed lock that is not claimed", rule: "Hand-off", file: "renewal.go",
		old:   `wanted := l.unclaimed`,
		new:   `wanted := false`,
		tests: "TestHandedLockIsClaimed/fixed",
	},
	{
		name: "a handed lock trusted for longer than it is kept", rule: "2", file: "queue.go",
		old:   `length := validity(d.claim, a.r.cfg.drift)`,
		new:   `length := validity(a.params.ttl, a.r.cfg.drift)`,
		tests: "TestHandedLockIsClaimed/fixed",
	},
	{
		name: "a handed lease that begins when the news arrives", rule: "2", file: "clock.go",
		old:   `age = max(age, 0)`,
		new:   `age = 0`,
		tests: "TestHandedLeaseNeverBeginsAfterRedisGranted",
	},
	{
		name: "a turn that the machine slept over", rule: "10", file: "clock.go",
		old:   `age := arrived.since(asked)`,
		new:   `age := arrived.mono.Sub(asked.mono)`,
		tests: "TestSleptOverItsTurn",
	},
	{
		name: "a message that promises more than a claim", rule: "Hand-off", file: "subscription.go",
		old:   `claim == 0 || claim > uint64(claimTime.Milliseconds())`,
		new:   `claim == 0`,
		tests: "TestHandoverIsReadStrictly",
	},
	{
		name: "a hand-off found by its token only", rule: "Hand-off", file: "waitlist.go",
		old: `in := b.keys[h.key]
	if in == nil {
		return
	}`,
		new: `var in *keyQueue
	for _, q := range b.keys {
		for _, w := range q.waiters {
			if w.token == h.token && (in == nil || q != b.keys[h.key]) {
				in = q
			}
		}
	}
	if in == nil {
		return
	}`,
		tests: "TestLocksDoNotShareAQueue|TestForgedMessages",
	},
	{
		name: "a token's next waiter has the place of its last", rule: "17", file: "queue.go",
		old:   `e.waitlist.waiters.Add(1)`,
		new:   `1`,
		tests: "TestNextWaiterWithAToken",
	},
	{
		name: "a lock that was handed to another place of its token leaves its own", rule: "17", file: "queue.go",
		old:   `if p.callerToken { // it may be`,
		new:   `if false { // it may be`,
		tests: "TestNextWaiterWithAToken",
	},
	{
		name: "a waiter that leaves deletes what was handed to a chosen token", rule: "4", file: "queue.go",
		old:   `if t.callerToken {`,
		new:   `if false {`,
		tests: "TestWaiterWithAChosenToken",
	},
	{
		name: "what no replica confirmed keeps others out", rule: "15", file: "queue.go",
		old:   ` || errors.Is(err, ErrNotReplicated)`,
		new:   ``,
		tests: "TestUnconfirmedWaiter",
	},
	{
		name: "grants in vain are asked for in a loop", rule: "15", file: "queue.go",
		old:   `if !sleep(ctx, r.cfg.pause(r.attempts, 0)) {`,
		new:   `if ctx.Err() != nil {`,
		tests: "TestHopelessGrants",
	},
	{
		name: "a lost queue is forgotten", rule: "15", file: "waitlist.go",
		old:   `other.queued = false`,
		new:   ``,
		tests: "TestLostQueueIsRemembered",
	},
	{
		name: "what no replica confirmed ends a wait", rule: "18", file: "queue.go",
		old:   `if r.attempts == 1 || !regranted(err) {`,
		new:   `if true {`,
		tests: "TestUnconfirmedWaiter",
	},
}
