// Package quorum decides how one operation on N independent nodes ends, which fence a quorum agrees
// on, and which command must be sent next. It does no IO, reads no clock, starts no goroutine and
// has no mutex. Answers go in, effects come out.
//
// The algorithm is that of "Distributed Locks with Redis". A quorum is N/2+1 of the configured
// nodes:
//
//  1. Ask all nodes for the key at once. Each node that grants it raises its counter and votes for
//     the new value.
//  2. A quorum of grants is a lock. If no quorum can grant it any more, release the key wherever it
//     was or may be granted.
//  3. If a quorum attests one number, that number is the fence.
//  4. Otherwise take the largest number attested, and raise to it the counters of the nodes that
//     attest less. A node raises its counter only while the token holds its key. It answers with
//     the counter, which may be higher. Go on with 3.
//  5. An extension needs a quorum of nodes that hold the key without a gap. If only this owner has
//     the token, a node on which the key is free restores it. It counts again when an extension was
//     done without it, after it has answered. One that was done before the answer came does not
//     show that nobody else held the key: the others may have lost it in the meantime.
//
// The page has no fences: steps 3 and 4 are ours. A node attests f if its counter is exactly f
// while the token holds its key, by a vote or by its answer to a raise. The page also leaves open
// whom to wait for. Here it is for a quorum of grants, or until none is possible. If other owners
// have votes, it is not for nodes that were silent at the last call either: two attempts that wait
// for them keep each other out.
//
// # Invariants
//
//	one owner:  done requires Done answers of a quorum, and two quorums share a node. It holds while a node that
//	            restarts without its data stays away until the leases that rest on them have ended or were renewed
//	fences:     grants of one fence share a node that attested it to two tokens. Between the two, the later token
//	            was granted the key there, which raised the counter. So the fences differ, and the later one is higher
//	end:        each command is answered once, so each operation finishes once
//	clean:      on each node, the last release of a token follows all commands that can create its key
//
// A [Token] keeps the last one, over all its operations. Acquire and Restore create a key, one at a
// time. A release waits on each node for that under way there. After the first release, no other
// operation begins.
//
// Counters are below [Limit] = 2^47, so that counter × 64 + pass is below 2^53, which Lua and JSON
// represent exactly. A node with a higher counter counts as failed.
//
// # What the caller must do
//
//  1. Create one Token for each grant, and guard it and its operations with one mutex. Carry
//     effects out after unlocking.
//  2. For each effect but Finish, send the command to the node. Call [Token.Answer] once with the
//     effect and the answer, or with Failed when the timeout of the command has passed.
//  3. Give each creating command the time after which it does nothing, which is before its timeout.
//  4. If a command that creates was answered, or has failed early, while another send of it may
//     still be carried out: call [Token.Settled] when the timeout has passed.
//  5. On Finish, Effect.Op has the result and the facts, which do not change any more. An operation
//     goes on to its end, also if nobody waits for it.
//  6. When the lease ends, stop trusting the lock, whatever an operation says later.
//  7. Begin one Release at a time. Extensions may overlap, with each other and with it.
//  8. Begin a Restore only while nobody else may know the token: another owner may have given the
//     lock up.
//
// # How it is shown
//
// A test explores all histories of small worlds: nodes that run models of the scripts, clients,
// commands and answers in any order, and a few faults. With -wide, the worlds are larger, and with
// -short smaller.
package quorum
