package main

// replicas are mistakes about WithReplicas.
var replicas = []mutant{
	{
		name: "a grant without its replicas", rule: "Replicas", file: "set_nx_px_replicas.go",
		old:   `case got < int64(replicas):`,
		new:   `case false:`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "WAIT on another connection", rule: "Replicas", file: "internal/node/courier.go",
		old: `_ = pipe.Process(t, once{p.beside})
	_, err := pipe.Exec(t)`,
		new: `_, err := pipe.Exec(t)
	_ = client.Process(t, once{p.beside})`,
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
		old:   `adoptCall(s.scripts.extend, p, s.limit...), p.place, p.replicas, p.replicaTimeout)`,
		new:   `adoptCall(s.scripts.extend, p, s.limit...), p.place, 0, p.replicaTimeout)`,
		tests: "TestAdoptedLockIsOnReplicas",
	},
}
