package main

// callers are mistakes about callers that carry their operation out themselves.
var callers = []mutant{
	{
		name: "a stray acquire is not looked for", rule: "4", file: "near.go",
		old:   `if j.stray && j.undo != nil {`,
		new:   `if false {`,
		tests: "TestNearStraggler",
	},
	{
		name: "a failed operation is not sent again", rule: "3", file: "near.go",
		old:   `if j.failed != nil {`,
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
		name: "a deferred command taken for carried out", rule: "Clients", file: "node.go",
		old:   `return cmd.Err() // of a deferred pipeline: it waits until the command is carried out`,
		new:   `return nil`,
		tests: "TestDeferredPipelinesAreServed",
	},
}
