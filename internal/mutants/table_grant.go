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
		name: "one token for all attempts of a wait", rule: "1, 4", file: "engine.go",
		old: `l, err := e.lease(r, r.cfg.token)`,
		new: `l, err := e.lease(r, r.cfg.token)
	kept := *r.cfg
	kept.token = l.claim.token
	r.cfg = &kept`,
		tests: "TestEveryAttemptHasATokenOfItsOwn",
	},
	{
		name: "acquire compares a prefix of the token", rule: "1", file: "acquire.lua",
		old:   `if holder and holder ~= ARGV[1] then`,
		new:   `if holder and string.sub(holder, 1, #ARGV[1]) ~= ARGV[1] then`,
		tests: conformance + "a token is compared whole",
	},
	{
		name: "extend compares a prefix of the token", rule: "1, 7", file: "extend.lua",
		old:   `if redis.call('GET', KEYS[1]) ~= ARGV[1] then`,
		new:   `if string.sub(redis.call('GET', KEYS[1]) or '', 1, #ARGV[1]) ~= ARGV[1] then`,
		tests: plainOnes + "a token is compared whole",
	},
	{
		name: "release compares a prefix of the token", rule: "1, 7", file: "release.lua",
		old:   `if ARGV[1] == '' or call('GET', KEYS[1]) ~= ARGV[1] then`,
		new:   `if ARGV[1] == '' or string.sub(call('GET', KEYS[1]) or '', 1, #ARGV[1]) ~= ARGV[1] then`,
		tests: conformance + "a token is compared whole",
	},
	{
		name: "a deadline measured from the reply", rule: "2", file: "engine.go",
		old: `g, err := l.engine.strategy.acquire(ctx, c)`,
		new: `g, err := l.engine.strategy.acquire(ctx, c)
	start = l.engine.now()`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "a renewal measured from the reply", rule: "2", file: "renewal.go",
		old: `err := l.engine.strategy.extend(ctx, &c)`,
		new: `err := l.engine.strategy.extend(ctx, &c)
	start = l.engine.now()`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "an adoption measured from the reply", rule: "2", file: "engine.go",
		old: `if err := e.strategy.extend(ctx, &l.claim); err != nil {`,
		new: `err = e.strategy.extend(ctx, &l.claim)
	start = e.now()
	if err != nil {`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "no drift", rule: "2", file: "clock.go",
		old:   `return ttl - time.Duration(float64(ttl)*factor) - margin`,
		new:   `return ttl - margin`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "no margin for milliseconds", rule: "2", file: "clock.go",
		old:   `return ttl - time.Duration(float64(ttl)*factor) - margin`,
		new:   `return ttl - time.Duration(float64(ttl)*factor)`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "a slow grant kept", rule: "2", file: "engine.go",
		old:   `return nil, g, errSlow`,
		new:   `_ = errSlow`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "a slow grant not given back", rule: "2", file: "engine.go",
		old:   `if !surelyNot(err) && !l.claim.chosen {`,
		new:   `if !surelyNot(err) && !l.claim.chosen && !errors.Is(err, ErrLost) {`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "a slow adoption kept", rule: "2", file: "engine.go",
		old:   `return nil, errSlow`,
		new:   `_ = errSlow`,
		tests: "TestSlowGrantIsNoGrant",
	},
	{
		name: "an acquire that refuses its own token", rule: "3", file: "acquire.lua",
		old:   `if holder and holder ~= ARGV[1] then`,
		new:   `if holder then`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "a plain acquire that refuses its own token", rule: "3", file: "operations.go",
		old: `if err != nil || reply != nil {`,
		new: `if err == nil && reply == nil {
		err = ErrNotAcquired
	}
	if err != nil || reply != nil {`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "a command that is not sent again", rule: "3", file: "node.go",
		old:   `if j.here || !again ||`,
		new:   `if true || !again ||`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "the client sends again without our knowing", rule: "3, 7", file: "node.go",
		old:   `func (once) NoRetry() bool { return true }`,
		new:   `func (once) NoRetry() bool { return false }`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "an unclear attempt that is not undone", rule: "3", file: "engine.go",
		old:   `l.engine.undo(ctx, &l.claim)`,
		new:   `_ = l.engine.undo`,
		tests: "TestUndoIsDetachedFromItsCtx|TestAttemptThatWasPerhapsSentIsUndone",
	},
	{
		name: "an acquire that was sent counts as never sent", rule: "3", file: "node.go",
		old:   `if never && !resent {`,
		new:   `if never {`,
		tests: "TestSendKnowsWhatMayHaveBeenCarriedOut",
	},
	{
		name: "an acquire that comes again shortens the lease", rule: "4", file: "acquire.lua",
		old:   `if not holder or not ARGV[5] and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then`,
		new:   `if true then`,
		tests: conformance + "an acquire that comes again",
	},
	{
		name: "Extend shortens the lease in Redis", rule: "4", file: "extend.lua",
		old:   `if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then`,
		new:   `if true then`,
		tests: conformance + "Extend lengthens",
	},
	{
		name: "Extend shortens the lease here", rule: "4", file: "lease.go",
		old:   `if start.since(l.start)+length > l.length {`,
		new:   `if true {`,
		tests: conformance + "Extend lengthens",
	},
	{
		name: "a straggler that is not released", rule: "4", file: "set_nx_px.go",
		old: `return s.node.do(ctx, acquire, c, form{undo: undo})`,
		new: `_ = undo
	return s.node.do(ctx, acquire, c, form{})`,
		tests: "TestStragglerThatLandsAfterTheCleanUpIsReleased",
	},
	{
		name: "a straggler undone although the token was chosen", rule: "4", file: "set_nx_px.go",
		old:   `undo = s.leave`,
		new:   `_ = s.leave`,
		tests: "TestStragglerWithAChosenTokenStays",
	},
	{
		name: "an attempt undone although the token was chosen", rule: "4", file: "engine.go",
		old:   `if !surelyNot(err) && !l.claim.chosen {`,
		new:   `if !surelyNot(err) {`,
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
		name: "a plain SET whose reply was lost is forgotten", rule: "4", file: "operations.go",
		old:   `resent && errors.As(err, never)`,
		new:   `resent && never == nil`,
		tests: "TestLostSet",
	},
	{
		name: "a key without a TTL", rule: "6", file: "acquire.lua",
		old:   `redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`,
		new:   `redis.call('SET', KEYS[1], ARGV[1])`,
		tests: conformance + "Inspect tells",
	},
	{
		name: "a plain key without a TTL", rule: "6", file: "operations.go",
		old:   `"nx", "px", &ttl))`,
		new:   `"nx"))`,
		tests: plainOnes + "Inspect tells",
	},
	{
		name: "a fence counter without a TTL", rule: "6", file: "acquire.lua",
		old:   `string.format('%.0f', fence), 'PX', fenceMemory)`,
		new:   `string.format('%.0f', fence))`,
		tests: "TestFirstComeFirstServed",
	},
}
