package main

// minHolds are mistakes about WithMinHold.
var minHolds = []mutant{
	{
		name: "a late reply that says queued releases the lock of an adopter", rule: "4, 7", file: "operations.go",
		old:   `release.target = p.withoutToken()`,
		new:   `release.target = &p.target`,
		tests: "TestLateAcquireLeavesWhoeverHasItsToken",
	},
	{
		name: "the late reply to a grant releases the lock of an adopter", rule: "4, 7", file: "strategy.go",
		old:   `&& !s.again.Load()`,
		new:   ``,
		tests: "TestLateAcquireLeavesWhoeverHasItsToken/lost",
	},
	{
		name: "the late reply to a grant ends the minimum hold", rule: "4, 37", file: "strategy.go",
		old: `case held, kept:
		return errors`,
		new: `case held, kept:
		return err == nil || errors`,
		tests: "TestLateAcquireLeavesWhoeverHasItsToken/kept",
	},
	{
		name: "a lock is not kept until its minimum hold has passed", rule: "37", file: "unlock.go",
		old:   `p.keep = l.toKeep()`,
		new:   `_ = l.toKeep()`,
		tests: "TestMinHoldKeepsOthersOut",
	},
	{
		name: "nobody is handed the lock when its minimum hold has passed", rule: "37", file: "unlock.go",
		old:   `time.AfterFunc(p.keep, func() { l.handOnLater(p) })`,
		new:   `_ = l.handOnLater`,
		tests: "TestMinHoldHandsOnWhenItEnds",
	},
	{
		name: "a key that has expired is not handed on", rule: "37", file: "release.lua",
		old:   `(not keeper or holder and holder ~= keeper)`,
		new:   `holder ~= keeper`,
		tests: "TestKeptLockIsHandedOnThoughItHasExpired",
	},
	{
		name: "the end of a minimum hold takes the lock from its next owner", rule: "37", file: "release.lua",
		old:   `(not keeper or holder and holder ~= keeper)`,
		new:   `not keeper`,
		tests: "TestMinHoldLeavesTheNextOwnerAlone",
	},
	{
		name: "a crash ends the minimum hold", rule: "37", file: "engine.go",
		old:   `ttl := max(r.cfg.ttl, (r.cfg.minHold + time.Millisecond - 1).Truncate(time.Millisecond))`,
		new:   `ttl := r.cfg.ttl`,
		tests: "TestMinHoldOutlastsACrash",
	},
	{
		name: "a kept lock lasts for its TTL", rule: "37", file: "release.lua",
		old:   `call('SET', KEYS[1], keeper, 'PX', keep)`,
		new:   `call('SET', KEYS[1], keeper, 'PX', 60 * keep)`,
		tests: "TestMinHoldSurvivesLostReplies",
	},
	{
		name: "a token keeps the key until the minimum hold has passed", rule: "37", file: "release.lua",
		old:   `call('SET', KEYS[1], keeper, 'PX', keep)`,
		new:   `keeper = ARGV[1]`,
		tests: "TestKeptKeyIsNobodysLock/SetNXPX",
	},
	{
		name: "a token keeps the nodes until the minimum hold has passed", rule: "37", file: "quorum_release.lua",
		old:   `redis.call('SET', KEYS[1], keeper, 'PX', keep)`,
		new:   `keeper = ARGV[1]`,
		tests: "TestKeptKeyIsNobodysLock/Redlock",
	},
	{
		name: "a token keeps the permit until the minimum hold has passed", rule: "37", file: "semaphore_release.lua",
		old:   `hold(keeper, keep)`,
		new:   `hold(token, keep)`,
		tests: "TestKeptKeyIsNobodysLock/Semaphore",
	},
	{
		name: "what keeps a key can be adopted", rule: "7, 37", file: "engine.go",
		old:   `case isKeeper(token):`,
		new:   `case false:`,
		tests: "TestKeptKeyIsNobodysLock",
	},
	{
		name: "what keeps a key can be acquired", rule: "20, 37", file: "options.go",
		old:   `case isKeeper(token):`,
		new:   `case false:`,
		tests: "TestKeptKeyIsNobodysLock",
	},
	{
		name: "the value that keeps a key is reported", rule: "37", file: "engine.go",
		old:   `if isKeeper(st.Token) {`,
		new:   `if false {`,
		tests: "TestKeptKeyIsNobodysLock",
	},
	{
		name: "a kept lock leaves its entry in the queue", rule: "25, 37", file: "release.lua",
		old:   `if own or nextEntry then pcall`,
		new:   `if not keep and (own or nextEntry) then pcall`,
		tests: "TestKeptLocksKeepTheOrder/SetNXPX",
	},
	{
		name: "a kept permit leaves its entry in the queue", rule: "25, 37", file: "semaphore_release.lua",
		old:   `if given(4) then`,
		new:   `if given(4) and not keep then`,
		tests: "TestKeptLocksKeepTheOrder/Semaphore",
	},
	{
		name: "a kept key counts as one that changed hands", rule: "27, 37", file: "internal/handoff/watch.go",
		old:   `!got.Kept && `,
		new:   ``,
		tests: "TestHandOverPassesNobody",
	},
	{
		name: "an outage cuts the minimum hold short", rule: "4, 37", file: "unlock.go",
		old: `p.keeper = newKeeper()
			l.endLocked(ErrReleased, kept)`,
		new: `p.keeper = newKeeper()
			l.endLocked(ErrReleased, releasing)`,
		tests: "TestKeptLockIsLeftByALateAcquire",
	},
	{
		name: "a release without a reply ends the minimum hold", rule: "4, 37", file: "unlock.go",
		old:   `if p.keep == 0 || !unknown {`,
		new:   `if true {`,
		tests: "TestMinHoldOutlastsAnOutage",
	},
	{
		name: "a clock that is set forward shortens the minimum hold", rule: "37", file: "unlock.go",
		old:   `l.engine.now().AtLeast(l.replied)`,
		new:   `l.engine.now().Since(l.replied)`,
		tests: "TestMinHoldCountsOnTheSlowerClock",
	},
	{
		name: "a minimum hold is rounded down", rule: "37", file: "unlock.go",
		old:   `max(left+time.Millisecond-1, 0)`,
		new:   `max(left, 0)`,
		tests: "TestMinHoldCountsOnTheSlowerClock",
	},
}
