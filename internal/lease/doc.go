// Package lease decides until when a lock is trusted, when it is renewed, who holds it, and why it
// ended.
//
// A [Lease] is one grant with its handles. Package redlatch is its [Home], which sends commands and
// calls hooks. In a Lease, a core decides. It does no IO, reads no clock, starts no goroutine and has
// no mutex. Events go in with their time, and decisions come out.
//
//	        begin          unlock: passOn          serve
//	      ────────> held ───────────────> passing ───────> held, by the next handle
//	                │  │                     │
//	  judge, tick,  │  │ unlock: giveBack    │ notPassed
//	  endBy,        │  └──────> released <───┘
//	  extended      v              ^
//	              lost ────────────┘
//	                    unlock: giveIfThere, giveNothing
//
//	held      One handle has the lock. It is trusted before start + length.
//	passing   The line passes the lock on, within the process and at once. No handle has it, and nothing is decided.
//	lost      It ended before Unlock.
//	released  Unlock was called.
//
// Beside that, a lease is young, then settled, then shared. Its first tick, half-way to the
// renewal, and a call of Extend settle it. It is shared if others may know the token.
//
// # Invariants
//
//	trusted:  now < start + length ≤ granted + MaxHold, on both clocks. The request that was sent at
//	          start has extended the key, and length = TTL − drift − grace. An extension never shortens the lease
//	end:      a lease that has ended stays so, and the reason never changes
//	unlock:   of all calls of Unlock with one handle, one decides. The others are refused
//	pass:     only a young lease is passed on. So no extension is in flight, and nobody else relies
//	          on the token or the end
//	renewal:  at most one renewal is in flight, beside what callers extend
//	doubt:    a sighting of another holder ends no lease. It makes a renewal due at once, unless one was sent since
//	loss:     while a lease is held, next comes at start + length or before. So a loss is noticed without a reply
//
// # What the Lease does for its core
//
//  1. Guard the core with one mutex. Read the time, call a method, carry out the decision after
//     unlocking.
//  2. Have one timer. Set it to next after begin, tick, extended and doubt, if that says so, and call tick when it
//     fires.
//  3. send what tick returns. Call send just before the command leaves, and extended when its
//     outcome is known. If a caller extends the lock, call settle and judge first, and then do the
//     same.
//  4. After any call, ask ended. At the first reason, stop the timer and end what the handle has
//     given out. Unless the reason is endUnlocked, report the loss.
//  5. After passOn, end what the handle has given out, and call serve or notPassed soon.
//  6. Keep the handle of a young lease alive. Later, say whether it is in use: a lease whose
//     handle was dropped is not renewed.
//
// # How it is shown
//
// The scenarios of testdata have events at instants, and what is decided. A change of any operator
// must make one of them fail.
package lease
