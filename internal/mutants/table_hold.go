package main

// minHolds are mistakes about WithMinHold.
var minHolds = []mutant{
	{
		name: "a lock is not kept until its minimum hold has passed", rule: "37", file: "lease.go",
		old:   `p.keep = l.toKeep()`,
		new:   `_ = l.toKeep()`,
		tests: "TestMinHoldKeepsOthersOut",
	},
	{
		name: "nobody is handed the lock when its minimum hold has passed", rule: "37", file: "lease.go",
		old:   `time.AfterFunc(keep, l.handOnLater)`,
		new:   `_ = l.handOnLater`,
		tests: "TestMinHoldHandsOnWhenItEnds",
	},
	{
		name: "a key that has expired is not handed on", rule: "37", file: "release.lua",
		old:   `(holder or ARGV[1] == '' or ARGV[4] ~= 'free')`,
		new:   `true`,
		tests: "TestKeptLockIsHandedOnThoughItHasExpired",
	},
	{
		name: "the end of a minimum hold takes the lock from its next owner", rule: "37", file: "release.lua",
		old:   `(holder or ARGV[1] == '' or ARGV[4] ~= 'free')`,
		new:   `(ARGV[1] == '' or ARGV[4] ~= 'free')`,
		tests: "TestMinHoldLeavesTheNextOwnerAlone",
	},
	{
		name: "a crash ends the minimum hold", rule: "37", file: "engine.go",
		old:   `ttl := max(r.cfg.ttl, (r.cfg.minHold + time.Millisecond - 1).Truncate(time.Millisecond))`,
		new:   `ttl := r.cfg.ttl`,
		tests: "TestMinHoldOutlastsACrash",
	},
	{
		name: "a kept lock lasts for its TTL", rule: "37", file: "extend.lua",
		old:   `if ARGV[3] or redis.call('PTTL'`,
		new:   `if redis.call('PTTL'`,
		tests: "TestMinHoldSurvivesLostReplies",
	},
	{
		name: "a lock that another took is released without an error", rule: "7, 37", file: "operations.go",
		old: `answer < 0 {
		return 0, errTaken
	}
	return answer, err
}`,
		new: `answer < 0 {
		return 0, nil
	}
	return answer, err
}`,
		tests: "TestMinHoldLeavesTheNextOwnerAlone",
	},
}
