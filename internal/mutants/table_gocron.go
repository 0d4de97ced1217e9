package main

// scheduling are mistakes of the module gocron.
var scheduling = []mutant{
	{
		name: "IsLeader returns what was true at the election", rule: "10", file: "gocron/elector.go",
		old:   `cause = lock.Err()`,
		new:   `cause = nil`,
		tests: "TestIsLeaderJudgesTheLockAtEachCall",
	},
	{
		name: "a closed Elector still leads", rule: "38", file: "gocron/elector.go",
		old:   `case e.closed:`,
		new:   `case false:`,
		tests: "TestClosedElectorNeverLeads",
	},
	{
		name: "Close does not wait for the release", rule: "38", file: "gocron/elector.go",
		old: `	<-e.ended
`,
		new:   ``,
		tests: "TestCloseReportsWhatRedisDidNotConfirm",
	},
	{
		name: "a job that ends at once runs on each instance", rule: "37", file: "gocron/locker.go",
		old:   `if minHold != 0 {`,
		new:   `if minHold < 0 {`,
		tests: "TestEachTickRunsOnce$/with the shortest",
	},
	{
		name: "the name of a job is the key of another lock", rule: "gocron", file: "gocron/locker.go",
		old:   `keyPrefix+name`,
		new:   `name`,
		tests: "TestJobNameIsTheKey",
	},
}
