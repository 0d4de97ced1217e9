package main

// fences are mistakes about fences, companions and scripts of one node.
var fences = []mutant{
	{
		name: "a fence that does not grow", rule: "Fencing", file: "fence.lua",
		old:   `1, pcall('INCR', KEYS[2])`,
		new:   `1, tonumber(redis.call('GET', KEYS[2]) or '0')`,
		tests: conformance + "fences grow",
	},
	{
		name: "a fence by the register alone", rule: "Fencing", file: "fence.lua",
		old:   `if fence - more < now - slack then`,
		new:   `if false then`,
		tests: "TestFencesOfOneNodeGrow",
	},
	{
		name: "a fence by the clock alone", rule: "Fencing", file: "quorum_acquire.lua",
		old:   `local fence = math.max(counter + 1, redis.call('TIME')[1] * 1000000)`,
		new:   `local fence = redis.call('TIME')[1] * 1000000`,
		tests: "TestHealedQuorumIssuesNoOlderFence",
	},
	{
		name: "companions named by the tag only", rule: "SetNXPX", file: "keys.go",
		old:   `return "{" + slotTag(key) + "}:" + kind + ":" + key`,
		new:   `return "{" + slotTag(key) + "}:" + kind + ":"`,
		tests: "TestHealEndsWithTheLease",
	},
	{
		name: "companions in another slot", rule: "SetNXPX", file: "keys.go",
		old:   `return "{" + slotTag(key) + "}:" + kind + ":" + key`,
		new:   `return "<" + slotTag(key) + ">:" + kind + ":" + key`,
		tests: "TestHealEndsWithTheLease",
	},
	{
		name: "a key without room for companions is accepted on a cluster", rule: "SetNXPX", file: "keys.go",
		old:   `return !strings.Contains(slotTag(key), "}")`,
		new:   `return true`,
		tests: "TestClusterKeepsALockInOneSlot",
	},
	{
		name: "a script that the server forgot", rule: "SetNXPX", file: "internal/node/courier.go",
		old:   `redis.HasErrorPrefix(err, "NOSCRIPT")`,
		new:   `redis.HasErrorPrefix(err, "NO SCRIPT")`,
		tests: conformance + "SCRIPT FLUSH",
	},
	{
		name: "an acquire with a fence that is rounded", rule: "19", file: "fence.lua",
		old:   `fence >= 2^53`,
		new:   `fence >= 2^63`,
		tests: "TestNoFenceIsRounded/SetNXPX/acquire",
	},
	{
		name: "a number that is too large for a fence is changed", rule: "19", file: "fence.lua",
		old:   `pcall('INCRBY', KEYS[2], -block)`,
		new:   ``,
		tests: "TestNoFenceIsRounded/SetNXPX/acquire",
	},
	{
		name: "an adoption with a fence that is rounded", rule: "19", file: "fence.lua",
		old:   `fence >= 2^53`,
		new:   `fence >= 2^63`,
		tests: "TestNoFenceIsRounded/SetNXPX/adopt",
	},
	{
		name: "a hand-over with a fence that is rounded", rule: "19", file: "fence.lua",
		old:   `fence >= 2^53`,
		new:   `fence >= 2^63`,
		tests: "TestHandOverWithoutAFenceLocksNothing/SetNXPX",
	},
	{
		name: "a permit with a fence that is rounded", rule: "19", file: "fence.lua",
		old:   `fence >= 2^53`,
		new:   `fence >= 2^63`,
		tests: "TestNoFenceIsRounded/Semaphore",
	},
	{
		name: "a vote that is rounded", rule: "19", file: "quorum_acquire.lua",
		old:   `counter < 2^53 - 1`,
		new:   `counter < 2^63`,
		tests: "TestNoFenceIsRounded/Redlock/acquire",
	},
	{
		name: "a vote of an adoption that is rounded", rule: "19", file: "quorum_extend.lua",
		old:   `counter < 2^53 - 1`,
		new:   `counter < 2^63`,
		tests: "TestNoFenceIsRounded/Redlock/adopt",
	},
	{
		name: "other data of one node taken for a fence", rule: "19", file: "quorum_raise.lua",
		old:   `counter < 2^53 - 1`,
		new:   `counter < 2^63`,
		tests: "TestOtherDataOnOneNodeRaiseNoFence",
	},
	{
		name: "a hand-over changes a number that is too large for a fence", rule: "19", file: "fence.lua",
		old:   `pcall('INCRBY', KEYS[2], -block)`,
		new:   ``,
		tests: "TestHandOverWithoutAFenceLocksNothing/SetNXPX",
	},
	{
		name: "a permit changes a number that is too large for a fence", rule: "19", file: "fence.lua",
		old:   `pcall('INCRBY', KEYS[2], -block)`,
		new:   ``,
		tests: "TestNoFenceIsRounded/Semaphore",
	},
	{
		name: "one of several permits has a block of fences", rule: "Fencing, 44", file: "semaphore_acquire.lua",
		old:   `mint(limit == 1 and want or 1)`,
		new:   `mint(want)`,
		tests: "TestOneOfSeveralPermitsHasOneFence",
	},
	{
		name: "one of several permits is handed on with a block of fences", rule: "Fencing, 44", file: "semaphore.lua",
		old:   `mint(limit == 1 and 64 or 1)`,
		new:   `mint(64)`,
		tests: "TestSeveralPermitsAreNotPassedOn",
	},
}
