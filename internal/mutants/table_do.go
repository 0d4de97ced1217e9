package main

// doing are mistakes about Do, TryDo, DoAll and Lead.
var doing = []mutant{
	{
		name: "TryDo waits", rule: "38", file: "do.go",
		old:   `l.TryLock(ctx, key, opts...)`,
		new:   `l.Lock(ctx, key, opts...)`,
		tests: "TestTryDoMakesOneAttempt",
	},
	{
		name: "the keys of DoAll are not sorted", rule: "38", file: "do.go",
		old:   `slices.Sorted(slices.Values(keys))`,
		new:   `slices.Clone(keys)`,
		tests: "TestDoAllAcquiresEachKeyOnceInOneOrder|TestCallersOfDoAllNeverDeadlock",
	},
	{
		name: "a key that is named twice waits for itself", rule: "38", file: "do.go",
		old:   `slices.Compact(slices.Sorted(slices.Values(keys)))`,
		new:   `slices.Sorted(slices.Values(keys))`,
		tests: "TestDoAllAcquiresEachKeyOnceInOneOrder",
	},
	{
		name: "the locks of DoAll are released in their order", rule: "38", file: "do.go",
		old: `locks = append(locks, lock)`,
		new: `locks = append(locks, lock)
			defer func() { _, locks = locks[0].Unlock(ctx), locks[1:] }()`,
		tests: "TestDoAllAcquiresEachKeyOnceInOneOrder",
	},
	{
		name: "Lead forgets that Redis was unavailable when ctx ended", rule: "33", file: "do.go",
		old:   `end = &gaveUp{end, err}`,
		new:   `_ = err`,
		tests: "TestStoppedLeadSaysWhyItDidNotLead",
	},
	{
		name: "Lead with a ctx that had ended reports an outage", rule: "33", file: "do.go",
		old:   `case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):`,
		new:   `case false:`,
		tests: "TestShortCallInAnOutageIsNoConflict",
	},
	{
		name: "a lost lock is not noticed before fn", rule: "38", file: "do.go",
		old:   `if err := firstEnd(locks); err != nil {`,
		new:   `if err := firstEnd(nil); err != nil {`,
		tests: "TestDoAllNoticesALossBeforeFn",
	},
	{
		name: "a lost lock does not end the wait for the next key", rule: "38", file: "do.go",
		old:   `l.Lock(held, keys[len(locks)], opts...)`,
		new:   `l.Lock(ctx, keys[len(locks)], opts...)`,
		tests: "TestDoAllNoticesALossBeforeFn",
	},
	{
		name: "a loss is reported as a refusal", rule: "38", file: "do.go",
		old:   `end != nil && ctx.Err() == nil`,
		new:   `end != nil && ctx.Err() != nil`,
		tests: "TestDoAllNoticesALossBeforeFn",
	},
	{
		name: "a release without a reply is an error of Do", rule: "38", file: "do.go",
		old:   `case !errors.Is(lost, ErrLost):`,
		new:   `case lost == nil, errors.Is(lost, ErrReleased):`,
		tests: "TestFinishedWorkIsNoFailure",
	},
	{
		name: "a lock that ended before fn is no error of Do", rule: "38", file: "do.go",
		old:   `case !errors.Is(lost, ErrLost):`,
		new:   `case true:`,
		tests: "TestDoReportsALockThatEndedBeforeFn",
	},
	{
		name: "a lease that ended after fn is an error of Do", rule: "38", file: "do.go",
		old:   `case trusted && !time.Now().Before(until):`,
		new:   `case false && trusted && until.IsZero():`,
		tests: "TestReleaseThatOutlastsTheLeaseIsNoLoss",
	},
	{
		name: "a panic releases nothing", rule: "38", file: "do.go",
		old: `defer func() {
		trusted`,
		new: `defer func() {
		if p := recover(); p != nil {
			panic(p)
		}
		trusted`,
		tests: "TestPanicReleasesAll|TestPanicOfALeaderReleases",
	},
	{
		name: "fn's ctx follows the first lock alone", rule: "39", file: "do.go",
		old:   `return next(held)`,
		new:   `return next(locks[0].Context(ctx))`,
		tests: "TestFirstLostLockEndsCtx",
	},
	{
		name: "fn's ctx follows the last lock alone", rule: "39", file: "do.go",
		old:   `return hold(held, lock,`,
		new:   `return hold(ctx, lock,`,
		tests: "TestFirstLostLockEndsCtx",
	},
	{
		name: "Lead ends at an outage", rule: "40", file: "do.go",
		old:   `case permanent(err):`,
		new:   `default:`,
		tests: "TestLeadOutlastsAnOutage|TestLeadAsksEverLessOftenWhileLockFails",
	},
	{
		name: "Lead tries again what cannot work", rule: "40", file: "do.go",
		old:   `case permanent(err):`,
		new:   `case false:`,
		tests: "TestLeadEndsWithWhatRetryingCannotFix",
	},
	{
		name: "Lead does not pause", rule: "40", file: "do.go",
		old:   `sleep(ctx, pause/2+rand.N(pause/2))`,
		new:   `sleep(ctx, min(50*time.Millisecond, pause/2+rand.N(pause/2)))`,
		tests: "TestLeadPausesBetweenTerms",
	},
	{
		name: "the pause of Lead does not grow", rule: "40", file: "do.go",
		old:   `pause = min(2*pause, longestRecess)`,
		new:   `pause = shortestRecess + 0*pause`,
		tests: "TestLeadAsksEverLessOftenWhileLockFails",
	},
	{
		name: "a term does not shorten the pause of Lead", rule: "40", file: "do.go",
		old:   `pause = shortestRecess` + "\n",
		new:   `_ = pause` + "\n",
		tests: "TestLeadAsksEverLessOftenWhileLockFails",
	},
	{
		name: "Lead forgets why ctx ended", rule: "40", file: "do.go",
		old:   `end := node.CtxError(ctx)`,
		new:   `end := error(&node.NotDone{Err: ctx.Err()})`,
		tests: "TestLeadIsStoppedByItsFn",
	},
	{
		name: "a call that waits takes a token", rule: "20", file: "options.go",
		old:   `if cfg.token != "" {`,
		new:   `if false {`,
		tests: "TestInvalidCallsSendNothing",
	},
}
