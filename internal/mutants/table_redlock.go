package main

// quorums are mistakes about Redlock.
var quorums = []mutant{
	{
		name: "a quorum of half the nodes", rule: "Redlock", file: "redlock.go",
		old:   `quorum: len(clients)/2 + 1`,
		new:   `quorum: (len(clients) + 1) / 2`,
		tests: "TestEvenNumberOfNodesNeedsMoreThanHalf",
	},
	{
		name: "one server votes twice", rule: "Redlock", file: "twins.go",
		old:   `r.twins.CompareAndSwap(nil, &err)`,
		new:   `_ = err`,
		tests: "TestTwoClientsOfOneServerAreRefused",
	},
	{
		name: "a refused claim that is not taken back", rule: "Redlock", file: "redlock.go",
		old:   `r.takeBack(ctx, c, t)`,
		new:   `_ = r.takeBack`,
		tests: "TestErrorWaitsUntilItIsCertain",
	},
	{
		name: "held by one counts as held", rule: "Redlock", file: "redlock.go",
		old:   `case t.count(yes)+t.count(held) >= r.quorum:`,
		new:   `case t.count(held) > 0:`,
		tests: "TestErrorWaitsUntilItIsCertain",
	},
	{
		name: "a straggler of a lost lock stays", rule: "4", file: "job.go",
		old:   `case life.lost() && err == nil && !g.found:`,
		new:   `case false:`,
		tests: "TestStragglerOfALostLockIsReleased",
	},
	{
		name: "a burst is shed", rule: "Redlock", file: "crew.go",
		old:   `longSilence = 500 * time.Millisecond`,
		new:   `longSilence = -time.Millisecond`,
		tests: "TestBurstOnHealthyNodesIsNotShed",
	},
	{
		name: "the first vote is the fence", rule: "Fencing", file: "agree.go",
		old:   `counts[j.grant.fence] >= r.quorum {`,
		new:   `counts[j.grant.fence] >= 1 {`,
		tests: "TestFencesOfAQuorumGrow",
	},
	{
		name: "the largest vote is the fence", rule: "Fencing", file: "agree.go",
		old: `for {
		try := *c`,
		new: `if fence > 0 {
		return fence, nil
	}
	for {
		try := *c`,
		tests: "TestFencesOfAQuorumGrow",
	},
	{
		name: "fences of a quorum by the microsecond", rule: "Fencing", file: "redlock.go",
		old:   `ask.grain, ask.keep = quorumGrain, c.chosen`,
		new:   `ask.grain, ask.keep = 1, c.chosen`,
		tests: "TestFenceCostsNoExtraRoundTrip",
	},
	{
		name: "a counter raised for a lock that is gone", rule: "Fencing", file: "raise.lua",
		old:   `if redis.call('GET', KEYS[1]) ~= ARGV[1] then`,
		new:   `if false then`,
		tests: "TestRaiseNeedsTheLock",
	},
	{
		name: "a heal that overwrites another's key", rule: "Redlock", file: "heal.lua",
		old:   `if redis.call('EXISTS', KEYS[1]) == 1 then`,
		new:   `if false then`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "a heal that forgets the fence", rule: "Fencing", file: "heal.lua",
		old:   `if counter and counter < tonumber(ARGV[3]) then`,
		new:   `if false then`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "a heal that raises the counter past the fence", rule: "Fencing", file: "heal.lua",
		old:   `redis.call('SET', KEYS[2], ARGV[3], 'PX', 86400000)`,
		new:   `redis.call('SET', KEYS[2], string.format('%.0f', ARGV[3] + 1), 'PX', 86400000)`,
		tests: "TestExtendHealsEmptiedNodes",
	},
	{
		name: "an adoption heals", rule: "Redlock", file: "redlock.go",
		old:   `if c.trusted != nil {`,
		new:   `if true {`,
		tests: "TestAdoptedLockIsHealed",
	},
	{
		name: "a heal once the lease has ended", rule: "11", file: "heal.go",
		old:   `if !c.trusted() {`,
		new:   `if false {`,
		tests: "TestHealEndsWithTheLease",
	},
	{
		name: "a chosen token keeps its minority", rule: "15", file: "redlock.go",
		old:   `all := !c.chosen || t.count(held) > len(r.nodes)-r.quorum`,
		new:   `all := !c.chosen`,
		tests: "TestLateGrantOfARefusedTokenIsReleased",
	},
	{
		name: "split votes wait for silent nodes", rule: "15", file: "redlock.go",
		old:   `t.refusedBesideSilence(r.nodes) // or`,
		new:   `false // or`,
		tests: "TestSilentNodesAreNotWaitedForInVain",
	},
	{
		name: "a node that answers again stays silent", rule: "Redlock", file: "crew.go",
		old:   `c.heard, c.missed = time.Now(), false`,
		new:   `c.heard = time.Now()`,
		tests: "TestSilentNodesAreNotWaitedForInVain",
	},
	{
		name: "silence that the timer alone notes", rule: "15", file: "crew.go",
		old:   `c.missLocked(j) // before`,
		new:   `_ = j // before`,
		tests: "TestLateTimerHidesNoSilence",
	},
	{
		name: "late grants of a refused quorum are forgotten", rule: "Redlock", file: "redlock.go",
		old:   `if j != nil && surelyNot(j.err) ||`,
		new:   `if j == nil || surelyNot(j.err) ||`,
		tests: "TestLateGrantOfARefusedTokenIsReleased",
	},
	{
		name: "a lane without an end", rule: "Redlock", file: "crew.go",
		old:   `if busy && c.crowdedLocked(j.claim.key) {`,
		new:   `if false {`,
		tests: "TestLaneOfAHungNode",
	},
	{
		name: "a burst beside a stuck job is shed", rule: "Redlock", file: "crew.go",
		old:   `c.silentSince(c.full)`,
		new:   `c.silentSince(time.Time{})`,
		tests: "TestBurstBesideAStuckJob",
	},
	{
		name: "a busy key keeps its worker", rule: "Redlock", file: "crew.go",
		old:   `c.waiting = append(c.waiting, behind[0])`,
		new:   `return behind[0]`,
		tests: "TestBusyKey",
	},
	{
		name: "a vote of before is made to last", rule: "15", file: "redlock.go",
		old:   `ask.grain, ask.keep = quorumGrain, c.chosen`,
		new:   `ask.grain = quorumGrain`,
		tests: "TestChosenTokensDoNotKeepEachOtherOutWithADeadNode",
	},
	{
		name: "votes of before that end before the lease", rule: "2", file: "redlock.go",
		old:   `if err == nil && c.chosen && t.found() {`,
		new:   `if false {`,
		tests: "TestRecoveredLock",
	},
	{
		name: "new votes of a chosen token stay", rule: "15", file: "redlock.go",
		old:   `!all && (!granted || j.grant.found)`,
		new:   `!all`,
		tests: "TestNewVotesOfAChosenToken",
	},
	{
		name: "votes of before are given back", rule: "4", file: "redlock.go",
		old:   `!all && (!granted || j.grant.found)`,
		new:   `!all && !granted`,
		tests: "TestNewVotesOfAChosenToken",
	},
	{
		name: "twins may be adopted from", rule: "Redlock", file: "redlock.go",
		old:   `r.identified(acquire), r.identified(extend), r.identified(inspect)`,
		new:   `r.identified(acquire), extend, inspect`,
		tests: "TestTwoClientsOfOneServerAreNoQuorum",
	},
	{
		name: "a server that is loading taken for one that does not tell", rule: "Redlock", file: "twins.go",
		old:   `(!answered(err) || passing(err))`,
		new:   `!answered(err)`,
		tests: "TestServerThatCannotTell",
	},
	{
		name: "an ended ctx asks the nodes", rule: "17", file: "redlock.go",
		old: `return grant{}, &undone{ctxError(ctx)}
	}
	ask`,
		new: `_ = 0
	}
	ask`,
		tests: "TestEndedCtxSendsNothing",
	},
	{
		name: "an inspect that waits for a hung node", rule: "Redlock", file: "redlock.go",
		old:   `(most >= r.quorum || most+t.pending() < r.quorum)`,
		new:   `most >= r.quorum`,
		tests: "TestHungNodeDelaysNoInspect",
	},
	{
		name: "the acquire of a shed release stays", rule: "4", file: "job.go",
		old:   `case life.shed.Load() && !j.claim.chosen:`,
		new:   `case false:`,
		tests: "TestShedReleaseLeavesNoOrphan",
	},
	{
		name: "jobs that nobody waits for keep their room", rule: "Redlock", file: "crew.go",
		old:   `needless := j.settled.Load() && !j.last`,
		new:   `needless := false`,
		tests: "TestShedReleaseLeavesNoOrphan",
	},
	{
		name: "a lost reply taken for a recovery", rule: "Redlock", file: "redlock.go",
		old:   `if err == nil && c.chosen && t.found() {`,
		new:   `if err == nil && t.found() {`,
		tests: "TestLostReplyIsNoRecovery",
	},
}
