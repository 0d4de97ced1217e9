package main

// failures are mistakes about the reason of a failure: a holder, or Redis.
var failures = []mutant{
	{
		name: "a wait that ends in an outage reports a holder", rule: "33", file: "errors.go",
		old:   `return []error{ErrUnavailable, e.ctx, e.last}`,
		new:   `return []error{ErrNotAcquired, e.ctx, e.last}`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "an unanswered first attempt counts as refused by a holder", rule: "33", file: "errors.go",
		old:   `return []error{ErrUnavailable, e.ctx}`,
		new:   `return []error{ErrNotAcquired, e.ctx}`,
		tests: "TestLastAttemptDecidesTheError|TestLocalWaiterWhoYieldsWasRefusedByNobody",
	},
	{
		name: "an attempt without a reply counts as the refusal before it", rule: "33", file: "ask.go",
		old:   `case !cut.Silent, w.last == nil, w.engine.now().Since(asked) > w.r.cfg.timeout()/4:`,
		new:   `case !cut.Silent, w.last == nil:`,
		tests: "TestLastAttemptDecidesTheError",
	},
	{
		name: "an attempt that was not sent counts as unanswered", rule: "33", file: "ask.go",
		old:   `if !errors.As(err, new(*node.NotDone)) {`,
		new:   `if true {`,
		tests: "TestLastAttemptDecidesTheError",
	},
	{
		name: "a call that ctx cut short forgets its trouble", rule: "33", file: "ask.go",
		old:   `return cut.Trouble`,
		new:   `return nil`,
		tests: "TestTroubleIsNoRefusal",
	},
	{
		name: "a quorum that ctx cut short forgets its trouble", rule: "33", file: "quorum.go",
		old:   `Trouble: e, Silent`,
		new:   `Trouble: ErrUnavailable, Silent`,
		tests: "TestSilentQuorumIsNoHolder",
	},
	{
		name: "a call that ended in the mailbox is no outage", rule: "33", file: "internal/node/call.go",
		old:   `c.reply.Err = cut`,
		new:   `c.reply.Err = cut.Ctx`,
		tests: "TestShortCallInAnOutageIsNoConflict",
	},
	{
		name: "a call that ctx ended does not say what is wrong with its node", rule: "33", file: "internal/node/call.go",
		old:   `return cmp.Or(c.trouble, c.node.trouble)`,
		new:   `return c.trouble`,
		tests: "TestCutShortSaysWhatIsWrongWithTheNode",
	},
	{
		name: "a ctx that had ended before counts as an outage", rule: "33", file: "engine.go",
		old:   `if err == nil && ctx.Err() != nil {`,
		new:   `if false {`,
		tests: "TestShortCallInAnOutageIsNoConflict|TestConformance",
	},
	{
		name: "a quorum that may still grant counts as held when ctx ends", rule: "33", file: "redlock.go",
		old:   `case ctx.Err() != nil && !t.certainly(heldByAnother):`,
		new:   `case false:`,
		tests: "TestSilentNodesAreNotWaitedFor",
	},
	{
		name: "the error of a call does not say that Redis is the reason", rule: "33", file: "errors.go",
		old:   `return outage{err}`,
		new:   `return err`,
		tests: "TestUnavailableIsNoHolder/SetNXPX",
	},
	{
		name: "no quorum is no outage", rule: "33", file: "errors.go",
		old:   `"no quorum of the nodes answered", is: ErrUnavailable}`,
		new:   `"no quorum of the nodes answered"}`,
		tests: "TestUnavailableIsNoHolder/Redlock",
	},
	{
		name: "no reply is no outage", rule: "33", file: "internal/node/errors.go",
		old: `case errors.As(err, new(*NoReply)), errors.As`,
		new: `case errors.As(err, new(*NoReply)):
		return false
	case errors.As`,
		tests: "TestUnavailable$",
	},
	{
		name: "a full Redis is no outage", rule: "33", file: "internal/node/errors.go",
		old:   ` || strings.HasPrefix(answerText(err), "OOM")`,
		new:   ``,
		tests: "TestUnavailable$",
	},
	{
		name: "a command that the caller may not run counts as an outage", rule: "33", file: "internal/node/errors.go",
		old:   `return retryable(err) || refusesWrites(err) || `,
		new:   `return true || `,
		tests: "TestUnavailable$",
	},
	{
		name: "the end of ctx counts as an outage", rule: "33", file: "internal/node/errors.go",
		old: `case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false`,
		new: `case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return true`,
		tests: "TestUnavailable$",
	},
	{
		name: "a broken connection is no outage", rule: "33", file: "internal/node/errors.go",
		old:   `return errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) ||`,
		new:   `return errors.As(err, new(net.Error)) ||`,
		tests: "TestUnavailable$",
	},
	{
		name: "nobody looks when the subscription breaks", rule: "33", file: "internal/handoff/subscription.go",
		old:   `if s.markDown() {`,
		new:   `if s.markDown() && false {`,
		tests: "TestOutageIsNoticedByAllWaiters",
	},
	{
		name: "a wait for replicas goes on although Redis does not serve WAIT", rule: "Replicas", file: "errors.go",
		old:   ` || errors.Is(err, errors.ErrUnsupported)`,
		new:   ``,
		tests: "TestForbiddenWaitIsSaidPlainly",
	},
	{
		name: "a refused WAIT counts as trouble", rule: "33", file: "set_nx_px.go",
		old:   `case node.Answered(err):`,
		new:   `case false:`,
		tests: "TestForbiddenWaitIsSaidPlainly",
	},
	{
		name: "a wait behind a holder counts as a deadline", rule: "33", file: "otel/outcome.go",
		old:   `case name != other || end == nil`,
		new:   `case end == nil`,
		tests: "TestWaitThatEndedBehindAHolderIsNoFailure",
	},
	{
		name: "a silent quorum counts as a holder if ctx ends early", rule: "33", file: "redlock.go",
		old:   `return &node.NotDone{Err: t.cut(ctx)}`,
		new:   `return t.fail(ErrNotAcquired)`,
		tests: "TestSilenceUntilAnEarlyEndIsNoHolder/Redlock",
	},
	{
		name: "an attempt that has only just been sent counts as unanswered", rule: "33", file: "wait.go",
		old:   `slow := time.Since(w.since) > r.cfg.timeout()/4`,
		new:   `slow := time.Since(w.since) > 0`,
		tests: "TestWhoeverLeavesDuringSilence",
	},
}
