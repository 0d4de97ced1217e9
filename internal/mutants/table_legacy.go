package main

// legacies are mistakes about LegacySetNX.
var legacies = []mutant{
	{
		name: "a legacy loser that writes", rule: "LegacySetNX", file: "legacy_acquire.lua",
		old: `local refusal = {math.min(left, 9e12)}`,
		new: `local refusal = {math.min(left, 9e12)}
redis.call('GETSET', KEYS[1], stamp)`,
		tests: "TestLegacyLoserWritesNothing",
	},
	{
		name: "a legacy lock that its value alone proves", rule: "LegacySetNX", file: "legacy_release.lua",
		old:   `if redis.call('GET', KEYS[2]) ~= ARGV[1] then`,
		new:   `if false then`,
		tests: "TestLegacyLateUnlockLeavesTheSuccessor",
	},
	{
		name: "a legacy lock that its owner alone proves", rule: "LegacySetNX", file: "legacy_extend.lua",
		old:   `if redis.call('GET', KEYS[3]) ~= value then`,
		new:   `if false then`,
		tests: "TestLegacyForeignLoserIsNoticed|TestLegacyFrozenLoser",
	},
	{
		name: "a legacy release after its time", rule: "LegacySetNX", file: "legacy_release.lua",
		old:   `if now > tonumber(value) then`,
		new:   `if false then`,
		tests: "TestLegacyLateUnlock|TestLegacyOnlyWhatIsExactly",
	},
	{
		name: "a legacy acquire that comes again shortens the lease", rule: "4", file: "legacy_acquire.lua",
		old:   `if tonumber(stamp) > till then`,
		new:   `if true then`,
		tests: "TestLegacyLeaseIsNeverShortened",
	},
	{
		name: "no look after a legacy takeover", rule: "LegacySetNX", file: "legacy_setnx.go",
		old:   `return acquireReply{more: mostPasses, recheckAfter: takeoverLook}, nil`,
		new:   `return acquireReply{more: mostPasses}, nil`,
		tests: "TestLegacyForeignLoserIsNoticed",
	},
	{
		name: "the clock of this machine although that of Redis was asked for", rule: "LegacySetNX", file: "legacy_setnx.go",
		old:   `if t.serverTime {`,
		new:   `if false {`,
		tests: "TestLegacyServerTime",
	},
	{
		name: "a legacy lock that ends a second early", rule: "LegacySetNX", file: "legacy_acquire.lua",
		old:   `if now > till then`,
		new:   `if now >= till then`,
		tests: "TestLegacyTimeEndsWithItsSecond",
	},
	{
		name: "a legacy waiter looks when the lease can have ended", rule: "LegacySetNX", file: "ask.go",
		old:   `if refusal.lookWithin > 0 {`,
		new:   `if false {`,
		tests: "TestLegacyWaiterLooksOnceASecond/miniredis",
	},
}
