package main

// grants are mistakes about a grant: tokens, the end of a lease, replies that are lost or late.
var grants = []mutant{
	{
		name: "one token for all owners", rule: "1", file: "engine.go",
		old:   `id, err := uuid.NewRandom()`,
		new:   `id, err := uuid.UUID{}, error(nil)`,
		tests: conformance + "a free key is granted",
	},
	{
		name: "a strategy whose attempts may be undone late asks again with one token", rule: "1, 4", file: "ask.go",
		old:   `if regranted(err) || w.engine.strategy.habits().freshTokens {`,
		new:   `if regranted(err) {`,
		tests: "TestEveryAttemptHasATokenOfItsOwn",
	},
	{
		name: "acquire compares a prefix of the token", rule: "1", file: "acquire.lua",
		old:   `if holder ~= ARGV[1] then`,
		new:   `if string.sub(holder, 1, #ARGV[1]) ~= ARGV[1] then`,
		tests: conformance + "a token is compared whole",
	},
	{
		name: "extend compares a prefix of the token", rule: "1, 7", file: "extend.lua",
		old:   `if holder ~= ARGV[1] then`,
		new:   `if string.sub(holder or '', 1, #ARGV[1]) ~= ARGV[1] then`,
		tests: conformance + "a token is compared whole",
	},
	{
		name: "release compares a prefix of the token", rule: "1, 7", file: "release.lua",
		old:   `local ours = holder == ARGV[1] and holder ~= ''`,
		new:   `local ours = holder and string.sub(holder, 1, #ARGV[1]) == ARGV[1]`,
		tests: conformance + "a token is compared whole",
	},
	{
		name: "a deadline measured from the reply", rule: "2", file: "engine.go",
		old: `got, err := e.strategy.acquire(ctx, &a.params)`,
		new: `got, err := e.strategy.acquire(ctx, &a.params)
	start = e.now()`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "a renewal measured from the reply", rule: "2", file: "renewal.go",
		old: `err := l.engine.strategy.extend(ctx, &p)`,
		new: `err := l.engine.strategy.extend(ctx, &p)
	start = l.engine.now()`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "an adoption measured from the reply", rule: "2", file: "engine.go",
		old: `fence, err := e.strategy.adopt(ctx, &a.params)`,
		new: `fence, err := e.strategy.adopt(ctx, &a.params)
	start = e.now()`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "no drift", rule: "2", file: "internal/clock/clock.go",
		old:   `return ttl - time.Duration(float64(ttl)*factor) - margin`,
		new:   `return ttl - margin`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "no margin for milliseconds", rule: "2", file: "internal/clock/clock.go",
		old:   `return ttl - time.Duration(float64(ttl)*factor) - margin`,
		new:   `return ttl - time.Duration(float64(ttl)*factor)`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "a slow grant kept", rule: "2", file: "engine.go",
		old:   `return nil, errSlow`,
		new:   `_ = errSlow`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "a slow adoption kept", rule: "2", file: "engine.go",
		old: `return a.grant(start, fence, 0)`,
		new: `a.fence = fence
	return a.begin(start, e.now(), clock.Validity(a.params.ttl, r.cfg.drift)), nil`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "a slow hand-over kept", rule: "2", file: "turn.go",
		old:   `if now.Since(start) >= length {`,
		new:   `if false {`,
		tests: "TestFrozenWaiterKnowsThatItsTurnHasPassed",
	},
	{
		name: "a slow grant not released", rule: "2", file: "engine.go",
		old:   `(got.resent || !knownNotDone(err)) && !a.params.callerToken {`,
		new:   `(got.resent || !knownNotDone(err)) && !a.params.callerToken && err != errSlow {`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "an acquire that refuses its own token", rule: "3", file: "acquire.lua",
		old:   `if holder ~= ARGV[1] then`,
		new:   `if true then`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "a command that is not sent again", rule: "3", file: "internal/node/courier.go",
		old:   `case r.Err == nil, aboard && !again:`,
		new:   `case r.Err == nil, aboard:`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "the client sends again without our knowing", rule: "3, 7", file: "internal/node/courier.go",
		old:   `func (once) NoRetry() bool { return true }`,
		new:   `func (once) NoRetry() bool { return false }`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "an attempt of unknown outcome that is not released", rule: "3", file: "engine.go",
		old:   `a.undoAfter(ctx, err)`,
		new:   ``,
		tests: "TestMigrationThatGetsNoAnswerLeavesNeither",
	},
	{
		name: "an acquire that was sent counts as never sent", rule: "3", file: "internal/node/call.go",
		old:   `return c.unclear || c.place == travelling`,
		new:   `return c.place == travelling`,
		tests: "TestCallKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "an acquire that comes again shortens the lease", rule: "4", file: "acquire.lua",
		old:   `if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then`,
		new:   `if true then`,
		tests: conformance + "an acquire that comes again",
	},
	{
		name: "Extend shortens the lease in Redis", rule: "4", file: "extend.lua",
		old:   `if call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then`,
		new:   `if true then`,
		tests: conformance + "Extend lengthens",
	},
	{
		name: "Extend shortens the lease here", rule: "4", file: "lease.go",
		old:   `if start.Since(l.start)+length > l.length {`,
		new:   `if true {`,
		tests: conformance + "Extend lengthens",
	},
	{
		name: "a late acquire that is not released", rule: "4", file: "operations.go",
		old:   `c.Late = func(r node.Reply) { s.late(ctx, p, r) }`,
		new:   `_ = s.late`,
		tests: "TestAcquireThatRunsLastIsReleased",
	},
	{
		name: "a late acquire released although the caller chose the token", rule: "4", file: "strategy.go",
		old:   `if p.callerToken || knownNotDone(err) {`,
		new:   `if knownNotDone(err) {`,
		tests: "TestLateAcquireOfAChosenTokenIsLeft",
	},
	{
		name: "a late legacy acquire released although the caller chose the token", rule: "4", file: "strategy.go",
		old:   `if p.callerToken || knownNotDone(err) {`,
		new:   `if knownNotDone(err) {`,
		tests: "TestLegacyLateAcquireWithAChosenTokenStays",
	},
	{
		name: "a late vote released although the caller chose the token", rule: "4", file: "strategy.go",
		old:   `if p.callerToken || knownNotDone(err) {`,
		new:   `if knownNotDone(err) {`,
		tests: "TestLateVoteOfAChosenToken",
	},
	{
		name: "an attempt released although the caller chose the token", rule: "4", file: "engine.go",
		old:   `(got.resent || !knownNotDone(err)) && !a.params.callerToken {`,
		new:   `(got.resent || !knownNotDone(err)) {`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "a TTL below 1 ms reaches Redis", rule: "5", file: "options.go",
		old: `if d < time.Millisecond {
			return invalid("WithTTL`,
		new: `if d <= 0 {
			return invalid("WithTTL`,
		tests: conformance + "bad input",
	},
	{
		name: "an Extend below 1 ms reaches Redis", rule: "5", file: "lock.go",
		old:   `case ttl < time.Millisecond:`,
		new:   `case ttl <= 0:`,
		tests: conformance + "Extend lengthens",
	},
	{
		name: "a key without a TTL", rule: "6", file: "acquire.lua",
		old:   `call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`,
		new:   `call('SET', KEYS[1], ARGV[1], 'NX')`,
		tests: conformance + "Inspect tells",
	},
	{
		name: "a fence register without a TTL", rule: "6", file: "fence.lua",
		old:   `format('%.0f', fence), 'PX', registerMemory)`,
		new:   `format('%.0f', fence))`,
		tests: "TestFirstComeFirstServed",
	},
}
