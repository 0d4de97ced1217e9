package main

// fences are mistakes about fences, companions and scripts of one node.
var fences = []mutant{
	{
		name: "a fence that does not grow", rule: "Fencing", file: "acquire.lua",
		old:   `fence = math.max(fence + 1, now - now % (ARGV[3] or 1))`,
		new:   `fence = math.max(fence, 1)`,
		tests: conformance + "fences grow",
	},
	{
		name: "a fence by the counter alone", rule: "Fencing", file: "acquire.lua",
		old:   `fence = math.max(fence + 1, now - now % (ARGV[3] or 1))`,
		new:   `fence = fence + 1`,
		tests: "TestFencesOfOneNodeGrow",
	},
	{
		name: "a fence by the clock alone", rule: "Fencing", file: "acquire.lua",
		old:   `fence = math.max(fence + 1, now - now % (ARGV[3] or 1))`,
		new:   `fence = now - now % (ARGV[3] or 1)`,
		tests: "TestHealedQuorumIssuesNoOlderFence",
	},
	{
		name: "Adopt takes the next owner's fence", rule: "Fencing", file: "engine.go",
		old:   `case st.Token != token:`,
		new:   `case false:`,
		tests: "TestAdoptTakesNoOthersFence",
	},
	{
		name: "companions named by the tag only", rule: "SetNXPX", file: "keys.go",
		old:   `both := "{" + t + "}:fence:" + key + "{" + t + "}:queue:" + key`,
		new:   `both := "{" + t + "}:fence:" + "{" + t + "}:queue:"`,
		tests: "TestHourOfRenewals",
	},
	{
		name: "companions in another slot", rule: "SetNXPX", file: "keys.go",
		old:   `both := "{" + t + "}:fence:" + key + "{" + t + "}:queue:" + key`,
		new:   `both := "<" + t + ">:fence:" + key + "<" + t + ">:queue:" + key`,
		tests: "TestHourOfRenewals",
	},
	{
		name: "a key without room for companions taken on a cluster", rule: "SetNXPX", file: "keys.go", in: "internal/system",
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
