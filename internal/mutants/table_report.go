package main

// reports are mistakes about what is reported: by hooks and logs, and in the texts of errors.
var reports = []mutant{
	{
		name: "a caller that leaves early is trouble of Redis", rule: "34", file: "hooks.go",
		old:   `errors.Is(err, ErrNotAcquired), e.leftEarly(r, err):`,
		new:   `errors.Is(err, ErrNotAcquired):`,
		tests: "TestCallerThatLeavesEarlyIsNoTrouble",
	},
	{
		name: "a waiter that is not the first does not learn the lease", rule: "35", file: "acquire.lua",
		old:   `return {call('PTTL', KEYS[1]), holder, fresh`,
		new:   `return {first and call('PTTL', KEYS[1]) or -1, holder, fresh`,
		tests: "TestRefusedWaiterKnowsTheLease/SetNXPX",
	},
	{
		name: "a waiter for a permit that is not the first does not learn the lease", rule: "35", file: "semaphore_acquire.lua",
		old:   `return {left, holder or false, fresh`,
		new:   `return {first() == entry and left or -1, holder or false, fresh`,
		tests: "TestRefusedWaiterKnowsTheLease/Semaphore",
	},
	{
		name: "the first node names the owner of a quorum's key", rule: "35", file: "quorum.go",
		old:   `named[holder] > named[most]`,
		new:   `most == ""`,
		tests: "TestHolderOfAQuorumIsThatOfMostNodes",
	},
	{
		name: "a caller does not know who refused its line", rule: "33, 35", file: "ask.go",
		old: `	w.last = err
	for p := range w.All() {
		r := p.Of
`,
		new: `	for p := range w.All() {
		r := p.Of
`,
		tests: "TestHolderIsNamed/SetNXPX",
	},
	{
		name: "trouble is reported each time", rule: "34", file: "hooks.go",
		old:   `ok && now.Sub(last) < troubleEvery`,
		new:   `ok && now.Before(last)`,
		tests: "TestWaitThroughAnOutageIsReported/LegacySetNX",
	},
	{
		name: "trouble is reported only once", rule: "34", file: "hooks.go",
		old:   `ok && now.Sub(last) < troubleEvery`,
		new:   `ok && now.After(last)`,
		tests: "TestWaitThroughAnOutageIsReported/LegacySetNX",
	},
	{
		name: "trouble that TryLock returns is not reported", rule: "34", file: "engine.go",
		old: `e.reportFailure(r, err)
	return lock, wrap("try lock"`,
		new:   `return lock, wrap("try lock"`,
		tests: "TestReturnedTroubleIsReported/SetNXPX/TryLock",
	},
	{
		name: "trouble that Lock returns is not reported", rule: "34", file: "engine.go",
		old: `e.reportFailure(r, err)
	return lock, wrap("lock"`,
		new:   `return lock, wrap("lock"`,
		tests: "TestReturnedTroubleIsReported/SetNXPX/Lock|TestLeadOutlastsAnOutage",
	},
	{
		name: "trouble that Adopt returns is not reported", rule: "34", file: "engine.go",
		old: `e.reportFailure(r, err)
	return lock, wrap("adopt"`,
		new:   `return lock, wrap("adopt"`,
		tests: "TestReturnedTroubleIsReported/SetNXPX/Adopt",
	},
	{
		name: "a token that does not hold the key is trouble", rule: "34", file: "hooks.go",
		old:   `case errors.Is(err, ErrLost) && !errors.Is(err, errSlow):`,
		new:   `case false:`,
		tests: "TestOtherErrorsAreNoTrouble/SetNXPX",
	},
	{
		name: "silence until a ctx was canceled counts as a broken connection", rule: "34", file: "internal/node/errors.go",
		old:   `(timedOut(err) || errors.Is(err, errSilent))`,
		new:   `timedOut(err)`,
		tests: "TestUnavailable$",
	},
	{
		name: "a release that Redis did not confirm is logged as one that it did", rule: "34", file: "hooks.go",
		old: `unconfirmed(e)`,
		new: `_ = unconfirmed
				released(e)`,
		tests: "TestLogsSayHowALockWasReleased",
	},
	{
		name: "a wait does not say who has the key", rule: "35", file: "engine.go",
		old: `r.waiting(e, err)
	}`,
		new: `r.waiting(e, nil)
	}`,
		tests: "TestWaitInTheQueueNamesTheHolder|TestLogsNameTheHolder/Redlock",
	},
	{
		name: "a log has attributes without a value", rule: "35", file: "hooks.go",
		old:   `return slices.ContainsFunc(zeros, a.Value.Equal)`,
		new:   `return a.Value.Equal(slog.StringValue(""))`,
		tests: "TestLogsNameTheHolder/Redlock",
	},
	{
		name: "trouble of a wait is not reported", rule: "34", file: "ask.go",
		old:   `e.reportTrouble(r, err) }`,
		new:   `_, _ = e, r }`,
		tests: "TestWaitThroughAnOutageIsReported",
	},
	{
		name: "trouble is not reported to joined hooks", rule: "34", file: "hooks.go",
		old:   `Trouble:     join(func(h *Hooks) func(Event) { return h.Trouble }),`,
		new:   ``,
		tests: "TestWaitThroughAnOutageIsReported/LegacySetNX",
	},
	{
		name: "an event does not say that Redis is the reason", rule: "33, 34", file: "hooks.go",
		old:   `event.Cause, event.Err = c.kind, marked(err)`,
		new:   `event.Cause, event.Err = c.kind, err`,
		tests: "TestWaitThroughAnOutageIsReported/LegacySetNX",
	},
	{
		name: "trouble of a quorum does not say what kind it is", rule: "34", file: "hooks.go",
		old: `return "quorum"
	case`,
		new: `return node.Cause(err)
	case`,
		tests: "TestWaitThroughAnOutageIsReported/Redlock",
	},
	{
		name: "trouble of the nodes of a quorum is not reported", rule: "34", file: "redlock.go",
		old:   `n.Trouble = func(err error) { report(r.names[i], err) }`,
		new:   `_, _ = i, n`,
		tests: "TestSilentMinorityIsReported",
	},
	{
		name: "a node does not report a call that timed out", rule: "34", file: "internal/node/node.go",
		old: `n.Trouble(err)
		if c.OutlivesCaller`,
		new:   `if c.OutlivesCaller`,
		tests: "TestContinuedReleaseEndsInTime",
	},
	{
		name: "a node does not report a send that it retries", rule: "34", file: "internal/node/node.go",
		old: `c.trouble, n.trouble = err, err
		n.Trouble(err)`,
		new:   `c.trouble, n.trouble = err, err`,
		tests: "TestTroubleIsEachSendThatIsRetried",
	},
	{
		name: "a final answer of a node is not reported", rule: "34", file: "quorum.go",
		old:   `if o == noAnswer && node.Answered(a.err) {`,
		new:   `if false && o == noAnswer && node.Answered(a.err) {`,
		tests: "TestNodeThatRefusesIsReported",
	},
	{
		name: "trouble of a node does not name the node", rule: "34", file: "hooks.go",
		old:   `Node: name, Cause`,
		new:   `Cause`,
		tests: "TestSilentMinorityIsReported",
	},
	{
		name: "an error does not name the nodes", rule: "35", file: "keys.go",
		old:   `return addr`,
		new:   `_ = addr`,
		tests: "TestSilentMinorityIsReported",
	},
	{
		name: "a token without its owner", rule: "35", file: "keys.go",
		old:   `return owner + "/" + id.String()`,
		new:   `return id.String()`,
		tests: "TestOwnerIsHandedOn",
	},
	{
		name: "a refusal shows the token", rule: "35", file: "errors.go",
		old:   `Owner: ownerOf(got.Holder)`,
		new:   `Owner: got.Holder`,
		tests: "TestHolderIsNamed/SetNXPX",
	},
	{
		name: "a refusal does not say who has the lock", rule: "35", file: "engine.go",
		old: `err = heldBy(got, err)
`,
		new:   ``,
		tests: "TestHolderIsNamed/SetNXPX",
	},
	{
		name: "the answer to an unknown command shows the token", rule: "35", file: "internal/node/hints.go",
		old:   `said, err = name, cut(name)`,
		new:   ``,
		tests: "TestUnknownCommandShowsNoToken",
	},
	{
		name: "an error wraps the answer that shows the token", rule: "35", file: "internal/node/hints.go",
		old:   `said, err = name, cut(name)`,
		new:   `err = &explained{err, name}`,
		tests: "TestUnknownCommandShowsNoToken",
	},
	{
		name: "answers of Redis 5 and 6 show the token", rule: "35", file: "internal/node/hints.go",
		old:   "command:? ['\\\"`][^",
		new:   "command:? ['\\\"][^",
		tests: "TestAnswersAreCutBeforeTheArguments",
	},
	{
		name: "the hook of a grant to TryLock shows the token", rule: "35", file: "engine.go",
		old:   `hook(l.r.event(l.engine, ownerOf(l.params.token), l.fence))`,
		new:   `hook(l.r.event(l.engine, l.params.token, l.fence))`,
		tests: "TestHooksAndLogsHoldNoToken",
	},
	{
		name: "the hook of a loss or release shows the token", rule: "35", file: "lease.go",
		old:   `e.Owner, e.Err = ownerOf(l.params.token), marked(e.Err)`,
		new:   `e.Owner, e.Err = l.params.token, marked(e.Err)`,
		tests: "TestHooksAndLogsHoldNoToken",
	},
	{
		name: "a status without the owner", rule: "35", file: "engine.go",
		old:   `st.Owner = ownerOf(st.Token)`,
		new:   ``,
		tests: "TestOwnerIsHandedOn",
	},
	{
		name: "a legacy refusal reports the next look and not the lease", rule: "35", file: "legacy_setnx.go",
		old:   `got.Left = time.Duration(left[0]) * time.Millisecond`,
		new:   `got.Left = min(time.Duration(left[0])*time.Millisecond, longestBlind)`,
		tests: "TestHolderIsNamed/LegacySetNX",
	},
	{
		name: "a loss does not report the trouble", rule: "35", file: "lease.go",
		old:   `case l.trouble != nil:`,
		new:   `case false:`,
		tests: "TestTexts",
	},
	{
		name: "a lease does not remember the errors of its renewals", rule: "35", file: "renewal.go",
		old:   `l.trouble = err`,
		new:   ``,
		tests: "TestLossSaysWhy/silence",
	},
	{
		name: "a loss by an answer does not report the answer", rule: "35", file: "renewal.go",
		old:   `l.endLocked(err, lost)`,
		new:   `l.endLocked(ErrLost, lost)`,
		tests: "TestLossSaysWhy/deleted",
	},
	{
		name: "another owner's key counts as gone", rule: "35", file: "extend.lua",
		old:   `return holder and -1 or 0`,
		new:   `return 0`,
		tests: "TestLossSaysWhy/taken",
	},
	{
		name: "another owner's key on a node counts as gone", rule: "35", file: "quorum_extend.lua",
		old:   `return holder and -1 or 0`,
		new:   `return 0`,
		tests: "TestLossSaysWhy/taken",
	},
	{
		name: "a wait that ended does not report its last error", rule: "35", file: "errors.go",
		old:   `": the last attempt: " + oneLine(e.last)`,
		new:   `""`,
		tests: "TestTexts",
	},
	{
		name: "an error on two lines", rule: "35", file: "errors.go",
		old:   `return breaks.Replace(strings.TrimPrefix(err.Error(), prefix))`,
		new:   `return strings.TrimPrefix(err.Error(), prefix)`,
		tests: "TestTexts",
	},
	{
		name: "a right that a script lacks on Redis 7.2 has no hint", rule: "35", file: "internal/node/hints.go",
		old:   `{"ERR ACL failure in script",`,
		new:   `{"ERR no such text",`,
		tests: "TestAnswersSayWhatToDo",
	},
	{
		name: "a refusal in a script of Redis 6 lacks ERR", rule: "35", file: "internal/node/hints.go",
		old:   `return "ERR " + text`,
		new:   `return text`,
		tests: "TestAnswersSayWhatToDo",
	},
	{
		name: "an answer ends where it says script", rule: "35", file: "internal/node/hints.go",
		old:   `strings.LastIndex(said, " script: ")`,
		new:   `strings.Index(said, " script: ")`,
		tests: "TestAnswersSayWhatToDo",
	},
	{
		name: "a text of Redis 5 with a space at its end", rule: "35", file: "internal/node/hints.go",
		old:   `strings.TrimSpace(answer.Error())`,
		new:   `answer.Error()`,
		tests: "TestAnswersAreReadAlikeFromEveryServer",
	},
	{
		name: "an unreachable Redis is waited for twice", rule: "36", file: "entry.go",
		old:   `case node.Unreachable(err):`,
		new:   `case false && node.Unreachable(err):`,
		tests: "TestUnreachableRedisCostsOneOpTimeout/SetNXPX",
	},
	{
		name: "hooks of a call replace the Locker's hooks", rule: "Hooks", file: "options.go",
		old:   `cfg.hooks = JoinHooks(cfg.hooks, h)`,
		new:   `cfg.hooks = h`,
		tests: "TestHooksOfACallAreAddedToTheLockers",
	},
}
