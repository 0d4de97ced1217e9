package main

// migrations are mistakes about NewMigration.
var migrations = []mutant{
	{
		name: "a migration that fails half-way deletes an earlier lock of its token", rule: "4", file: "migration.go",
		old:   `l.params.callerToken && l.state.again.Load() {`,
		new:   `false {`,
		tests: "TestMigrationThatFailsHalfWayLeavesAnEarlierLock",
	},
	{
		name: "a second Unlock of a migration releases from", rule: "Migration", file: "lock.go",
		old:   `k.from != nil && !errors.Is(err, ErrReleased) {`,
		new:   `k.from != nil && (err == nil || errors.Is(err, err)) {`,
		tests: "TestUnlocksOfAMigrationAtOnce",
	},
	{
		name: "a migration that locks only from", rule: "Migration", file: "migration.go",
		old: `lock, err := m.to.Lock(old.Context(ctx), key, opts...)
		if err == nil {`,
		new: `lock, err := old, error(nil)
		if lock != nil {
			return lock, nil
		}
		if err == nil {`,
		tests: "TestMigrationHoldsUnderBoth",
	},
	{
		name: "a migration that locks only to", rule: "Migration", file: "migration.go",
		old: `old, err := m.from.Lock(ctx, key, opts...)
		if err != nil {`,
		new: `old, err := m.to.Lock(ctx, key, opts...)
		if err == nil {
			return old, nil
		}
		if err != nil {`,
		tests: "TestMigrationHoldsUnderBoth",
	},
	{
		name: "from stays when to refuses an attempt", rule: "Migration", file: "migration.go",
		old:   `old.withdraw(ctx)`,
		new:   `_ = old`,
		tests: "TestMigrationThatFailsHalfWayLeavesNeither",
	},
	{
		name: "from stays when the wait for to ends", rule: "Migration", file: "migration.go",
		old: `lost := old.Err() != nil
		_ = old.Unlock(ctx)`,
		new:   `lost := old.Err() != nil`,
		tests: "TestMigrationThatFailsHalfWayLeavesNeither",
	},
	{
		name: "a wait for to that outlives from", rule: "Migration", file: "migration.go",
		old:   `m.to.Lock(old.Context(ctx), key, opts...)`,
		new:   `m.to.Lock(ctx, key, opts...)`,
		tests: "TestMigrationStartsOverWhenFromIsLost",
	},
	{
		name: "a wait that ends when from is lost", rule: "Migration", file: "migration.go",
		old:   `case !lost:`,
		new:   `case lost || !lost:`,
		tests: "TestMigrationStartsOverWhenFromIsLost",
	},
	{
		name: "the end of from does not end to", rule: "Migration", file: "migration.go",
		old: `	link(old, k)
`,
		new:   ``,
		tests: "TestMigrationEndsWithEither",
	},
	{
		name: "the end of to does not end from", rule: "Migration", file: "migration.go",
		old: `	link(k, old)
`,
		new:   ``,
		tests: "TestMigrationEndsWithEither",
	},
	{
		name: "Err judges to alone", rule: "10, Migration", file: "lock.go",
		old:   `if err := k.from.Err(); err != nil {`,
		new:   `if err := error(nil); err != nil {`,
		tests: "TestMigrationJudgesBothSides",
	},
	{
		name: "Until is that of to", rule: "Migration", file: "lock.go",
		old:   `old.Before(until) {`,
		new:   `old.Equal(until) {`,
		tests: "TestMigrationLastsAsLongAsBoth",
	},
	{
		name: "Extend leaves from as it is", rule: "Migration", file: "lock.go",
		old:   `if err := k.from.Extend(ctx, ttl); err != nil {`,
		new:   `if err := k.from.Err(); err != nil {`,
		tests: "TestMigrationLastsAsLongAsBoth",
	},
	{
		name: "from is not unlocked", rule: "Migration", file: "lock.go",
		old:   `if old := k.from.Unlock(ctx); err == nil {`,
		new:   `if old := k.from.Err(); err == nil {`,
		tests: "TestMigrationTakesFromFirstAndGivesItBackLast",
	},
	{
		name: "a link that keeps a forgotten lock", rule: "13, Migration", file: "migration.go",
		old: `link(old, k)`,
		new: `link(old, k)
	context.AfterFunc(k.Context(context.Background()), func() { _ = k.Err() })`,
		tests: "TestForgottenMigrationIsRenewedNoMore",
	},
	{
		name: "a migration without a probe", rule: "Migration", file: "migration.go",
		old:   `if ctx == nil || key == "" || m.separate.Load() {`,
		new:   `if ctx != nil || key == "" || m.separate.Load() {`,
		tests: "TestMigrationProbeHoldsFrom",
	},
	{
		name: "a probe that relies on a lock that has ended", rule: "Migration", file: "migration.go",
		old:   `err = one.Err()`,
		new:   `err = nil`,
		tests: "TestMigrationProbeHoldsFrom",
	},
	{
		name: "a probe that takes trouble for a refusal", rule: "Migration", file: "migration.go",
		old:   `return errors.Is(err, ErrNotAcquired), err`,
		new:   `return err != nil, err`,
		tests: "TestMigrationProbeTakesTroubleForNoRefusal",
	},
	{
		name: "a probe in one direction only", rule: "Migration", file: "migration.go",
		old:   `held, err = probe(ctx, unknown, m.to, m.from)`,
		new:   `err = trouble`,
		tests: "TestMigrationOfOneKeyIsRefused/SetNXPX and LegacySetNX/miniredis",
	},
	{
		name: "one prefix for both sides", rule: "Migration", file: "migration.go",
		old:   `case cfg.prefix != unset:`,
		new:   `case cfg.prefix == "none":`,
		tests: "TestMigrationRefusesWhatOneSideCannotServe",
	},
	{
		name: "the options are checked by to only after from was locked", rule: "20, Migration", file: "migration.go",
		old:   `for _, side := range []Locker{m.from, m.to} {`,
		new:   `for _, side := range []Locker{m.from} {`,
		tests: "TestMigrationRefusesWhatOneSideCannotServe",
	},
}
