package main

// couriers are mistakes about the goroutines that carry the calls of a node, their number, and the order of calls
// for a key.
var couriers = []mutant{
	{
		name: "an ordered call does not wait for the one before it", rule: "4", file: "internal/node/lane.go",
		old:   `if before == nil {`,
		new:   `if before == nil || true {`,
		tests: "TestOrderedCallsAreSentOneAfterTheOther",
	},
	{
		name: "an ordered call waits for calls on other keys", rule: "24", file: "internal/node/lane.go",
		old: `before := n.lanes[c.Key]`,
		new: `c.Key = ""
	before := n.lanes[c.Key]`,
		tests: "TestOrderedCallsAreSentOneAfterTheOther",
	},
	{
		name: "an ordered call waits for one that ended, however long it takes", rule: "21", file: "internal/node/node.go",
		old:   `n.passLaneLocked(c.ahead)`,
		new:   `_ = c.ahead`,
		tests: "TestEndedCallHoldsUpTheNext",
	},
	{
		name: "a call that timed out keeps its lane", rule: "24", file: "internal/node/node.go",
		old: `n.passLaneLocked(c)
`,
		new:   ``,
		tests: "TestCallBehindOneThatTimesOutIsSent",
	},
	{
		name: "a call that returns after its end keeps its lane", rule: "24", file: "internal/node/courier.go",
		old: `case c.over:
			n.leaveLaneLocked(c)`,
		new:   `case c.over:`,
		tests: "TestEndedCallThatReturnsFreesItsLane",
	},
	{
		name: "a call that ends in its lane lets the next one pass", rule: "4", file: "internal/node/lane.go",
		old:   `case behind != nil && ahead == nil:`,
		new:   `case behind != nil:`,
		tests: "TestCallThatEndsInItsLaneIsNeverSent",
	},
	{
		name: "a stuck courier is not written off", rule: "21, 24", file: "internal/node/node.go",
		old:   `if t.live--; t.live == 0 {`,
		new:   `if t.live--; t.live < 0 {`,
		tests: "TestCourierWhoseCallsEndedIsReplaced",
	},
	{
		name: "a courier that was written off is not replaced", rule: "24", file: "internal/node/node.go",
		old: `n.lost++
		n.dispatchLocked()`,
		new:   `n.lost++`,
		tests: "TestCallsInTheMailboxFollowAStuckCourier",
	},
	{
		name: "a courier that was written off counts as busy", rule: "24", file: "internal/node/node.go",
		old: `n.busy--
		n.lost++`,
		new:   `n.lost++`,
		tests: "TestCourierWhoseCallsEndedIsReplaced",
	},
	{
		name: "a courier that comes back counts as lost", rule: "24", file: "internal/node/courier.go",
		old: `n.lost--
			n.dispatchLocked()`,
		new:   `n.dispatchLocked()`,
		tests: "TestCourierWhoseCallsEndedIsReplaced",
	},
	{
		name: "an unlimited number of written-off couriers", rule: "24", file: "internal/node/node.go",
		old:   `n.busy < n.most && n.lost < n.mostLost`,
		new:   `n.busy < n.most`,
		tests: "TestCourierWhoseCallsEndedIsReplaced",
	},
	{
		name: "an unlimited number of couriers", rule: "24", file: "internal/node/node.go",
		old:   `n.busy < n.most && n.lost < n.mostLost`,
		new:   `n.lost < n.mostLost`,
		tests: "TestNothingWaitsForABatchToFill|TestStoppedServerPilesUpNothing",
	},
	{
		name: "a slow node takes all connections", rule: "24", file: "internal/node/node.go",
		old:   `n.most = max(1, connections(client)/2)`,
		new:   `n.most = singleCouriers`,
		tests: "TestSlowCallsDoNotHoldUpOthers",
	},
	{
		name: "a silent server is not noticed", rule: "15, 24", file: "internal/node/node.go",
		old:   `n.silent = true`,
		new:   `_ = n.silent`,
		tests: "TestSilentIsANode",
	},
	{
		name: "a node that answered during the call is silent", rule: "15", file: "internal/node/node.go",
		old:   `if n.answered < c.deadline-c.Timeout {`,
		new:   `if true {`,
		tests: "TestSilentIsANode",
	},
	{
		name: "the first send to a silent server gets the whole timeout", rule: "24", file: "internal/node/courier.go",
		old:   `(c.deadline-now)/4`,
		new:   `(c.deadline-now)`,
		tests: "TestSilentNodeTriesAnotherConnection",
	},
	{
		name: "a release with a chosen token gets a quarter of the timeout", rule: "23", file: "internal/node/courier.go",
		old:   `if c.trip == nil && c.Then == nil && !c.NoResend {`,
		new:   `if c.trip == nil && c.Then == nil {`,
		tests: "TestOnceWaitsForASlowReplyAfterSilence",
	},
	{
		name: "calls to a silent server are sent in batches", rule: "24", file: "internal/node/courier.go",
		old:   `if n.silent || c.Then != nil {`,
		new:   `if c.Then != nil {`,
		tests: "TestSilentNodeTriesAnotherConnection",
	},
	{
		name: "a send that its call has left behind counts as never sent", rule: "23", file: "internal/node/node.go",
		old: `c.unclear = true
		n.getOff`,
		new:   `n.getOff`,
		tests: "TestCallThatGoesOnWithoutItsFirstSend",
	},
	{
		name: "Late is not called for a send that its call has left behind", rule: "22", file: "internal/node/courier.go",
		old:   ` || !aboard && r.Err != nil`,
		new:   ``,
		tests: "TestCallThatGoesOnWithoutItsFirstSend",
	},
	{
		name: "a send that its call has left behind counts as one in its turn", rule: "4, 22", file: "internal/node/courier.go",
		old:   ` || c.overtaken || !aboard`,
		new:   ` || c.overtaken`,
		tests: "TestSendThatWasLeftBehindIsOvertaken",
	},
	{
		name: "the reply to a send that its call has left behind is ignored", rule: "23", file: "internal/node/courier.go",
		old:   `case r.Err == nil, aboard && !again:`,
		new:   `case aboard && r.Err == nil, aboard && !again:`,
		tests: "TestFirstReplyEndsACall",
	},
	{
		name: "a call is sent again for a send that it has left behind", rule: "23", file: "internal/node/courier.go",
		old: `case !aboard:
`,
		new: `case false:
`,
		tests: "TestCallThatGoesOnWithoutItsFirstSend",
	},
	{
		name: "a send that its call has left behind frees the lane", rule: "4", file: "internal/node/lane.go",
		old:   `if !c.Ordered || c.place == travelling {`,
		new:   `if !c.Ordered {`,
		tests: "TestSendThatWasLeftBehindFreesNoLane",
	},
	{
		name: "a call is reused while a courier still has it", rule: "21", file: "internal/node/node.go",
		old:   `if r.Err == nil && !r.Resent {`,
		new:   `if r.Err == nil {`,
		tests: "TestCallThatACourierStillHasIsNotReused",
	},
	{
		name: "a courier does not wait for the next calls of those that it has served", rule: "Couriers", file: "internal/node/courier.go",
		old: `		n.yieldLocked()
`,
		new:   ``,
		tests: "TestAnsweredCallersTravelTogether",
	},
	{
		name: "calls behind a full batch wait for its courier", rule: "21", file: "internal/node/courier.go",
		old: `	n.dispatchLocked()
	return t`,
		new:   `	return t`,
		tests: "TestCallsBehindACourierThatYielded",
	},
}
