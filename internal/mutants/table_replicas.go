package main

// replicas are mistakes about WithReplicas.
var replicas = []mutant{
	{
		name: "a grant without its replicas", rule: "Replicas", file: "replicas.go",
		old:   `case got.replicas < c.replicas:`,
		new:   `case false:`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "WAIT on another connection", rule: "Replicas", file: "replicas.go",
		old: `_ = pipe.Process(j, once{wait})
	_, _ = pipe.Exec(j) // each command has its own error`,
		new: `_, _ = pipe.Exec(j)
	_ = client.Process(j, once{wait})`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "a waiter takes what was handed on unconfirmed", rule: "Replicas", file: "queue.go",
		old:   `case handed != nil && r.cfg.replicas > 0:`,
		new:   `case false:`,
		tests: "TestWaiterClaimsOnReplicas",
	},
	{
		name: "Adopt asks no replicas", rule: "Replicas", file: "set_nx_px.go",
		old: `if c.replicas > 0 {
		_, err := s.node.start`,
		new: `if false {
		_, err := s.node.start`,
		tests: "TestAdoptedLockIsOnReplicas",
	},
	{
		name: "a grant that writes nothing", rule: "Replicas", file: "acquire.lua",
		old:   `elseif not fence then`,
		new:   `elseif false then`,
		tests: "TestWhatGrantsWrites",
	},
	{
		name: "an extension that writes nothing", rule: "Replicas", file: "extend.lua",
		old:   `if wrote == 0 then`,
		new:   `if false then`,
		tests: "TestWhatGrantsWrites",
	},
}
