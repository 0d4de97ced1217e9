package redlatch

import (
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// The operations on one node of a quorum. A node votes for a fence by a counter for each key, since a quorum must
// agree on one number. To inspect a lock, a node runs the script of SetNXPX.

var (
	quorumAcquireScript = script("quorum_acquire.lua")
	quorumExtendScript  = script("quorum_extend.lua")
	quorumReleaseScript = script("quorum_release.lua")
)

// quorumAcquireCall takes the lock. With a token that the caller chose, it does not extend an earlier vote, so that
// callers that try again and again with such tokens cannot keep each other out for ever.
func quorumAcquireCall(p *acquireParams) *node.Call {
	ttl := p.ttl.Milliseconds()
	c := node.Eval(quorumAcquireScript, 3, &p.key, &p.fences, &p.wanted, &p.token, &ttl)
	if p.callerToken {
		c.Append("keep")
	}
	c.Timeout = p.timeout
	return c
}

// quorumExtendCall makes the lock last. If mint is set, the node also votes for a new fence.
func quorumExtendCall(lock *target, ttl time.Duration, mint bool) *node.Call {
	ms := ttl.Milliseconds()
	c := node.Eval(quorumExtendScript, 2, &lock.key, &lock.fences, &lock.token, &ms)
	if mint {
		c.Append("mint")
	}
	c.Timeout = lock.timeout
	return c
}

// quorumReleaseCall deletes the lock, or keeps it for some time.
func quorumReleaseCall(p *releaseParams) *node.Call {
	return p.released(node.Eval(quorumReleaseScript, 2, &p.key, &p.wanted, &p.token))
}
