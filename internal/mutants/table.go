package main

// A mutant is a mistake that the tests must catch: one text of one file replaced by another.
type mutant struct {
	name     string // what is wrong, as a phrase
	rule     string // the rule that it breaks, by the number the tests use, or what it is about
	file     string // relative to the module's root
	old, new string // old must occur exactly once
	tests    string // as go test -run has it: those that are meant to fail, and quick ones
}

// conformance is the path to the cases of the conformance table, on the server that is quickest to
// start.
const (
	conformance = "TestConformance/SetNXPX$/miniredis/"
	plainOnes   = "TestConformance/SetNXPX without fence$/miniredis/"
)

var mutants = []mutant{
	// Grant.
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
		name: "a renewal measured from the reply", rule: "2", file: "lease.go",
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
		name: "no drift", rule: "2", file: "lease.go",
		old:   `return ttl - time.Duration(float64(ttl)*factor) - margin`,
		new:   `return ttl - margin`,
		tests: "TestUntilIsCountedFromBeforeTheRequest",
	},
	{
		name: "no margin for milliseconds", rule: "2", file: "lease.go",
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
		name: "a plain acquire that refuses its own token", rule: "3", file: "set_nx_px.go",
		old: `if err != nil || reply != nil {`,
		new: `if err == nil && reply == nil {
		err = ErrNotAcquired
	}
	if err != nil || reply != nil {`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "a command that is not sent again", rule: "3", file: "node.go",
		old:   `if j == nil || j.here || !passing(err) ||`,
		new:   `if true || !passing(err) ||`,
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
		old:   `if not holder or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then`,
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
		name: "a key without a TTL", rule: "6", file: "acquire.lua",
		old:   `redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`,
		new:   `redis.call('SET', KEYS[1], ARGV[1])`,
		tests: conformance + "Inspect tells",
	},
	{
		name: "a plain key without a TTL", rule: "6", file: "set_nx_px.go",
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

	// End.
	{
		name: "an Unlock that deletes nothing", rule: "7", file: "release.lua",
		old:   `return call('DEL', KEYS[1])`,
		new:   `return 1`,
		tests: "TestLostReplyIsNotLostOwnership/fenced",
	},
	{
		name: "release without compare", rule: "7", file: "release.lua",
		old:   `if ARGV[1] == '' or call('GET', KEYS[1]) ~= ARGV[1] then`,
		new:   `if ARGV[1] == '' then`,
		tests: conformance + "after expiry",
	},
	{
		name: "extend without compare", rule: "7", file: "extend.lua",
		old:   `if redis.call('GET', KEYS[1]) ~= ARGV[1] then`,
		new:   `if false then`,
		tests: plainOnes + "a token is compared whole",
	},
	{
		name: "a second Unlock that succeeds", rule: "7", file: "lease.go",
		old:   `return ErrReleased`,
		new:   `return nil`,
		tests: conformance + "an unlocked key",
	},
	{
		name: "an Unlock whose reply was lost is ErrLost", rule: "7", file: "set_nx_px.go",
		old:   `if resent && errors.Is(err, ErrLost) {`,
		new:   `if resent && errors.Is(err, ErrNotAcquired) {`,
		tests: "TestLostReplyIsNotLostOwnership",
	},
	{
		name: "an Unlock that never left is a success", rule: "7", file: "node.go",
		old:   `resent = resent || !never && !answered(err)`,
		new:   `resent = resent || !answered(err)`,
		tests: "TestUnlockThatNeverLeftFindsTheLockLost",
	},
	{
		name: "an Unlock that Redis refused is a success", rule: "7", file: "node.go",
		old:   `resent = resent || !never && !answered(err)`,
		new:   `resent = resent || !never`,
		tests: "TestRefusedUnlockIsNoSuccess",
	},
	{
		name: "a lost lock's Unlock that sends nothing", rule: "7", file: "lease.go",
		old: `err := l.engine.strategy.release(detached(ctx), &l.claim)`,
		new: `if lost != nil {
		return lost
	}
	err := l.engine.strategy.release(detached(ctx), &l.claim)`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "Unlock under the caller's ctx", rule: "8", file: "lease.go",
		old:   `err := l.engine.strategy.release(detached(ctx), &l.claim)`,
		new:   `err := l.engine.strategy.release(ctx, &l.claim)`,
		tests: "TestUnlockIsDetachedFromItsCtx",
	},
	{
		name: "a clean-up under the caller's ctx", rule: "8", file: "engine.go",
		old:   `e.strategy.release(detached(ctx), c)`,
		new:   `e.strategy.release(ctx, c)`,
		tests: "TestUndoIsDetachedFromItsCtx",
	},
	{
		name: "the op timeout not applied", rule: "8", file: "node.go",
		old:   `time.Now().Add(c.bound)`,
		new:   `time.Now().Add(2 * time.Second)`,
		tests: "TestUnlockIsBoundedBySilence",
	},
	{
		name: "the loss waits for the renewal's answer", rule: "9", file: "lease.go",
		old: `if after == nil {
		l.timer.Reset(l.nextLocked())`,
		new: `if after == nil && !renew {
		l.timer.Reset(l.nextLocked())`,
		tests: "TestLossNeedsNoAnswer",
	},
	{
		name: "validity by the monotonic clock only", rule: "10", file: "lease.go",
		old:   `return max(i.mono.Sub(earlier.mono), i.wall.Sub(earlier.wall))`,
		new:   `return i.mono.Sub(earlier.mono)`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "validity by the wall clock only", rule: "10", file: "lease.go",
		old:   `return max(i.mono.Sub(earlier.mono), i.wall.Sub(earlier.wall))`,
		new:   `return i.wall.Sub(earlier.wall)`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "Err believes the timer", rule: "10", file: "lease.go",
		old: `after := l.judgeLocked()
	l.mu.Unlock()`,
		new: `after := l.err
	l.mu.Unlock()`,
		tests: "TestSuspendedMachineWakesUpKnowing",
	},
	{
		name: "an answer after the end revives the lock", rule: "10", file: "lease.go",
		old:   `after := l.judgeLocked() // an answer after the end comes too late`,
		new:   `after := l.err`,
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
		name: "Done closed twice", rule: "11", file: "lease.go",
		old:   `if l.err == nil && l.engine.now().since(l.start) >= l.length {`,
		new:   `if l.engine.now().since(l.start) >= l.length {`,
		tests: "TestWallClockStepsBackHarmlessly",
	},
	{
		name: "a context that does not say why it ended", rule: "11", file: "lease.go",
		old:   `cancel(err)` + "\n\t}\n\tl.contexts = nil",
		new:   `cancel(nil)` + "\n\t}\n\tl.contexts = nil",
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
		old:   `if before == nil && errors.Is(after, ErrLost) {`,
		new:   `if errors.Is(after, ErrLost) {`,
		tests: "TestEachTransitionIsReportedOnce",
	},
	{
		name: "a renewal that outlives Unlock", rule: "11", file: "lease.go",
		old:   `l.running.Wait()`,
		new:   ``,
		tests: "TestUnlockWaitsForARenewalInFlight",
	},
	{
		name: "a renewal that starts after Unlock began", rule: "11", file: "lease.go",
		old: `l.endLocked(ErrReleased)`,
		new: `defer func() {
			l.mu.Lock()
			l.endLocked(ErrReleased)
			l.mu.Unlock()
		}()`,
		tests: "TestUnlockWaitsForARenewalInFlight",
	},
	{
		name: "WithMaxHold does not hold back Extend", rule: "WithMaxHold", file: "lease.go",
		old:   `length = min(length, l.cfg.maxHold-start.since(l.granted))`,
		new:   ``,
		tests: "TestMaxHoldIsExact",
	},

	// Renewal.
	{
		name: "a renewal that comes late", rule: "12", file: "lease.go",
		old:   `l.cfg.ttl/3`,
		new:   `2*l.cfg.ttl/3`,
		tests: "TestHourOfRenewals",
	},
	{
		name: "an unclear renewal that loses the lock", rule: "12", file: "lease.go",
		old: `case errors.Is(err, ErrLost):
			l.endLocked(ErrLost)`,
		new: `case err != nil:
			l.endLocked(ErrLost)`,
		tests: "TestUnclearRenewalIsRetriedUntilTheEnd",
	},
	{
		name: "an unclear renewal that counts as one", rule: "12", file: "lease.go",
		old:   `case err == nil:`,
		new:   `case !errors.Is(err, ErrLost):`,
		tests: "TestUnclearRenewalIsRetriedUntilTheEnd",
	},
	{
		name: "an unclear renewal that waits for the next one", rule: "12", file: "lease.go",
		old:   `pause := c.bound/4 + rand.N(c.bound/2+1)`,
		new:   `pause := l.cfg.ttl/3 + 0*rand.N(c.bound)`,
		tests: "TestUnclearRenewalIsRetriedUntilTheEnd",
	},
	{
		name: "not mine counts as unclear", rule: "12", file: "lease.go",
		old: `case errors.Is(err, ErrLost):
			l.endLocked(ErrLost)`,
		new: `case false:
			l.endLocked(ErrLost)`,
		tests: "TestDefiniteAnswerEndsTheLeaseAtOnce",
	},
	{
		name: "a forgotten lock renewed for ever", rule: "13", file: "lease.go",
		old:   `(l.fresh != nil || l.held.Value() != nil)`,
		new:   `true`,
		tests: "TestForgottenLockIsRenewedNoMore",
	},
	{
		name: "a goroutine for each idle lock", rule: "14", file: "lease.go",
		old: `l.timer = time.AfterFunc(l.nextLocked(), l.tick)`,
		new: `l.timer = time.AfterFunc(l.nextLocked(), l.tick)
	go func() { <-l.ended() }()`,
		tests: "TestIdleLockCostsNoGoroutine",
	},

	// Waiting.
	{
		name: "a pause that does not heed the holder's lease", rule: "15", file: "wait.go",
		old:   `d = min(d, held+time.Millisecond)`,
		new:   `d = max(d, time.Millisecond)`,
		tests: "TestPauseEndsWithTheHoldersLease",
	},
	{
		name: "a refusal that does not tell the holder's lease", rule: "15", file: "set_nx_px.go",
		old:   `g.held = max(time.Duration(left)*time.Millisecond, time.Millisecond)`,
		new:   `g.held = 0`,
		tests: "TestCrashedHolderCostsItsTTL",
	},
	{
		name: "trouble at the first attempt is waited out", rule: "16", file: "engine.go",
		old:   `case !errors.Is(err, ErrNotAcquired):`,
		new:   `case false:`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "trouble ends polling", rule: "16", file: "wait.go",
		old: `trouble = err`,
		new: `if trouble = err; !errors.Is(err, ErrNotAcquired) {
			return nil, err
		}`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "trouble ends a place in the queue", rule: "16", file: "queue.go",
		old: `trouble = err
			e.lobby.troubled`,
		new: `return nil, err
			e.lobby.troubled`,
		tests: "TestWaitTellsWhatTroubledIt",
	},
	{
		name: "polling does not tell what troubled it", rule: "16", file: "wait.go",
		old:   `trouble = err`,
		new:   `_ = err`,
		tests: "TestPollingRidesTroubleOut",
	},
	{
		name: "a place in the queue does not tell what troubled it", rule: "16", file: "queue.go",
		old: `trouble = err
			e.lobby.troubled`,
		new: `_ = err
			e.lobby.troubled`,
		tests: "TestWaitTellsWhatTroubledIt",
	},
	{
		name: "ctx not honoured in mid-command", rule: "17", file: "crew.go",
		old:   `j.settle(grant{}, j.cutShort(ctxError(ctx)))`,
		new:   ``,
		tests: "TestCtxEndsACallInMidCommand/client",
	},
	{
		name: "ctx not honoured between attempts", rule: "17", file: "node.go",
		old: `case <-ctx.Done():
		return false
`,
		new:   ``,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "a waiter that gave up is remembered", rule: "17", file: "wait.go",
		old:   `t.leave(key, mine)` + "\n\t\treturn false",
		new:   `return false`,
		tests: "TestLocalWaitersTakeTurns",
	},
	{
		name: "a hidden number of tries", rule: "18", file: "wait.go",
		old: `trouble = nil`,
		new: `if trouble = nil; r.attempts == 64 {
				return nil, err
			}`,
		tests: "TestLocalWaitersTakeTurns",
	},

	// Waiting: the queue.
	{
		name: "a release that frees a key that is waited for", rule: "Hand-off", file: "release.lua",
		old:   `while queue do`,
		new:   `while false do`,
		tests: "TestReleaseLeavesNoGap",
	},
	{
		name: "last come, first served", rule: "Hand-off", file: "release.lua",
		old:   `pcall('ZPOPMIN', queue)`,
		new:   `pcall('ZPOPMAX', queue)`,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a hand-off that mints no fence", rule: "Fencing", file: "release.lua",
		old:   `local fence = math.max((tonumber(counter or '0') or 0) + 1, time[1] * 1000000 + time[2])`,
		new:   `local fence = tonumber(counter or '0') or 0`,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a queue without a TTL", rule: "6", file: "acquire.lua",
		old:   `redis.call('PEXPIRE', queue, queueMemory)`,
		new:   ``,
		tests: "TestFirstComeFirstServed",
	},
	{
		name: "a dead process holds up the queue", rule: "Hand-off", file: "release.lua",
		old:   `if heard > 0 or ARGV[3] then`,
		new:   `if true then`,
		tests: "TestCrashedWaitersAreSkipped",
	},
	{
		name: "a waiter depends on its message", rule: "15", file: "queue.go",
		old:   `lookEvery = time.Second`,
		new:   `lookEvery = 10 * time.Second`,
		tests: "TestLostMessageCostsASecond",
	},
	{
		name: "a handed lock that is not claimed", rule: "Hand-off", file: "lease.go",
		old:   `(l.cfg.renew || l.unclaimed)`,
		new:   `l.cfg.renew`,
		tests: "TestHandedLockIsClaimed/fixed",
	},
	{
		name: "a handed lock trusted for longer than it is kept", rule: "2", file: "queue.go",
		old:   `length := validity(d.claim, r.cfg.drift)`,
		new:   `length := validity(l.claim.ttl, r.cfg.drift)`,
		tests: "TestHandedLockIsClaimed/fixed",
	},
	{
		name: "a handed lease that begins when the news arrives", rule: "2", file: "queue.go",
		old:   `age = max(age, 0)`,
		new:   `age = 0`,
		tests: "TestHandedLeaseNeverBeginsAfterRedisGranted",
	},
	{
		name: "a turn that the machine slept over", rule: "10", file: "queue.go",
		old:   `age := arrived.since(asked)`,
		new:   `age := arrived.mono.Sub(asked.mono)`,
		tests: "TestSleptOverItsTurn",
	},
	{
		name: "a message that promises more than a claim", rule: "Hand-off", file: "subscription.go",
		old:   `claim == 0 || claim > uint64(claimTime.Milliseconds())`,
		new:   `claim == 0`,
		tests: "TestHandoverIsReadStrictly",
	},

	// Errors, input.
	{
		name: "a lock is written before the counter is read", rule: "19", file: "acquire.lua",
		old: `fence = tonumber(redis.call('GET', KEYS[2]) or '0')`,
		new: `redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
  fence = tonumber(redis.call('GET', KEYS[2]) or '0')`,
		tests: conformance + "a counter that is none",
	},
	{
		name: "somebody's data taken for a counter", rule: "19", file: "acquire.lua",
		old:   `return redis.error_reply('ERR the fence counter holds something else')`,
		new:   `fence = 0`,
		tests: conformance + "a counter that is none",
	},
	{
		name: "a key of another type does not end the lock", rule: "19", file: "set_nx_px.go",
		old:   `case wrongType(err):`,
		new:   `case false:`,
		tests: conformance + "a stranger's list",
	},
	{
		name: "a nil client hidden in an interface", rule: "20", file: "options.go",
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

	// The strategy: fences, companions, scripts.
	{
		name: "a fence that does not grow", rule: "Fencing", file: "acquire.lua",
		old:   `fence = math.max(fence + 1, now - now % (ARGV[3] or 1))`,
		new:   `fence = math.max(fence, 1)`,
		tests: conformance + "fences grow",
	},
	{
		name: "a fence by the counter alone", rule: "Fencing", file: "acquire.lua",
		old:   `fence = math.max(fence + 1, now - now % (ARGV[3] or 1))`,
		new:   `fence = fence + 1`,
		tests: "TestFencesOfOneNodeGrow",
	},
	{
		name: "a fence by the clock alone", rule: "Fencing", file: "acquire.lua",
		old:   `fence = math.max(fence + 1, now - now % (ARGV[3] or 1))`,
		new:   `fence = now - now % (ARGV[3] or 1)`,
		tests: "TestHealedQuorumIssuesNoOlderFence",
	},
	{
		name: "Adopt takes the next owner's fence", rule: "Fencing", file: "engine.go",
		old:   `case st.Token != token:`,
		new:   `case false:`,
		tests: "TestAdoptTakesNoOthersFence",
	},
	{
		name: "companions named by the tag only", rule: "SetNXPX", file: "keys.go",
		old:   `both := "{" + t + "}:fence:" + key + "{" + t + "}:queue:" + key`,
		new:   `both := "{" + t + "}:fence:" + "{" + t + "}:queue:"`,
		tests: "TestHourOfRenewals",
	},
	{
		name: "companions in another slot", rule: "SetNXPX", file: "keys.go",
		old:   `both := "{" + t + "}:fence:" + key + "{" + t + "}:queue:" + key`,
		new:   `both := "<" + t + ">:fence:" + key + "<" + t + ">:queue:" + key`,
		tests: "TestHourOfRenewals",
	},
	{
		name: "a key without room for companions taken on a cluster", rule: "SetNXPX", file: "keys.go",
		old:   `return tagged || !strings.Contains(key, "}")`,
		new:   `return tagged || strings.Contains(key, key)`,
		tests: "TestClusterKeepsALockInOneSlot",
	},
	{
		name: "a script that the server forgot", rule: "SetNXPX", file: "node.go",
		old:   `case s != nil && redis.HasErrorPrefix(err, "NOSCRIPT"):`,
		new:   `case s != nil && redis.HasErrorPrefix(err, "NO SCRIPT"):`,
		tests: conformance + "SCRIPT FLUSH",
	},

	// Redlock.
	{
		name: "a quorum of half the nodes", rule: "Redlock", file: "redlock.go",
		old:   `quorum: len(clients)/2 + 1`,
		new:   `quorum: (len(clients) + 1) / 2`,
		tests: "TestEvenNumberOfNodesNeedsMoreThanHalf",
	},
	{
		name: "one server votes twice", rule: "Redlock", file: "redlock.go",
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
		name: "a straggler of a lost lock stays", rule: "4", file: "crew.go",
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
		name: "a heal once Unlock began", rule: "11", file: "redlock.go",
		old:   `if c.life.over() || !time.Now().Before(c.until) {`,
		new:   `if !time.Now().Before(c.until) {`,
		tests: "TestHealEndsWithTheLease",
	},

	// A caller that carries its operation out itself.
	{
		name: "a stray acquire is not looked for", rule: "4", file: "near.go",
		old:   `if j.stray && j.undo != nil {`,
		new:   `if false {`,
		tests: "TestNearStraggler",
	},
	{
		name: "a failed operation is not sent again", rule: "3", file: "near.go",
		old:   `if j.failed != nil {`,
		new:   `if false {`,
		tests: "TestNearLostReply",
	},
	{
		name: "a release ends with who waited for it", rule: "8", file: "near.go",
		old:   `case j.last && err != nil && !answered(err) && !errors.Is(err, ErrLost):`,
		new:   `case false:`,
		tests: "TestNearReleaseIsCarriedOut",
	},
	{
		name: "a release sent again is as if for the first time", rule: "7", file: "near.go",
		old:   `resent: !neverLeft(err) && !answered(err),`,
		new:   `resent: false,`,
		tests: "TestNearLostReply",
	},

	// Replicas.
	{
		name: "a grant without its replicas", rule: "Replicas", file: "replicas.go",
		old:   `case got.replicas < c.replicas:`,
		new:   `case false:`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "WAIT on another connection", rule: "Replicas", file: "replicas.go",
		old: `_ = pipe.Process(ctx, once{wait})
	_, _ = pipe.Exec(ctx) // each command has its own error`,
		new: `_, _ = pipe.Exec(ctx)
	_ = client.Process(ctx, once{wait})`,
		tests: "TestTooFewReplicas",
	},
	{
		name: "a waiter takes what was handed on unconfirmed", rule: "Replicas", file: "queue.go",
		old:   `case handed != nil && r.cfg.replicas > 0:`,
		new:   `case false:`,
		tests: "TestWaiterClaimsOnReplicas",
	},
	{
		name: "Adopt asks no replicas", rule: "Replicas", file: "set_nx_px.go",
		old: `if c.replicas > 0 {
		_, err := s.node.start`,
		new: `if false {
		_, err := s.node.start`,
		tests: "TestAdoptedLockIsOnReplicas",
	},
	{
		name: "a chosen token keeps its minority", rule: "15", file: "redlock.go",
		old:   `if !c.chosen || t.count(held) > len(r.nodes)-r.quorum {`,
		new:   `if !c.chosen {`,
		tests: "TestChosenTokensDoNot",
	},
	{
		name: "trouble taken for a refusal", rule: "16", file: "engine.go",
		old:   `case ctx.Err() != nil && !errors.As(err, new(*cutShort)):`,
		new:   `case ctx.Err() != nil:`,
		tests: "TestTroubleIsNoRefusal",
	},
	{
		name: "trouble taken for a refusal in the queue", rule: "16", file: "queue.go",
		old:   `case first && errors.As(err, new(*cutShort)):`,
		new:   `case false:`,
		tests: "TestTroubleIsNoRefusal",
	},

	// Migration.
	{
		name: "a migration that takes from alone", rule: "Migration", file: "migration.go",
		old: `lock, err := m.to.Lock(old.Context(ctx), key, opts...)
		if err == nil {`,
		new: `lock, err := old, error(nil)
		if lock != nil {
			return lock, nil
		}
		if err == nil {`,
		tests: "TestMigrationNeighboursExclude|TestMigrationHoldsUnderBoth",
	},
	{
		name: "a migration that takes to alone", rule: "Migration", file: "migration.go",
		old: `old, err := m.from.Lock(ctx, key, opts...)
		if err != nil {`,
		new: `old, err := m.to.Lock(ctx, key, opts...)
		if err == nil {
			return old, nil
		}
		if err != nil {`,
		tests: "TestMigrationNeighboursExclude|TestMigrationHoldsUnderBoth",
	},
	{
		name: "from stays when to refuses an attempt", rule: "Migration", file: "migration.go",
		old:   `_ = old.Unlock(ctx) // what cannot be reached ends with its TTL`,
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
		old:   `link(old.lease, k.lease)`,
		new:   `_ = old.lease`,
		tests: "TestMigrationEndsWithEither",
	},
	{
		name: "the end of to does not end from", rule: "Migration", file: "migration.go",
		old:   `link(k.lease, old.lease)`,
		new:   `_ = k.lease`,
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
		old: `link(old.lease, k.lease)`,
		new: `link(old.lease, k.lease)
	context.AfterFunc(k.Context(context.Background()), func() { _ = k.Err() })`,
		tests: "TestForgottenMigrationIsRenewedNoMore",
	},
	{
		name: "a migration without a probe", rule: "Migration", file: "migration.go",
		old:   `if ctx == nil || key == "" || m.apart.Load() {`,
		new:   `if ctx != nil || key == "" || m.apart.Load() {`,
		tests: "TestMigrationProbeHoldsFrom",
	},
	{
		name: "a probe that goes by a lock that has ended", rule: "Migration", file: "migration.go",
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
		name: "a probe one way round", rule: "Migration", file: "migration.go",
		old:   `held, err = probe(ctx, unknown, m.to, m.from)`,
		new:   `err = trouble`,
		tests: "TestMigrationOfOneKeyIsRefused/SetNXPX and LegacySetNX/miniredis",
	},
	{
		name: "a probe that counts fences", rule: "Migration", file: "migration.go",
		old:   `WithoutRenewal(), WithoutFence(),`,
		new:   `WithoutRenewal(),`,
		tests: "TestMigrationProbeLeavesNoKey",
	},
	{
		name: "one prefix for both sides", rule: "Migration", file: "migration.go",
		old:   `case cfg.prefix != unset:`,
		new:   `case cfg.prefix == "none":`,
		tests: "TestMigrationRefusesWhatOneSideCannotServe",
	},
	{
		name: "options that to alone is asked about too late", rule: "20, Migration", file: "migration.go",
		old:   `for _, side := range []Locker{m.from, m.to} {`,
		new:   `for _, side := range []Locker{m.from} {`,
		tests: "TestMigrationRefusesWhatOneSideCannotServe",
	},

	// Kinds of clients.
	{
		name: "a cluster behind another type taken for one server", rule: "Hand-off", file: "options.go",
		old: `return client.Watch(context.Background(), func(*redis.Tx) error { return nil }) != nil`,
		new: `_, cluster := client.(*redis.ClusterClient)
	_ = context.Background
	return cluster`,
		tests: "TestClusterBehindAnotherType",
	},

	// LegacySetNX.
	{
		name: "a legacy loser that writes", rule: "LegacySetNX", file: "legacy_setnx.lua",
		old: `local refusal = {math.min(left, 9e12)}`,
		new: `local refusal = {math.min(left, 9e12)}
redis.call('GETSET', KEYS[1], stamp)`,
		tests: "TestLegacyLoserWritesNothing",
	},
	{
		name: "a legacy lock that its value alone proves", rule: "LegacySetNX", file: "legacy_release.lua",
		old:   `if redis.call('GET', KEYS[2]) ~= ARGV[1] then`,
		new:   `if false then`,
		tests: "TestLegacyLateUnlockLeavesTheSuccessor",
	},
	{
		name: "a legacy lock that its owner alone proves", rule: "LegacySetNX", file: "legacy_extend.lua",
		old:   `if redis.call('GET', KEYS[3]) ~= value then`,
		new:   `if false then`,
		tests: "TestLegacyForeignLoserIsNoticed|TestLegacyFrozenLoser",
	},
	{
		name: "a legacy release after its time", rule: "LegacySetNX", file: "legacy_release.lua",
		old:   `if now > tonumber(value) then`,
		new:   `if false then`,
		tests: "TestLegacyLateUnlock|TestLegacyOnlyWhatIsExactly",
	},
	{
		name: "a legacy acquire that comes again shortens the lease", rule: "4", file: "legacy_setnx.lua",
		old:   `if tonumber(stamp) > till then`,
		new:   `if true then`,
		tests: "TestLegacyLeaseIsNeverShortened",
	},
	{
		name: "no look after a legacy takeover", rule: "LegacySetNX", file: "legacy_setnx.go",
		old:   `return grant{lookAt: takeoverLook}, nil`,
		new:   `return grant{}, nil`,
		tests: "TestLegacyForeignLoserIsNoticed",
	},
	{
		name: "the clock of this machine where that of Redis was asked for", rule: "LegacySetNX", file: "legacy_setnx.go",
		old:   `if c.serverTime {`,
		new:   `if false {`,
		tests: "TestLegacyServerTime",
	},
	{
		name: "a legacy lock that ends a second early", rule: "LegacySetNX", file: "legacy_setnx.lua",
		old:   `if now > till then`,
		new:   `if now >= till then`,
		tests: "TestLegacyTimeEndsWithItsSecond",
	},

	// What the queue and a quorum leave to others.
	{
		name: "a hand-off found by its token only", rule: "Hand-off", file: "queue.go",
		old: `in := b.rooms[h.key]
	if in == nil {
		return
	}`,
		new: `var in *room
	for _, r := range b.rooms {
		for _, w := range r.waiters {
			if w.token == h.token && (in == nil || r != b.rooms[h.key]) {
				in = r
			}
		}
	}
	if in == nil {
		return
	}`,
		tests: "TestLocksDoNotShareAQueue|TestForgedMessages",
	},
}
