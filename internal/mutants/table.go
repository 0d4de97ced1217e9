package main

import "slices"

// A mutant is a mistake that the tests must catch: one text of one file replaced by another.
type mutant struct {
	name     string // what is wrong, as a phrase
	rule     string // the rule that it breaks, by the number the tests use, or what it is about
	file     string // relative to the module's root
	old, new string // old must occur exactly once
	tests    string // as go test -run has it: those that are meant to fail, and quick ones, of any packages
}

// conformance is the path to the cases of the conformance table, on the server that is quickest to
// start.
const (
	conformance = "TestConformance/SetNXPX$/miniredis/"
)

// mutants is the whole table, by topic.
var mutants = slices.Concat(
	grants, ends, renewals, waits, queues, places, turns, passes, handles, recoveries, channels, inputs, fences, quorums, nodes, couriers,
	lates, minHolds, doing, replicas, migrations, clients, legacies, semaphores, failures, reports, testings, scheduling, commands,
)
