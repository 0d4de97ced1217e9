package main

// replicas are mistakes about WithReplicas.
var replicas = []mutant{
	{
		name: "a grant without its replicas", rule: "Replicas", file: "set_nx_px.go",
		old:   `case got < int64(p.replicas):`,
		new:   `case false:`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "WAIT on another connection", rule: "Replicas", file: "internal/node/courier.go",
		old:   `_ = pipe.Process(t, once{p.then})`,
		new:   `_ = client.Process(t, once{p.then})`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "a waiter takes a lock that no replica confirmed", rule: "Replicas", file: "turn.go",
		old:   `case w.attempt.params.replicas > 0:`,
		new:   `case false:`,
		tests: "TestWaiterClaimsOnReplicas",
	},
	{
		name: "Adopt does not wait for replicas", rule: "Replicas", file: "set_nx_px.go",
		old:   `return fence, p.confirmed(r, err)`,
		new:   `return fence, err`,
		tests: "TestAdoptedLockIsOnReplicas",
	},
}
