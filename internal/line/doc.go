// Package line decides who of one process is served next with one key, and what must be sent to
// Redis for that.
//
// The callers of one Locker that wait for one key stand in a line, those of a semaphore in several,
// which know nothing of each other. Only the line asks Redis, with one token. When Redis grants it
// the key, a turn begins: it serves those who were in line, one after the other, without a command
// between them.
//
// A Locker has [Lines]. They need two interfaces: a [Waiter] is the owner of a call, and an [Asker] that of an
// attempt, which sends what was decided. The Locker reports what has come of it to the [Attempt].
//
// A [Machine] decides for one line. It does no IO, reads no clock, starts no goroutine and has no
// mutex. Events go in, effects come out. Lines are its shell.
//
//	         Join                     refused, failed
//	Idle ──────────> Asking ────────────────────────────> Waiting
//	 ^ ^               │  ^                               │  │  │
//	 │ │       granted │  └───────── Due, Changed ────────┘  │  │
//	 │ │               v                         Message     │  │
//	 │ └─── Unlock ── Holding <──────────────────────────────┘  │
//	 │                 │    callers left: Unlock, Lost -> Asking│
//	 └─────────────────┴───────────── the last caller leaves ───┘
//
//	Idle     Nobody waits. Redis has nothing of the line but what a Give under way removes.
//	Asking   Exactly one acquire is under way. Its outcome is the only event that ends the state,
//	         even if nobody waits any more.
//	Waiting  Somebody waits. Redis may hand the key to the token at any moment. A look is planned, unless
//	         its answer would find everybody gone.
//	Holding  This process holds the key by the token, for the caller that was served last.
//
// A line queues or polls, as the shell says with each event. One that polls waits between a turn and
// the next acquire, without a token. Its entry, if it has queued before, stays in the queue until the
// token is served or given up. A semaphore has no Holding: a grant serves one caller, who takes the
// token along, and the line goes on with a fresh token if others wait. A line of readers serves all of
// its callers with one token, as passes 0, 1 and so on.
//
// # Invariants
//
//   - At most one acquire of a line is under way, and only in Asking.
//   - A token belongs to one line and to one turn or permit. After its Give it neither asks nor
//     serves.
//   - A Give is never sent while an acquire with its token is under way. So no acquire can run
//     behind its release.
//   - Callers are served in the order in which they joined. A turn serves those who were in line
//     when it began, each once.
//   - A permit serves a caller who was in line when the newest acquire was sent, so its fence is
//     not older than the call. Readers need only a fence above those of earlier writers, which any
//     grant has.
//   - An entry in the queue of Redis is not behind the arrival of the first caller of its line.
//   - From every state, without further faults, all are served and nothing is left in Redis. No
//     message is needed for that.
//   - Without faults, no look is needed for that, and each caller costs two commands at most, if
//     the channel is open.
//
// # What the shell must do
//
//  1. Have one mutex for a line. Read the [Facts]. Lock the mutex, hand one event to the Machine,
//     and unlock it. Then carry out the effects, in their order. Effects of different events may be
//     carried out in any order.
//  2. On Ask, send an acquire with its own timeout. When it has its reply or has timed out, call
//     Granted or NotGranted, once. Nothing else ends it. Redis must refuse an acquire that comes
//     after its timeout.
//  3. On NewToken, make an attempt with a token, and call Made. Later effects name that attempt.
//  4. Send an Ask and a Give that follows it in this order. A Give with Next is also an Ask for that
//     token: send both as one script. If the reply says that the token of the Ask was handed the
//     key, call Message, and then NotGranted. A script that runs after NotGranted must not queue
//     the entry of the Ask, however often it is repeated.
//  5. Remember the newest message for the token that asks or waits, with the beginning of its
//     claim. Serve with Handed uses that lease. Before NotGranted, set Ended if nothing of the
//     claim is left. Before Granted, check that enough of the lease is left, or call NotGranted
//     with Late.
//  6. Have one timer for a line. Each Look sets it anew, and it calls Due.
//  7. Call Lost when the lease ends by itself, and Unlock when its holder gives it back: one of
//     them, once. The holder of a lost lease releases the key when it notices. If callers share a
//     token, one of them gives it back: internal/lease says which.
//  8. Wait in the caller's goroutine for Serve, for Fail and for the end of ctx. If ctx ends first,
//     call Leave. If Leave reports false, take what was served. The error is made of [News].
//  9. Run hooks, and whatever may block, without the mutex.
package line
