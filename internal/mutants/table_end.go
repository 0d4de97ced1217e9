package main

// ends are mistakes about the end of a lock.
var ends = []mutant{
	{
		name: "an Unlock that deletes nothing", rule: "7", file: "release.lua",
		old:   `if not entry then return reply(call('DEL', KEYS[1])) end`,
		new:   `if not entry then return reply(1) end`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "release without compare", rule: "7", file: "release.lua",
		old:   `if not ours and (not keeper or holder and holder ~= keeper) then`,
		new:   `if false then`,
		tests: conformance + "after expiry",
	},
	{
		name: "extend without compare", rule: "7", file: "extend.lua",
		old:   `if holder ~= ARGV[1] then`,
		new:   `if false then`,
		tests: conformance + "a token is compared whole",
	},
	{
		name: "a second Unlock that succeeds", rule: "7", file: "unlock.go",
		old: `if l.unlocked || handle != l.handle {
		l.mu.Unlock()
		return ErrReleased`,
		new: `if l.unlocked || handle != l.handle {
		l.mu.Unlock()
		return nil`,
		tests: conformance + "an unlocked key",
	},
	{
		name: "an Unlock whose reply was lost is ErrLost", rule: "7", file: "operations.go",
		old:   `if r.Resent && errors.Is(err, ErrLost) {`,
		new:   `if r.Resent && errors.Is(err, ErrNotAcquired) {`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "an Unlock that never left is a success", rule: "7", file: "internal/node/courier.go",
		old:   `possibly := !answered && !notSent(err)`,
		new:   `possibly := !answered`,
		tests: "TestUnlockThatNeverLeftFindsTheLockLost",
	},
	{
		name: "an Unlock that Redis refused is a success", rule: "7", file: "internal/node/courier.go",
		old:   `possibly := !answered && !notSent(err)`,
		new:   `possibly := !notSent(err)`,
		tests: "TestRefusedUnlockIsNoSuccess",
	},
	{
		name: "a lost lock's Unlock that sends nothing", rule: "7", file: "unlock.go",
		old:   `case ended != nil && l.sharesTokenLocked():`,
		new:   `case ended != nil:`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "Unlock under the caller's ctx", rule: "8", file: "unlock.go",
		old:   `l.engine.strategy.release(detached(ctx), p)`,
		new:   `l.engine.strategy.release(ctx, p)`,
		tests: "TestUnlockIsDetachedFromItsCtx",
	},
	{
		name: "a release that ends with the caller's ctx", rule: "8", file: "operations.go",
		old:   `c.OutlivesCaller, c.NoResend = true,`,
		new:   `c.OutlivesCaller, c.NoResend = false,`,
		tests: "TestReleaseIsSentThoughItsCtx",
	},
	{
		name: "the op timeout not applied", rule: "8", file: "internal/node/node.go",
		old:   `c.node, c.deadline = n, now+c.Timeout`,
		new:   `c.node, c.deadline = n, now+2*time.Second`,
		tests: "TestUnlockIsBoundedBySilence",
	},
	{
		name: "the loss waits for the renewal's answer", rule: "9", file: "renewal.go",
		old: `if !ended {
		l.timer.Reset(l.nextLocked(at))`,
		new: `if !ended && ttl == 0 {
		l.timer.Reset(l.nextLocked(at))`,
		tests: "TestLossNeedsNoAnswer",
	},
	{
		name: "validity by the monotonic clock only", rule: "10", file: "internal/clock/clock.go",
		old:   `return max(i.Mono.Sub(earlier.Mono), i.Wall-earlier.Wall)`,
		new:   `return i.Mono.Sub(earlier.Mono)`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "validity by the wall clock only", rule: "10", file: "internal/clock/clock.go",
		old:   `return max(i.Mono.Sub(earlier.Mono), i.Wall-earlier.Wall)`,
		new:   `return i.Wall - earlier.Wall`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "Err trusts the timer", rule: "10", file: "lease.go",
		old:   `return l.judgeLocked(l.engine.now())`,
		new:   `return l.err`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "an answer after the end revives the lock", rule: "10", file: "renewal.go",
		old:   `if l.judgeLocked(replied) == nil {`,
		new:   `if l.err == nil {`,
		tests: "TestLateAnswerRevivesNothing",
	},
	{
		name: "Done stays open", rule: "11", file: "lease.go",
		old: `if l.done != nil {
		close(l.done)`,
		new: `if false {
		close(l.done)`,
		tests: "TestLossNeedsNoAnswer",
	},
	{
		name: "a lock that was released is lost when its lease would have ended", rule: "11", file: "lease.go",
		old:   `if l.err == nil && now.Since(l.start) >= l.length {`,
		new:   `if now.Since(l.start) >= l.length {`,
		tests: "TestReleasedLockIsNotLost",
	},
	{
		name: "a context that does not say why it ended", rule: "11", file: "lease.go",
		old: `cancel(err)
	}
	l.done, l.contexts`,
		new: `cancel(nil)
	}
	l.done, l.contexts`,
		tests: "TestContextEndsWithItsParentOrItsLock",
	},
	{
		name: "a context that is kept after it ended", rule: "11", file: "lease.go",
		old:   `delete(l.contexts, ctx)`,
		new:   ``,
		tests: "TestContextEndsWithItsParentOrItsLock",
	},
	{
		name: "a loss reported twice", rule: "11", file: "lease.go",
		old: `	l.newlyLost = false
`,
		new:   ``,
		tests: "TestEachTransitionIsReportedOnce",
	},
	{
		name: "a renewal that outlives Unlock", rule: "11", file: "unlock.go",
		old:   `l.running.Wait()`,
		new:   ``,
		tests: "TestUnlockWaitsForARenewalInFlight",
	},
	{
		name: "a renewal that starts after Unlock began", rule: "11", file: "unlock.go",
		old: `l.endLocked(ErrReleased, releasing)`,
		new: `defer func() {
			l.mu.Lock()
			l.endLocked(ErrReleased, releasing)
			l.mu.Unlock()
		}()`,
		tests: "TestUnlockWaitsForARenewalInFlight",
	},
	{
		name: "WithMaxHold does not limit Extend", rule: "WithMaxHold", file: "lease.go",
		old:   `length = min(length, l.r.cfg.maxHold-start.Since(l.granted))`,
		new:   ``,
		tests: "TestMaxHoldIsExact",
	},
	{
		name: "Unlock of a lost lock with a chosen token deletes the token's next lock", rule: "7", file: "unlock.go",
		old:   `return l.params.callerToken || l.shared`,
		new:   `return l.shared`,
		tests: "TestUnlockOfALostChosenToken",
	},
	{
		name: "Unlock of a lost lock deletes the lock of whoever adopted it", rule: "7", file: "unlock.go",
		old:   `return l.params.callerToken || l.shared`,
		new:   `return l.params.callerToken`,
		tests: conformance + "Unlock of a lost lock leaves",
	},
	{
		name: "a late acquire of a lost lock deletes an adopter's lock", rule: "4", file: "strategy.go",
		old:   `return err == nil && !got.alreadyHeld`,
		new:   `return true`,
		tests: "TestAdoptedLock",
	},
	{
		name: "a late heal of a lost lock deletes an adopter's lock", rule: "4", file: "quorum_agree.go",
		old:   `return acquireReply{alreadyHeld: true}, nil`,
		new:   `return acquireReply{}, nil`,
		tests: "TestLateReplySaysWhetherAnAdopter",
	},
	{
		name: "a late takeover of a lost lock deletes an adopter's lock", rule: "4, LegacySetNX", file: "legacy_setnx.go",
		old:   `recheckAfter: takeoverLook, alreadyHeld: true`,
		new:   `recheckAfter: takeoverLook`,
		tests: "TestLateReplySaysWhetherAnAdopter",
	},
	{
		name: "Unlock reports a loss when a clean-up has released its lock", rule: "7", file: "unlock.go",
		old:   `if errors.Is(err, ErrLost) && l.state.undone.Load() {`,
		new:   `if false {`,
		tests: "TestUnlockAfterACleanUp",
	},
	{
		name: "Unlock reports a loss when a clean-up on a quorum was faster", rule: "7", file: "redlock.go",
		old:   `p.state.undone.Store(true)`,
		new:   ``,
		tests: "TestUnlockBehindACleanUp",
	},
	{
		name: "a clean-up of one node hides that a quorum has lost the lock", rule: "7", file: "redlock.go",
		old:   `if r.quorum == 1 {`,
		new:   `if true {`,
		tests: "TestCleanUpOfOneNodeHidesNoLoss",
	},
}
