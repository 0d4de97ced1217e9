package main

// callers are mistakes about callers that carry their operation out themselves.
var callers = []mutant{
	{
		name: "a stray acquire is not looked for", rule: "4", file: "job.go",
		old:   `if j.stray {`,
		new:   `if false {`,
		tests: "TestStragglerThatLandsLastIsUndone",
	},
	{
		name: "a stray acquire is looked for where callers carry it out alone", rule: "4", file: "node.go",
		old:   `j.stray = j.stray || strays(err)`,
		new:   `j.stray = j.stray || j.here && strays(err)`,
		tests: "TestStragglerThatLandsLastIsUndone",
	},
	{
		name: "a stray that overtakes Unlock", rule: "7", file: "stray.go",
		old:   `if c.life.settled() {`,
		new:   `if c.life.state.Load() != 0 {`,
		tests: "TestStrayIsLeftToUnlock",
	},
	{
		name: "a failed operation is not sent again", rule: "3", file: "near.go",
		old:   `if j.failed != nil && stay() && !j.settled.Load() {`,
		new:   `if false {`,
		tests: "TestNearLostReply",
	},
	{
		name: "a release ends with who waited for it", rule: "8", file: "near.go",
		old:   `case j.last && err != nil && !answered(err) && !errors.Is(err, ErrLost):`,
		new:   `case false:`,
		tests: "TestNearReleaseIsCarriedOut",
	},
	{
		name: "a release sent again is as if for the first time", rule: "7", file: "near.go",
		old:   `resent: !neverLeft(err) && !answered(err),`,
		new:   `resent: false,`,
		tests: "TestNearLostReply",
	},
	{
		name: "a release whose caller left before its script was missed", rule: "8", file: "near.go",
		old:   `(!answered(err) || redis.HasErrorPrefix(err, "NOSCRIPT"))`,
		new:   `!answered(err)`,
		tests: "TestAbandonedRelease",
	},
	{
		name: "the ctx of a command never ends", rule: "Clients", file: "near.go",
		old:   `if j.settle(g, err) {`,
		new:   `if !j.settled.Load() {`,
		tests: "TestNearCommandsMayBeKept",
	},
	{
		name: "a hung pipeline takes whatever comes", rule: "8", file: "crew.go",
		old:   `if c.flights >= c.most && c.silentSince(c.crowded) && !j.last {`,
		new:   `if false {`,
		tests: "TestHungPipelineIsShed",
	},
	{
		name: "a hung pipeline is sent no release", rule: "8", file: "crew.go",
		old:   `c.silentSince(c.crowded) && !j.last {`,
		new:   `c.silentSince(c.crowded) {`,
		tests: "TestHungPipelineIsShed|TestShedWaiter",
	},
	{
		name: "a waiter that was not sent is sent away", rule: "8", file: "queue.go",
		old:   `case sent:`,
		new:   `case true:`,
		tests: "TestShedWaiter",
	},
	{
		name: "a shed retry passes for never sent", rule: "4", file: "crew.go",
		old:   `if j.resent {`,
		new:   `if false {`,
		tests: "TestShedRetry",
	},
	{
		name: "a second command in the words of the first", rule: "Clients", file: "node.go",
		old:   `if j.words[0] != nil {`,
		new:   `if false {`,
		tests: "TestNearCommandsMayBeKept",
	},
	{
		name: "another pipeline than the one that is used tells of a window", rule: "8", file: "near.go",
		old:   `if !pipeline.Config().FullDuplex {`,
		new:   `if !client.Config().FullDuplex {`,
		tests: "TestFullDuplexPipeline",
	},
	{
		name: "a deferred command taken for carried out", rule: "Clients", file: "node.go", in: "internal/system",
		old:   `return cmd.Err() // of a deferred pipeline: it waits until the command is carried out`,
		new:   `return nil`,
		tests: "TestDeferredPipelinesAreServed",
	},
	{
		name: "an end from within taken for the trouble", rule: "Clients", file: "job.go",
		old:   `if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {`,
		new:   `if false {`,
		tests: "TestOutageIsNoCancellation",
	},
}
