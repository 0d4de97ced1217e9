package main

// renewals are mistakes about renewal.
var renewals = []mutant{
	{
		name: "a renewal that comes late", rule: "12", file: "lease.go",
		old:   `l.r.cfg.ttl/3`,
		new:   `2*l.r.cfg.ttl/3`,
		tests: "TestHourOfRenewals",
	},
	{
		name: "a long lease is renewed only when it has become short", rule: "12", file: "lease.go",
		old: `l.renewed, l.renewAt = start, min(l.r.cfg.ttl/3, clock.Validity(l.r.cfg.ttl, l.r.cfg.drift)/2)`,
		new: `full := clock.Validity(l.r.cfg.ttl, l.r.cfg.drift)
	l.renewed, l.renewAt = l.start, l.length-full+min(l.r.cfg.ttl/3, full/2)`,
		tests: "TestRenewalsGoOnWhileTheLeaseIsLong",
	},
	{
		name: "a short Extend puts the next renewal off", rule: "12", file: "renewal.go",
		old:   `if ttl >= l.r.cfg.ttl {`,
		new:   `if true {`,
		tests: "TestShortExtendsPutNoRenewalOff",
	},
	{
		name: "a lock whose lease ends with WithMaxHold is not renewed", rule: "12", file: "renewal.go",
		old:   `return l.r.cfg.renew && kept && !l.renewing`,
		new:   `return l.r.cfg.renew && kept && !l.renewing && (l.r.cfg.maxHold == 0 || l.length < l.r.cfg.maxHold-l.start.Since(l.granted))`,
		tests: "TestRenewalsGoOnWhileTheLeaseIsLong",
	},
	{
		name: "an unclear renewal that loses the lock", rule: "12", file: "renewal.go",
		old: `case errors.Is(err, ErrLost):
			l.endLocked(err, lost)`,
		new: `case err != nil || errors.Is(err, ErrLost):
			l.endLocked(ErrLost, lost)`,
		tests: "TestUnclearRenewalIsRetriedUntilTheEnd",
	},
	{
		name: "an unclear renewal that counts as a success", rule: "12", file: "renewal.go",
		old:   `case err == nil:`,
		new:   `case !errors.Is(err, ErrLost):`,
		tests: "TestUnclearRenewalIsRetriedUntilTheEnd",
	},
	{
		name: "an unclear renewal that waits for the next one", rule: "12", file: "renewal.go",
		old:   `pause := p.timeout/4 + rand.N(p.timeout/2+1)`,
		new:   `pause := l.r.cfg.ttl/3 + 0*rand.N(p.timeout)`,
		tests: "TestUnclearRenewalIsRetriedUntilTheEnd",
	},
	{
		name: "a definite loss counts as an unknown outcome", rule: "12", file: "renewal.go",
		old: `case errors.Is(err, ErrLost):
			l.endLocked(err, lost)`,
		new: `case false && errors.Is(err, ErrLost):
			l.endLocked(err, lost)`,
		tests: "TestDefiniteAnswerEndsTheLeaseAtOnce",
	},
	{
		name: "a forgotten lock renewed for ever", rule: "13", file: "renewal.go",
		old:   `kept := l.strong != nil || l.weak.Value() != nil`,
		new:   `kept := true`,
		tests: "TestForgottenLockIsRenewedNoMore",
	},
	{
		name: "a goroutine for each idle lock", rule: "14", file: "lease.go",
		old: `l.timer = time.AfterFunc(l.nextLocked(now), l.tick)`,
		new: `l.timer = time.AfterFunc(l.nextLocked(now), l.tick)
	go func() { <-l.doneChan(0) }()`,
		tests: "TestIdleLockCostsNoGoroutine",
	},
	{
		name: "a caller's Extend puts the renewal off", rule: "12", file: "renewal.go",
		old:   `case renewal:`,
		new:   `default:`,
		tests: "TestFailingExtends",
	},
}
