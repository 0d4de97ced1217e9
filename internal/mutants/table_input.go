package main

// inputs are mistakes about errors and bad input.
var inputs = []mutant{
	{
		name: "a grant without a fence stays", rule: "19", file: "acquire.lua",
		old: `  if new then call('DEL', KEYS[1]) end
`,
		new:   ``,
		tests: conformance + "a counter that is none",
	},
	{
		name: "somebody's data taken for a counter", rule: "19", file: "quorum_acquire.lua",
		old:   `return redis.error_reply('ERR the fence counter holds something else')`,
		new:   `counter = 0`,
		tests: "TestConformance/Redlock$/miniredis/a counter that is none",
	},
	{
		name: "a key of another type does not end the lock", rule: "19", file: "operations.go",
		old:   `case errors.Is(r.Err, node.ErrOtherData):`,
		new:   `case false:`,
		tests: conformance + "a stranger's list",
	},
	{
		name: "a nil client hidden in an interface", rule: "20", file: "keys.go",
		old:   `v.Kind() == reflect.Pointer && v.IsNil()`,
		new:   `v.Kind() == reflect.Pointer && false`,
		tests: conformance + "bad input",
	},
	{
		name: "an empty key", rule: "20", file: "engine.go",
		old:   `if key == "" {`,
		new:   `if false {`,
		tests: conformance + "bad input",
	},
	{
		name: "a drift that is not a number", rule: "20", file: "options.go",
		old:   `if !(factor >= 0 && factor < 1) {`,
		new:   `if factor < 0 || factor >= 1 {`,
		tests: conformance + "bad input",
	},
	{
		name: "trouble in a script of Redis 6 taken for final", rule: "16", file: "internal/node/hints.go",
		old:   `strings.HasPrefix(said, "ERR Error running script")`,
		new:   `false`,
		tests: "TestAnswersAreReadAlikeFromEveryServer",
	},
	{
		name: "Degraded is reported twice", rule: "Waiting", file: "internal/handoff/subscription.go",
		old:   `s.running = true`,
		new:   `s.running, s.refused, s.mute = true, nil, time.Time{}`,
		tests: "TestDegradationIsReportedOnce",
	},
	{
		name: "a closed subscription forgets that SUBSCRIBE was refused", rule: "34", file: "internal/handoff/subscription.go",
		old:   `s.running, s.current, s.ready = false, nil, false`,
		new:   `s.running, s.current, s.ready, s.refused = false, nil, false, nil`,
		tests: "TestClosedSubscriptionKeepsWhatWasRefused",
	},
	{
		name: "a closed subscription forgets that PUBLISH was refused", rule: "34", file: "internal/handoff/subscription.go",
		old:   `s.running, s.current, s.ready = false, nil, false`,
		new:   `s.running, s.current, s.ready, s.mute = false, nil, false, time.Time{}`,
		tests: "TestClosedSubscriptionKeepsWhatWasRefused",
	},
	{
		name: "an extension that overflows", rule: "20", file: "lock.go",
		old:   `min(ttl, clock.Longest).Truncate(`,
		new:   `(ttl + 0*clock.Longest).Truncate(`,
		tests: "TestLongestTimes",
	},
	{
		name: "a time that overflows", rule: "20", file: "internal/clock/clock.go",
		old:   `min(n, Longest.Milliseconds())`,
		new:   `max(n, 0)`,
		tests: "TestLongestTimes",
	},
}
