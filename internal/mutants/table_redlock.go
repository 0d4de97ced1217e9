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
		old:   `life.lost() || life.over() && !j.ordered`,
		new:   `life.over() && !j.ordered`,
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
		old:   `ask.grain = quorumGrain`,
		new:   `ask.grain = 1`,
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
		name: "a heal once Unlock began", rule: "11", file: "heal.go",
		old:   `if c.life.over() || !time.Now().Before(c.until) {`,
		new:   `if !time.Now().Before(c.until) {`,
		tests: "TestHealEndsWithTheLease",
	},
	{
		name: "a chosen token keeps its minority", rule: "15", file: "redlock.go",
		old:   `if !c.chosen || t.count(held) > len(r.nodes)-r.quorum {`,
		new:   `if !c.chosen {`,
		tests: "TestChosenTokensDoNot",
	},
	{
		name: "late grants of a refused quorum are forgotten", rule: "Redlock", file: "redlock.go",
		old:   `if j != nil && surelyNot(j.err) {`,
		new:   `if j == nil || surelyNot(j.err) {`,
		tests: "TestLateGrantOfARefusedTokenIsReleased",
	},
}
