package main

// semaphores are mistakes about permits.
var semaphores = []mutant{
	{
		name: "Adopt does not end the turn of a semaphore", rule: "44", file: "semaphore.go",
		old:   `shares: s.limit > 1`,
		new:   `shares: true`,
		tests: "TestAdoptEndsTheTurnOfASemaphore",
	},
	{
		name: "a permit more than the limit", rule: "44", file: "semaphore_acquire.lua",
		old:   `local free = limit - held`,
		new:   `local free = limit - held + 1`,
		tests: "TestLimitIsReachedAndNotPassed",
	},
	{
		name: "a hand-over that does not count", rule: "44", file: "semaphore.lua",
		old:   `free = free - 1`,
		new:   `free = free`,
		tests: "TestPermitsAreGrantedInTheOrderOfArrival",
	},
	{
		name: "one permit handed on where several are free", rule: "45", file: "semaphore.lua",
		old:   `while free > 0 do`,
		new:   `while free == 1 do`,
		tests: "TestExpiredPermitGoesToTheLongestWaiter",
	},
	{
		name: "expired permits that nobody purges", rule: "44", file: "semaphore.lua",
		old:   `local expired = low[4] and tonumber(low[4]) <= now`,
		new:   `local expired = false`,
		tests: "TestCrashedHoldersCostTheirTTL",
	},
	{
		name: "a purge of permits that have not expired", rule: "44", file: "semaphore.lua",
		old:   `call('ZREMRANGEBYSCORE', permits, 0, format('%.0f', now))`,
		new:   `call('ZREMRANGEBYSCORE', permits, 0, '+inf')`,
		tests: "TestCrashedHoldersCostTheirTTL",
	},
	{
		name: "a set that ends with the shortest lease", rule: "44", file: "semaphore.lua",
		old:   `if call('PTTL', permits) <= ttl then`,
		new:   `if true then`,
		tests: "TestCrashedHoldersCostTheirTTL",
	},
	{
		name: "two limits on one key", rule: "44", file: "semaphore.lua",
		old:   `if theirs and theirs ~= limit then`,
		new:   `if false then`,
		tests: "TestLimitIsTheSameForAll",
	},
	{
		name: "the limit of waiters does not count", rule: "44", file: "semaphore.lua",
		old:   `theirs = tonumber(waits)`,
		new:   `theirs = nil`,
		tests: "TestAnotherLimitChangesNothing/expired",
	},
	{
		name: "a permit adopted under another limit", rule: "44", file: "semaphore_extend.lua",
		old:   `if wrong then return wrong end`,
		new:   `if false then return wrong end`,
		tests: "TestAnotherLimitChangesNothing/held",
	},
	{
		name: "a permit that is gone is refused for its limit, and not lost", rule: "12", file: "semaphore_extend.lua",
		old:   `return KEYS[2] and wrong or 0`,
		new:   `return wrong or 0`,
		tests: "TestHandleOfAnotherLimitLetsNobodyIn",
	},
	{
		name: "a release under another limit hands permits on", rule: "44", file: "semaphore_release.lua",
		old:   `if wrong then`,
		new:   `if false then`,
		tests: "TestHandleOfAnotherLimitLetsNobodyIn",
	},
	{
		name: "Inspect under another limit", rule: "44", file: "semaphore_inspect.lua",
		old:   `if wrong then`,
		new:   `if false then`,
		tests: "TestLimitIsTheSameForAll",
	},
	{
		name: "a waiter of another limit stays in the queue", rule: "17", file: "semaphore_release.lua",
		old:   `if given(4) then pcall('ZREM', queue, ARGV[2] .. ' ' .. ARGV[4]) end`,
		new:   ``,
		tests: "TestWaiterOfAnotherLimitLeavesTheQueue",
	},
	{
		name: "a full Redis extends no permit", rule: "29", file: "semaphore.lua",
		old:   `    call('ZREM', permits, token) -- a full`,
		new:   `    -- a full`,
		tests: "TestPermitsSurviveAFullRedis",
	},
	{
		name: "a full Redis keeps a waiter from the permit that it was handed", rule: "29", file: "semaphore_acquire.lua",
		old: `if had then adopted(token) end -- a full Redis refuses INCR, but not behind another write of the script
local fence, more, failed = mint(limit == 1 and want or 1)
`,
		new: `local fence, more, failed = mint(limit == 1 and want or 1)
if had then adopted(token) end
`,
		tests: "TestLostMessageOnAFullRedisCostsASecond",
	},
	{
		name: "a limit for ever", rule: "44", file: "semaphore.lua",
		old:   `local idle = not low[4] or`,
		new:   `local idle = not low[2] or low[2] == '' and`,
		tests: "TestLimitIsTheSameForAll",
	},
	{
		name: "newcomers overtake", rule: "45", file: "semaphore_acquire.lua",
		old:   `if not had and free > 0 then`,
		new:   `if false then`,
		tests: "TestExpiredPermitGoesToTheLongestWaiter",
	},
	{
		name: "an acquire that is sent again acquires a second permit", rule: "3", file: "semaphore_acquire.lua",
		old:   `local had = leaseEnd(token)`,
		new:   `local had = false`,
		tests: "TestConformance/Semaphore",
	},
	{
		name: "an acquire that comes again shortens the permit", rule: "4", file: "semaphore.lua",
		old:   `if not before or before < ends then`,
		new:   `if true then`,
		tests: "TestConformance/Semaphore",
	},
	{
		name: "an expired permit that is extended", rule: "7", file: "semaphore_extend.lua",
		old:   `local ends = leaseEnd(token)`,
		new:   `local ends = call('ZSCORE', permits, token) and now`,
		tests: "TestExpiredPermitIsNotExtended",
	},
	{
		name: "an expired permit that is released", rule: "7", file: "semaphore_release.lua",
		old:   `local _, wrong = look(limit) -- an`,
		new:   `local wrong = check(limit) -- an`,
		tests: "TestExpiredPermitIsNotExtended",
	},
	{
		name: "a frozen process keeps its place beside a semaphore", rule: "25", file: "semaphore.lua",
		old:   `if gone(token) then call('ZREM', queue, entry) end`,
		new:   `if false then call('ZREM', queue, entry) end`,
		tests: "TestFrozenWaitersOfASemaphoreCostOneTTL",
	},
	{
		name: "permits handed to processes that have gone", rule: "25", file: "announce.lua",
		old:   `token and not forbidden and (listeners > 0 or cluster or polls ~= '')`,
		new:   `token and not forbidden`,
		tests: "TestReleaseSkipsThoseWhoCannotHear",
	},
	{
		name: "an adopted permit in the queue", rule: "26", file: "semaphore_acquire.lua",
		old:   `if had then adopted(token) end -- a full`,
		new:   `-- a full`,
		tests: "TestHandedLockThatIsTakenAgainLeavesTheQueue",
	},
	{
		name: "somebody's sorted set taken for a semaphore", rule: "19", file: "semaphore.lua",
		old:   `if low[1] and (low[1] ~= '' or tonumber(low[2]) >= 0) then`,
		new:   `if false then`,
		tests: "TestSomebodysSortedSetIsLeftAlone",
	},
	{
		name: "an empty member of somebody's sorted set taken for a limit", rule: "19", file: "semaphore.lua",
		old:   ` or tonumber(low[2]) >= 0)`,
		new:   `)`,
		tests: "TestSomebodysSortedSetIsLeftAlone",
	},
	{
		name: "somebody's sorted set is an error of the script", rule: "19", file: "semaphore.lua",
		old:   `return redis.error_reply('WRONGTYPE ' .. permits .. ' is not a semaphore')`,
		new:   `error('WRONGTYPE ' .. permits .. ' is not a semaphore')`,
		tests: "TestSomebodysSortedSetIsLeftAlone",
	},
	{
		name: "a permit handed over for less than its TTL", rule: "25", file: "semaphore.lua",
		old:   `hold(token, tonumber(ttl), before, free == limit and limit)`,
		new:   `hold(token, tonumber(ttl) / 2, before, free == limit and limit)`,
		tests: "TestHandedLockHasItsFullTTL/Semaphore",
	},
	{
		name: "a semaphore that polls with WithoutQueue", rule: "20", file: "semaphore.go",
		old:   `if cfg.noQueue {`,
		new:   `if false {`,
		tests: "TestLimitIsChecked",
	},
	{
		name: "a limit of nothing", rule: "20", file: "semaphore.go",
		old:   `limit < 1 ||`,
		new:   `limit < 0 ||`,
		tests: "TestLimitIsChecked",
	},
	{
		name: "a renewal that looks for a queue without its key", rule: "12", file: "semaphore.lua",
		old:   `queue and pcall('ZRANGEBYSCORE', queue, low, high, ...) or {}`,
		new:   `pcall('ZRANGEBYSCORE', queue, low, high, ...)`,
		tests: "TestDeletedPermitIsLostAtOnce",
	},
	{
		name: "a kept permit hides the holder of another", rule: "44", file: "semaphore_inspect.lua",
		old:   `if first[1] and kept(first[1]) then`,
		new:   `if false then`,
		tests: "TestKeptPermitHidesNoHolder",
	},
}
