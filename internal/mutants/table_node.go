package main

// nodes are mistakes about the outcome of a call: sent, resent, done or not.
var nodes = []mutant{
	{
		name: "a call that ended is sent all the same", rule: "21", file: "internal/node/node.go",
		old: `c.inMail.remove()
	case travelling:`,
		new:   `case travelling:`,
		tests: "TestCallThatWasNeverSentNeverIs",
	},
	{
		name: "a call that ended in its pause is sent again", rule: "21", file: "internal/node/node.go",
		old: `if !c.over {
			n.sendLocked(c)`,
		new: `if true {
			n.sendLocked(c)`,
		tests: "TestPersistentCallGoesOn",
	},
	{
		name: "Late is not called for a call that failed after its end", rule: "22", file: "internal/node/courier.go",
		old:   `(c.over || first`,
		new:   `(c.over && !again || first`,
		tests: "TestEndedCallThatFailsIsLate",
	},
	{
		name: "a call whose ctx has ended is sent", rule: "21", file: "internal/node/node.go",
		old:   `if ctx.Err() != nil && !c.OutlivesCaller {`,
		new:   `if false {`,
		tests: "TestEndedCtxNeverSends",
	},
	{
		name: "a call in flight counts as not done", rule: "21", file: "internal/node/call.go",
		old:   `return c.unclear || c.place == travelling`,
		new:   `return c.unclear`,
		tests: "TestOutcomeOfACallUnderWayIsOpen",
	},
	{
		name: "a cut connection counts as never sent", rule: "21, 23", file: "internal/node/courier.go",
		old:   `c.unclear = c.unclear || possibly || failed != nil`,
		new:   `c.unclear = c.unclear || possibly && timedOut(err) || failed != nil`,
		tests: "TestCallKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "after a refusal an earlier send counts as not carried out", rule: "21, 23", file: "internal/node/courier.go",
		old:   `c.unclear = c.unclear || possibly || failed != nil`,
		new:   `c.unclear = possibly || failed != nil`,
		tests: "TestCallKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "a first command that was carried out counts as not done", rule: "21, 23", file: "internal/node/courier.go",
		old:   `c.unclear = c.unclear || possibly || failed != nil`,
		new:   `c.unclear = c.unclear || possibly`,
		tests: "TestSecondCommandIsPartOfItsCall",
	},
	{
		name: "a call that another continues counts as not done", rule: "21", file: "internal/node/node.go",
		old:   `c.unclear = true // the new call may be carried out`,
		new:   ``,
		tests: "TestPersistentCallThatWasNeverSentIsOpen",
	},
	{
		name: "an answer of the server counts as not done", rule: "21", file: "internal/node/node.go",
		old:   ` && !Answered(r.Err) {`,
		new:   ` {`,
		tests: "TestCallKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "Resent is not set", rule: "23", file: "internal/node/node.go",
		old: `r.Resent = c.unclear
`,
		new: `r.Resent = false
`,
		tests: "TestCallKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "a call that ends without a reply does not say that it was sent before", rule: "23", file: "internal/node/node.go",
		old: `r.Resent = c.unclear
`,
		new:   ``,
		tests: "TestCallWithoutAReplySaysThatItWasSent",
	},
	{
		name: "the ctx of a command never ends", rule: "Clients", file: "internal/node/courier.go",
		old: `if !t.writtenOff {
		close(t.done)`,
		new: `if false {
		close(t.done)`,
		tests: "TestHookSeesWordsThatStay|TestOnlyCallOfABatch",
	},
	{
		name: "a reply after the end of its call is not late", rule: "22", file: "internal/node/courier.go",
		old:   `(c.over || first`,
		new:   `(first`,
		tests: "TestOutcomeOfACallUnderWayIsOpen",
	},
	{
		name: "a reply after Unwatch is not late", rule: "22", file: "internal/node/courier.go",
		old:   ` || c.unwatched && !again)`,
		new:   `)`,
		tests: "TestReplyToACallThatWasLeftIsLate|TestCallThatWasLeftGoesOn",
	},
	{
		name: "a reply in time is late too", rule: "22", file: "internal/node/courier.go",
		old:   `(c.over || first`,
		new:   `(!again || c.over || first`,
		tests: "TestReplyToACallThatWasLeftIsLate",
	},
	{
		name: "Late is not called for a send that may be carried out later", rule: "22", file: "internal/node/courier.go",
		old:   `(c.over || first`,
		new:   `(c.over`,
		tests: "TestLateKnowsOnceOfASendThatMayStillRun",
	},
	{
		name: "Late is called twice for a send that may be carried out later", rule: "22", file: "internal/node/courier.go",
		old:   `first := MayStillRun(r.Err) && !c.lateReported`,
		new:   `first := MayStillRun(r.Err)`,
		tests: "TestLateKnowsOnceOfASendThatMayStillRun",
	},
	{
		name: "a failed dial counts as a send that may be carried out later", rule: "22", file: "internal/node/courier.go",
		old:   `first := MayStillRun(r.Err)`,
		new:   `first := timedOut(r.Err)`,
		tests: "TestLateKnowsOnceOfASendThatMayStillRun",
	},
	{
		name: "what continues a call may be sent twice", rule: "23", file: "internal/node/node.go",
		old:   `Timeout: c.Timeout, NoResend: c.NoResend, Ordered`,
		new:   `Timeout: c.Timeout, Ordered`,
		tests: "TestContinuedCallIsSentOnce",
	},
	{
		name: "a call that was overtaken does not say so", rule: "22", file: "internal/node/lane.go",
		old:   `c.overtaken = true`,
		new:   `break`,
		tests: "TestEndedCallHoldsUpTheNext",
	},
	{
		name: "an impatient call overtakes only the one before it", rule: "22", file: "internal/node/lane.go",
		old:   `for ; c != nil; c = c.ahead {`,
		new:   `for range 1 {`,
		tests: "TestImpatientCallOvertakesAllBeforeIt",
	},
	{
		name: "a release ends with the ctx of its caller", rule: "8, 22", file: "internal/node/call.go",
		old: `if c.OutlivesCaller {
		return Reply{Err: cut}`,
		new: `if false {
		return Reply{Err: cut}`,
		tests: "TestPersistentCallGoesOn",
	},
	{
		name: "a release ends with its timeout", rule: "22", file: "internal/node/node.go",
		old:   `if c.OutlivesCaller && (`,
		new:   `if false && (`,
		tests: "TestPersistentCallGoesOn",
	},
	{
		name: "a release that may have been carried out is sent again although the caller chose the token", rule: "23", file: "internal/node/courier.go",
		old:   `refusesWrites(err)) && (!c.NoResend || !c.unclear)`,
		new:   `refusesWrites(err))`,
		tests: "TestOnceIsNotSentAgain",
	},
	{
		name: "another call continues a release with a chosen token that is in flight", rule: "23", file: "internal/node/node.go",
		old:   `(!c.NoResend || !c.mayBeDone())`,
		new:   `(!c.NoResend || !c.unclear)`,
		tests: "TestOnceIsNotSentAgainWhileItIsUnderWay",
	},
	{
		name: "a release with a chosen token that is never sent is forgotten", rule: "22", file: "internal/node/node.go",
		old:   `(!c.NoResend || !c.mayBeDone())`,
		new:   `!c.NoResend`,
		tests: "TestPersistentCallThatWasNeverSentIsOpen",
	},
	{
		name: "a release with a chosen token is sent again like any other", rule: "23", file: "operations.go",
		old:   `c.OutlivesCaller, c.NoResend = true, p.callerToken`,
		new:   `c.OutlivesCaller, c.NoResend = true, false`,
		tests: "TestReleaseOfAChosenToken",
	},
	{
		name: "BUSY is final", rule: "23", file: "internal/node/errors.go",
		old:   `"BUSY ", `,
		new:   ``,
		tests: "TestRetryableRefusals|TestLongScript",
	},
	{
		name: "a failed dial is final", rule: "23", file: "internal/node/errors.go",
		old:   `return Unreachable(err) || // a dial`,
		new:   `return !Unreachable(err) && // a dial`,
		tests: "TestCallKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "calls are sent again without a pause", rule: "24", file: "internal/node/node.go",
		old:   `c.pause = min(max(2*c.pause, firstPause), lastPause)`,
		new:   `c.pause = time.Microsecond`,
		tests: "TestPersistentCallGoesOn",
	},
	{
		name: "a script that is sent whole overwrites the words of the first send", rule: "Clients", file: "internal/node/courier.go",
		old:   `c.words = append([]any{"eval", &c.script.source}, c.words[2:]...)`,
		new:   `c.words[0], c.words[1] = "eval", &c.script.source`,
		tests: "TestHookSeesWordsThatStay",
	},
	{
		name: "a pipeline that failed counts as nil replies", rule: "21", file: "internal/node/courier.go",
		old:   `cmd.Err() == nil && cmd.Val() == nil {`,
		new:   `false {`,
		tests: "TestHookThatFailsIsTriedAgain",
	},
	{
		name: "a deferred command is waited for under the mutex", rule: "Clients", file: "internal/node/courier.go",
		old:   `_ = cmd.Err() // with a deferred pipeline this waits for the reply`,
		new:   ``,
		tests: "TestDeferredCommandHoldsUpNoTimeout",
	},
	{
		name: "a batch has the values of its first caller", rule: "Clients", file: "internal/node/courier.go",
		old:   `if t.live == 1 {`,
		new:   `if t.live >= 1 {`,
		tests: "TestOnlyCallOfABatchLendsItsCtx",
	},
	{
		name: "a call with a second command is sent in a batch", rule: "Clients", file: "internal/node/courier.go",
		old:   ` && (c.Then == nil || most == 1);`,
		new:   `;`,
		tests: "TestCallWithASecondCommandTravelsAlone",
	},
	{
		name: "a timeout does not report the error of its call", rule: "16", file: "internal/node/call.go",
		old:   `return cmp.Or(c.trouble, c.node.trouble)`,
		new:   `return c.node.trouble`,
		tests: "TestNoReplySaysWhy|TestPersistentCallGoesOn",
	},
	{
		name: "a timeout does not report the error of another call", rule: "16", file: "internal/node/call.go",
		old:   `return cmp.Or(c.trouble, c.node.trouble)`,
		new:   `return c.trouble`,
		tests: "TestNoReplySaysWhy",
	},
	{
		name: "a timeout reports the error of another call from before an answer", rule: "16", file: "internal/node/courier.go",
		old:   `n.trouble = nil`,
		new:   ``,
		tests: "TestReplyOfTheServerEndsTheTrouble",
	},
	{
		name: "the end of ctx does not report the error of its call", rule: "16", file: "internal/node/call.go",
		old:   `cut := &CutShort{Ctx: err, Trouble: cmp.Or(trouble, errSilent), Silent: trouble == nil}`,
		new:   `cut := &CutShort{Ctx: err, Trouble: cmp.Or(errSilent, trouble), Silent: true}`,
		tests: "TestPersistentCallGoesOn",
	},
	{
		name: "a dial that times out counts as the end of ctx", rule: "16", file: "internal/node/node.go",
		old:   `if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {`,
		new:   `if errors.Is(err, context.Canceled) || true {`,
		tests: "TestDialThatTimesOutIsNotTheCallersEnd",
	},
	{
		name: "a later call puts off the end of a continued release", rule: "8", file: "internal/node/node.go",
		old: `n.fireByLocked(max(next, now+tick), now)`,
		new: `n.fires = 0
		n.fireByLocked(max(next, now+tick), now)`,
		tests: "TestContinuedReleaseEndsInTime",
	},
}
