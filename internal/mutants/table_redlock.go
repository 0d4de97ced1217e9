package main

// quorums are mistakes about Redlock.
var quorums = []mutant{
	{
		name: "a vote that is refused when it is sent again is not released", rule: "3", file: "quorum.go",
		old:   `a.there && !a.resent && (`,
		new:   `a.there && (`,
		tests: "TestRefusedResendIsNoCertainRefusal/Redlock",
	},
	{
		name: "a line forgets what it sent before it was refused", rule: "3", file: "ask.go",
		old:   `got.resent || !knownNotDone(err) ||`,
		new:   `!knownNotDone(err) ||`,
		tests: "TestRefusedResendIsNoCertainRefusal/SetNXPX",
	},
	{
		name: "TryLock forgets what it sent before it was refused", rule: "3", file: "engine.go",
		old:   `(got.resent || !knownNotDone(err))`,
		new:   `!knownNotDone(err)`,
		tests: "TestRefusedResendIsNoCertainRefusal/TryLock",
	},
	{
		name: "a vote stays where two other nodes are one server", rule: "3", file: "quorum.go",
		old:   `(outcomeOf(a.err) == heldByAnother ||`,
		new:   `(knownNotDone(a.err) ||`,
		tests: "TestTwoClientsOfOneServerAreRefused",
	},
	{
		name: "the clean-up on a quorum waits although ctx has ended", rule: "17", file: "redlock.go",
		old: `t := ask(detached(ctx), r, "release"`,
		new: `ctx = detached(ctx)
	t := ask(ctx, r, "release"`,
		tests: "TestCleanUpEndsWithCtx",
	},
	{
		name: "a refused attempt is undone only after its releases", rule: "4", file: "redlock.go",
		old:   `p.state.become(refused) // first: an acquire that is carried out behind its release is undone from now on`,
		new:   ``,
		tests: "TestAcquireThatIsOvertakenIsReleased",
	},
	{
		name: "a quorum of half the nodes", rule: "Redlock", file: "redlock.go",
		old:   `quorum: len(clients)/2 + 1`,
		new:   `quorum: (len(clients) + 1) / 2`,
		tests: "TestEvenNumberOfNodesNeedsMoreThanHalf",
	},
	{
		name: "one server votes twice", rule: "Redlock", file: "quorum.go",
		old:   `d.shared.CompareAndSwap(nil, &err)`,
		new:   `_ = err`,
		tests: "TestTwoClientsOfOneServerAreRefused",
	},
	{
		name: "a refused attempt that is not released", rule: "Redlock", file: "redlock.go",
		old:   `r.takeBack(ctx, p, t)`,
		new:   `_ = r.takeBack`,
		tests: "TestErrorWaitsUntilItIsCertain",
	},
	{
		name: "held by one counts as held", rule: "Redlock", file: "redlock.go",
		old:   `case t.counts[done]+t.counts[heldByAnother] >= r.quorum:`,
		new:   `case t.counts[heldByAnother] > 0:`,
		tests: "TestErrorWaitsUntilItIsCertain",
	},
	{
		name: "a late vote of a lost lock stays", rule: "4", file: "strategy.go",
		old:   `return err == nil && !got.alreadyHeld`,
		new:   `return false`,
		tests: "TestLateAcquireOfALostLockIsReleased",
	},
	{
		name: "late votes of a granted lock are not looked at", rule: "4", file: "redlock.go",
		old:   `if !t.answers[i].there {`,
		new:   `if c == nil && i < 0 {`,
		tests: "TestLateVoteOfALostLockIsReleased",
	},
	{
		name: "a release on a quorum overtakes the acquire", rule: "4", file: "redlock.go",
		old:   `c.Key, c.Ordered, c.Timeout = t.key, true, t.timeout`,
		new:   `c.Key, c.Timeout = t.key, t.timeout`,
		tests: "TestReleaseFollowsItsAcquire",
	},
	{
		name: "the first vote is the fence", rule: "Fencing", file: "quorum_agree.go",
		old:   `if counts[vote]++; counts[vote] >= r.quorum {`,
		new:   `if counts[vote]++; counts[vote] >= 1 {`,
		tests: "TestFencesOfAQuorumGrow",
	},
	{
		name: "the largest vote is the fence", rule: "Fencing", file: "quorum_agree.go",
		old: `for {
		try := fence`,
		new: `if fence > 0 {
		return fence, nil
	}
	for {
		try := fence`,
		tests: "TestFencesOfAQuorumGrow",
	},
	{
		name: "fences of a quorum by the microsecond", rule: "Fencing", file: "quorum_acquire.lua",
		old: `local fence = math.max(counter + 1, redis.call('TIME')[1] * 1000000)`,
		new: `local time = redis.call('TIME')
local fence = math.max(counter + 1, time[1] * 1000000 + time[2])`,
		tests: "TestFenceCostsNoExtraRoundTrip",
	},
	{
		name: "a counter raised for a lock that is gone", rule: "Fencing", file: "quorum_raise.lua",
		old:   `if redis.call('GET', KEYS[1]) ~= ARGV[1] then`,
		new:   `if false then`,
		tests: "TestRaiseNeedsTheLock",
	},
	{
		name: "a heal that overwrites another's key", rule: "Redlock", file: "quorum_heal.lua",
		old:   `if redis.call('EXISTS', KEYS[1]) == 1 then`,
		new:   `if false then`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "a heal that forgets the fence", rule: "Fencing", file: "quorum_heal.lua",
		old:   `if counter < tonumber(ARGV[3]) then`,
		new:   `if false then`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "a heal that raises the counter past the fence", rule: "Fencing", file: "quorum_heal.lua",
		old:   `redis.call('SET', KEYS[2], ARGV[3], 'PX', 3600000)`,
		new:   `redis.call('SET', KEYS[2], string.format('%.0f', ARGV[3] + 1), 'PX', 3600000)`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "a heal once the lease has ended", rule: "11", file: "lease.go",
		old:   `l.err == nil && left > 0 {`,
		new:   `left > 0 {`,
		tests: "TestHealEndsWithTheLease",
	},
	{
		name: "a heal that is decided on before Unlock and posted behind its release", rule: "11", file: "lease.go",
		old: `post(left)
`,
		new: `l.mu.Unlock()
		post(left)
		l.mu.Lock()
`,
		tests: "TestNoHealFollowsTheReleaseOfUnlock",
	},
	{
		name: "a heal that the release of Unlock overtook is left", rule: "4", file: "quorum_agree.go",
		old:   `c.Unwatch()`,
		new:   ``,
		tests: "TestHealThatIsOvertakenIsReleased",
	},
	{
		name: "a healed node has the lock for the TTL of a renewal", rule: "4", file: "quorum_agree.go",
		old:   `max(p.ttl, clock.TTLFor(left, p.drift))`,
		new:   `max(p.ttl, clock.TTLFor(0*left, p.drift))`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "a chosen token keeps its minority", rule: "15", file: "redlock.go",
		old:   `all := !p.callerToken || t.counts[heldByAnother] > len(r.nodes)-r.quorum`,
		new:   `all := !p.callerToken`,
		tests: "TestLateGrantOfARefusedTokenIsReleased",
	},
	{
		name: "split votes wait for silent nodes", rule: "15", file: "redlock.go",
		old:   `t.refusedBesideSilence() // or`,
		new:   `false // or`,
		tests: "TestSilentNodesAreNotWaitedFor",
	},
	{
		name: "a node that answers again stays silent", rule: "Redlock", file: "internal/node/courier.go",
		old:   `n.answered, n.silent = now, false`,
		new:   `n.answered = now`,
		tests: "TestSilentIsANode",
	},
	{
		name: "late grants of a refused quorum are forgotten", rule: "Redlock", file: "redlock.go",
		old:   `if all && errors.As(t.calls[i].Reply().Err, new(*node.NotDone)) {`,
		new:   `if all || errors.As(t.calls[i].Reply().Err, new(*node.NotDone)) {`,
		tests: "TestLateGrantOfARefusedTokenIsReleased",
	},
	{
		name: "an earlier vote of a chosen token is extended", rule: "15", file: "redlock.go",
		old:   `c.Append("keep")`,
		new:   ``,
		tests: "TestChosenTokensDoNotKeepEachOtherOutWithADeadNode",
	},
	{
		name: "earlier votes that end before the lease", rule: "2", file: "redlock.go",
		old:   `if p.callerToken && alreadyHeld(t) {`,
		new:   `if false {`,
		tests: "TestRecoveredLock",
	},
	{
		name: "new votes of a chosen token stay", rule: "15", file: "redlock.go",
		old:   `!all && (!granted || a.value.alreadyHeld)`,
		new:   `!all`,
		tests: "TestNewVotesOfAChosenToken",
	},
	{
		name: "earlier votes are released", rule: "4", file: "redlock.go",
		old:   `!all && (!granted || a.value.alreadyHeld)`,
		new:   `!all && !granted`,
		tests: "TestNewVotesOfAChosenToken",
	},
	{
		name: "two clients of one server make a quorum for Adopt", rule: "Redlock", file: "quorum.go",
		old:   `if r.Err == nil && d.ids[i].Load() == nil {`,
		new:   `if _, acquiring := any(none).(acquireReply); acquiring && r.Err == nil && d.ids[i].Load() == nil {`,
		tests: "TestTwoClientsOfOneServerAreNoQuorum",
	},
	{
		name: "a server that is loading counts as one without a run_id", rule: "Redlock", file: "internal/node/courier.go",
		old:   `failed != nil && (!Answered(failed) || retryable(failed))`,
		new:   `failed != nil && !Answered(failed)`,
		tests: "TestSecondCommandIsPartOfItsCall",
	},
	{
		name: "the nodes are asked although ctx has ended", rule: "17", file: "redlock.go",
		old: `return &node.NotDone{Err: node.CtxError(ctx)}
	}
	return nil`,
		new: `_ = 0
	}
	return nil`,
		tests: "TestEndedCtxSendsNothing",
	},
	{
		name: "an inspect that waits for a hung node", rule: "Redlock", file: "redlock.go",
		old: `		return certain
	})`,
		new: `		return certain && t.pending() == 0
	})`,
		tests: "TestHungNodeDelaysNoInspect",
	},
	{
		name: "a lost reply taken for a recovery", rule: "Redlock", file: "redlock.go",
		old:   `if p.callerToken && alreadyHeld(t) {`,
		new:   `if alreadyHeld(t) {`,
		tests: "TestLostReplyIsNoRecovery",
	},
	{
		name: "an earlier lock that ends while it is acquired again is no refusal", rule: "3", file: "redlock.go",
		old:   `q.err = ErrNotAcquired`,
		new:   `q.err = ErrLost`,
		tests: "TestEarlierLockThatEndsMeanwhileIsRefused",
	},
	{
		name: "a lock that ends while nodes agree on its fence has no quorum", rule: "2", file: "quorum_agree.go",
		old:   `return 0, t.fail(ErrLost)`,
		new:   `return 0, t.fail(ErrNoQuorum)`,
		tests: "TestSlowQuorumIsNoGrant",
	},
}
