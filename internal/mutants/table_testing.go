package main

// testings are mistakes about redlatchtest.
var testings = []mutant{
	{
		name: "goroutines at the end of a bubble", rule: "redlatchtest", file: "redlatchtest/redlatchtest.go",
		old:   `if inBubble() {`,
		new:   `if false {`,
		tests: "TestNothingIsLeftRunning",
	},
	{
		name: "an outage that does not end with the test", rule: "redlatchtest", file: "redlatchtest/redlatchtest.go",
		old: `	l.Reconnect()
	l.mu.Lock()`,
		new:   `	l.mu.Lock()`,
		tests: "TestOutageEndsWithTheTest",
	},
	{
		name: "the lock of somebody else is not renewed", rule: "redlatchtest", file: "redlatchtest/redlatchtest.go",
		old:   `redlatch.WithTTL(theirTTL))`,
		new:   `redlatch.WithTTL(theirTTL), redlatch.WithoutRenewal())`,
		tests: "TestTheirLockIsRenewed",
	},
	{
		name: "hooks of a test report the locks of somebody else", rule: "redlatchtest", file: "redlatchtest/redlatchtest.go",
		old:   `redlatch.WithOwner(somebody), `,
		new:   `redlatch.WithOwner(somebody), opts[len(opts)-1], `,
		tests: "TestPrefixAndHooks",
	},
	{
		name: "a lock of somebody else that has expired and can be freed", rule: "redlatchtest", file: "redlatchtest/redlatchtest.go",
		old:   `if lock := l.forget(key); lock != nil {`,
		new:   `if lock := l.theirs[key]; lock != nil {`,
		tests: "TestMisuseFailsTheTest",
	},
	{
		name: "a release after an outage that nobody may send again", rule: "redlatchtest", file: "redlatchtest/network.go",
		old:   `case c.asked.Load():`,
		new:   `default:`,
		tests: "TestOutage$",
	},
}
