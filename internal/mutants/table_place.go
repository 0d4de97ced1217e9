package main

// places are mistakes of the scripts about places in the queue and about blocks of fences.
var places = []mutant{
	{
		name: "a block of fences ends above the clock", rule: "Fencing", file: "fence.lua",
		old:   `elseif more > 0 and fence > now then`,
		new:   `elseif false then`,
		tests: "TestBlockNeverEndsAboveTheClock/SetNXPX",
	},
	{
		name: "a block of fences begins below the clock though the register was lost", rule: "Fencing", file: "fence.lua",
		old:   `if fence == block then more = 0 end`,
		new:   ``,
		tests: "TestBlockNeverEndsAboveTheClock/SetNXPX",
	},
	{
		name: "a block of fences begins with its last one", rule: "Fencing", file: "fence.lua",
		old: `  fence = fence - more
`,
		new:   ``,
		tests: "TestBlockNeverEndsAboveTheClock/SetNXPX",
	},
	{
		name: "a block of fences counts as one", rule: "Fencing", file: "fence.lua",
		old:   `and pcall('INCRBY', KEYS[2], want)`,
		new:   `and pcall('INCRBY', KEYS[2], 1)`,
		tests: "TestBlockNeverEndsAboveTheClock/SetNXPX",
	},
	{
		name: "a place by the time of the command", rule: "15, 45", file: "queue.lua",
		old:   `last + 1) - waited, 1)`,
		new:   `last + 1), 1)`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "a place before earlier ones", rule: "45", file: "queue.lua",
		old:   `last + 1`,
		new:   `0`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "a block of fences of a hand-over ends above the clock", rule: "Fencing", file: "fence.lua",
		old:   `elseif more > 0 and fence > now then`,
		new:   `elseif false then`,
		tests: "TestFenceIsTheRegisterOrTheClock/hand-over",
	},
	{
		name: "a block of fences of a hand-over begins below the clock though the register was lost", rule: "Fencing", file: "fence.lua",
		old:   `if fence == block then more = 0 end`,
		new:   ``,
		tests: "TestFenceIsTheRegisterOrTheClock/hand-over",
	},
	{
		name: "a block of fences of a hand-over begins with its last one", rule: "Fencing", file: "fence.lua",
		old: `  fence = fence - more
`,
		new:   ``,
		tests: "TestFenceIsTheRegisterOrTheClock/hand-over",
	},
	{
		name: "a block of fences of a hand-over counts as one", rule: "Fencing", file: "fence.lua",
		old:   `and pcall('INCRBY', KEYS[2], want)`,
		new:   `and pcall('INCRBY', KEYS[2], 1)`,
		tests: "TestFenceIsTheRegisterOrTheClock/hand-over",
	},
	{
		name: "a place that a release takes by the time of the command", rule: "15, 45", file: "queue.lua",
		old:   `last + 1) - waited, 1)`,
		new:   `last + 1), 1)`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "a place that a release takes before earlier ones", rule: "45", file: "queue.lua",
		old:   `last + 1`,
		new:   `0`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "a block of fences of a permit ends above the clock", rule: "Fencing", file: "fence.lua",
		old:   `elseif more > 0 and fence > now then`,
		new:   `elseif false then`,
		tests: "TestBlockNeverEndsAboveTheClock/Semaphore",
	},
	{
		name: "a block of fences of a permit begins below the clock though the register was lost", rule: "Fencing", file: "fence.lua",
		old:   `if fence == block then more = 0 end`,
		new:   ``,
		tests: "TestBlockNeverEndsAboveTheClock/Semaphore",
	},
	{
		name: "a block of fences of a permit begins with its last one", rule: "Fencing", file: "fence.lua",
		old: `  fence = fence - more
`,
		new:   ``,
		tests: "TestBlockNeverEndsAboveTheClock/Semaphore",
	},
	{
		name: "a block of fences of a permit counts as one", rule: "Fencing", file: "fence.lua",
		old:   `and pcall('INCRBY', KEYS[2], want)`,
		new:   `and pcall('INCRBY', KEYS[2], 1)`,
		tests: "TestBlockNeverEndsAboveTheClock/Semaphore",
	},
	{
		name: "a place for a permit by the time of the command", rule: "15, 45", file: "queue.lua",
		old:   `last + 1) - waited, 1)`,
		new:   `last + 1), 1)`,
		tests: "TestPlaceIsThatOfTheArrival/Semaphore",
	},
	{
		name: "a place for a permit before earlier ones", rule: "45", file: "queue.lua",
		old:   `last + 1`,
		new:   `0`,
		tests: "TestPlaceIsThatOfTheArrival/Semaphore",
	},
	{
		name: "an entry that has waited for long counts as one that was handed the lock", rule: "45", file: "queue.lua",
		old:   `last + 1) - waited, 1)`,
		new:   `last + 1) - waited, -9e15)`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "a release that finds nothing queues its line", rule: "7", file: "release.lua",
		old: `if not ours and (not keeper or holder and holder ~= keeper) then return 0 end`,
		new: `if nextEntry then pcall('ZADD', queue, 1, nextEntry) end
if not ours and (not keeper or holder and holder ~= keeper) then return 0 end`,
		tests: "TestReleaseThatFindsNothingQueuesNothing/SetNXPX",
	},
	{
		name: "a release that finds no permit queues its line", rule: "7", file: "semaphore_release.lua",
		old:   `if nextEntry and released == 1 then`,
		new:   `if nextEntry then`,
		tests: "TestReleaseThatFindsNothingQueuesNothing/Semaphore",
	},
	{
		name: "a release does not say that it has handed the lock to its line", rule: "45", file: "release.lua",
		old:   `if entry ~= nextEntry then return reply(1) end`,
		new:   `if true then return reply(1) end`,
		tests: "TestReleaseSaysThatItHandsTheLockToItsLine/SetNXPX",
	},
	{
		name: "a release says that it has handed the lock to its line, though another has it", rule: "45", file: "release.lua",
		old: `if entry ~= nextEntry then return reply(1) end
`,
		new:   ``,
		tests: "TestReleaseSaysThatItHandsTheLockToItsLine/SetNXPX",
	},
	{
		name: "a release does not say that it has handed a permit to its line", rule: "45", file: "semaphore_release.lua",
		old:   `unpack(granted[nextEntry] or {})`,
		new:   `unpack({})`,
		tests: "TestReleaseSaysThatItHandsTheLockToItsLine/Semaphore",
	},
	{
		name: "a block of fences keeps what is above the clock", rule: "Fencing", file: "fence.lua",
		old:   `call('INCRBY', KEYS[2], -excess)`,
		new:   ``,
		tests: "TestBlockNeverEndsAboveTheClock/SetNXPX",
	},
	{
		name: "a block of fences of a hand-over keeps what is above the clock", rule: "Fencing", file: "fence.lua",
		old:   `call('INCRBY', KEYS[2], -excess)`,
		new:   ``,
		tests: "TestFenceIsTheRegisterOrTheClock/hand-over",
	},
	{
		name: "a block of fences of a permit keeps what is above the clock", rule: "Fencing", file: "fence.lua",
		old:   `call('INCRBY', KEYS[2], -excess)`,
		new:   ``,
		tests: "TestBlockNeverEndsAboveTheClock/Semaphore",
	},
	{
		name: "the only one in the queue is not the first", rule: "15", file: "acquire.lua",
		old:   `first = fresh == 1 and (last == '0'`,
		new:   `first = fresh == 1 and (false`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "a new entry that has waited longest is not the first", rule: "15", file: "acquire.lua",
		old:   `or score <= tonumber(last) and call('ZCOUNT'`,
		new:   `or false and call('ZCOUNT'`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
	{
		name: "every new entry with an early place is the first", rule: "27", file: "acquire.lua",
		old:   `, '(' .. format('%.0f', score)) == 0)`,
		new:   `, '(' .. format('%.0f', score)) >= 0)`,
		tests: "TestPlaceIsThatOfTheArrival/SetNXPX",
	},
}
