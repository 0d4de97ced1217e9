package main

// fences are mistakes about fences, companions and scripts of one node.
var fences = []mutant{
	{
		name: "a fence that does not grow", rule: "Fencing", file: "acquire.lua",
		old:   `local fence = pcall('INCR', KEYS[2])`,
		new:   `local fence = tonumber(redis.call('GET', KEYS[2]) or '0')`,
		tests: conformance + "fences grow",
	},
	{
		name: "a fence by the register alone", rule: "Fencing", file: "acquire.lua",
		old:   `if fence < now - slack then`,
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
		name: "a key without room for companions is accepted on a cluster", rule: "SetNXPX", file: "keys.go", in: "internal/system",
		old:   `return tagged || !strings.Contains(key, "}")`,
		new:   `return tagged || strings.Contains(key, key)`,
		tests: "TestClusterKeepsALockInOneSlot",
	},
	{
		name: "a script that the server forgot", rule: "SetNXPX", file: "internal/node/courier.go",
		old:   `redis.HasErrorPrefix(err, "NOSCRIPT")`,
		new:   `redis.HasErrorPrefix(err, "NO SCRIPT")`,
		tests: conformance + "SCRIPT FLUSH",
	},
}
