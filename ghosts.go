package redlatch

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wire"
)

// A ghost is a token of this Locker that has the key, or is handed it, although nobody here knows it:
// Redis has returned to older data, in which the token was not released yet, or an earlier send of its
// acquire was carried out late. The Locker releases it at once. Otherwise others wait until the claim or the
// lease ends.
//
// A Locker knows the tokens that it uses: from before the acquire until the release has an answer, or the
// lease is lost. Tokens that somebody may still rely on are no ghosts. Those are the ones that others may
// have, the lost ones until they are unlocked, whose holder may have the grace to stop, and those whose release
// keeps others out and had no answer: the node sends it again.

// tokens has what a Locker knows of its tokens, by the numbers that they have from its Mint. Its size does not grow with
// what was forgotten.
type tokens struct {
	mu sync.Mutex // guards the fields below

	used map[uint64]*attempt

	spared [256]uint64 // the newest tokens that somebody may rely on
	spares int         // how many there were
	below  uint64      // tokens up to this number are spared, too: the array has no room for them

	ended    [64]ended    // the newest tokens that were released
	ends     int          // how many there were
	released [16]released // the newest tokens that had the key, and were given back without a keep
	releases int          // how many there were

	searched clock.Mono // when a wait last made the Locker search
}

// A released token has the key again if the release is among the data that were lost.
type released struct {
	names  names
	token  string
	number uint64
	at     clock.Mono
}

// An ended token was released at a time, or before.
type ended struct {
	number uint64
	tick   uint64      // of its grant; 0: it had none
	handed clock.Redis // when it was handed the key; 0: unknown
	at     clock.Mono
}

// of returns the attempt that uses a token, which anybody may have made.
func (t *tokens) of(token string) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.used[wire.NumberOf(token)]; a != nil && a.id.token == token {
		return a
	}
	return nil
}

// spareLocked notes that somebody may rely on a token.
func (t *tokens) spareLocked(number uint64) {
	if slices.Contains(t.spared[:], number) {
		return
	}
	place := &t.spared[t.spares%len(t.spared)]
	t.below = max(t.below, *place)
	*place = number
	t.spares++
}

// isSparedLocked reports whether somebody may rely on a token.
func (t *tokens) isSparedLocked(number uint64) bool {
	return number <= t.below || slices.Contains(t.spared[:], number)
}

// forgetLocked notes that the token of an attempt is not used any more, or that nobody relies on it any more.
func (t *tokens) forgetLocked(a *attempt, now clock.Mono) {
	if a.minted == 0 || t.used[a.minted] == a {
		t.forgetUsedLocked(a, now)
	} else if i := slices.Index(t.spared[:], a.minted); i >= 0 {
		t.spared[i] = 0
		t.endLocked(a, now)
	}
}

// forgetUsedLocked notes that the token of an attempt is not used any more.
func (t *tokens) forgetUsedLocked(a *attempt, now clock.Mono) {
	if t.used[a.minted] == a {
		delete(t.used, a.minted)
		t.endLocked(a, now)
	}
}

func (t *tokens) endLocked(a *attempt, now clock.Mono) {
	t.ended[t.ends%len(t.ended)] = ended{a.minted, a.grant.tick, a.grant.handed, now}
	t.ends++
}

// noteReleased notes that the token of an attempt had the key, and was given back.
func (t *tokens) noteReleased(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released[t.releases%len(t.released)] = released{*a.id.names, a.id.token, a.minted, clock.MonoNow()}
	t.releases++
}

// A sighting is what shows that a token has the key: a refusal to an acquire that was sent at a time, or a message.
type sighting struct {
	asked   clock.Mono
	message *wire.HandOver
}

// oldLocked reports whether a sighting of a token may be older than the end of the token. It does not know all tokens of a
// busy Locker: their second release does nothing.
func (t *tokens) oldLocked(number uint64, s sighting) bool {
	return slices.ContainsFunc(t.ended[:], func(e ended) bool {
		m := s.message
		switch {
		case e.number != number:
			return false
		case m == nil:
			return s.asked <= e.at
		}
		return m.Tick == e.tick && (m.At == e.handed || e.handed == 0) // with older data, ticks can return, and the clock be behind
	})
}

// takes notes that a ghost is used, and reports whether it is one: its token is not used or spared, and the sighting is
// not old.
func (t *tokens) takes(ghost *attempt, seen sighting) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	number := ghost.minted
	if t.used[number] != nil || t.isSparedLocked(number) || t.oldLocked(number, seen) {
		return false
	}
	t.used[number] = ghost
	return true
}

// uses notes that the token of a call is used from now on.
func (e *engine) uses(a *attempt) {
	if e.inbox != nil {
		e.tokens.mu.Lock()
		defer e.tokens.mu.Unlock()
		e.tokens.used[a.minted] = a
	}
}

// forgets notes that nothing is left in Redis of an attempt.
func (e *engine) forgets(a *attempt) {
	if e.inbox != nil {
		e.tokens.mu.Lock()
		defer e.tokens.mu.Unlock()
		e.tokens.forgetLocked(a, clock.MonoNow())
	}
}

// spares notes that somebody may rely on a token for as long as it has the key.
func (e *engine) spares(token string) {
	if e.inbox == nil {
		return
	}
	if number, _, made := e.mint.Made(token); made {
		e.tokens.mu.Lock()
		defer e.tokens.mu.Unlock()
		e.tokens.spareLocked(number)
	}
}

// forgetsSpared notes that an attempt is over, and that somebody may rely on its token.
func (e *engine) forgetsSpared(a *attempt) {
	if e.inbox == nil {
		return
	}
	e.spares(a.id.token) // before it is forgotten
	e.tokens.mu.Lock()
	defer e.tokens.mu.Unlock()
	e.tokens.forgetUsedLocked(a, clock.MonoNow())
}

// refusedBy doubts the leases that exclude the holder that a refusal has named, and releases that holder if
// it is a ghost. Then there may be more. The acquire was sent at a time.
func (e *engine) refusedBy(holder string, n *names, asked clock.Mono) {
	if holder == "" {
		return
	}
	e.sees(holder, n.lock, asked)
	if e.inbox != nil && e.releasesGhost(n, holder, asked) {
		e.searchGhosts(n)
	}
}

// releasesGhost releases a holder of a key if it is a ghost of this Locker, or of the other side of its pair,
// and reports whether it is one. A command that was sent at asked has shown the holder.
func (e *engine) releasesGhost(n *names, holder string, asked clock.Mono) (is bool) {
	for _, side := range [...]*engine{e, e.twin} {
		if side == nil {
			continue
		}
		if number, _, made := side.mint.Made(holder); made {
			is = side.releaseGhost(n, holder, number, sighting{asked: asked}) || is
		}
	}
	return is
}

// A ghostSearch reads who holds the permits of a key, and releases the ghosts.
type ghostSearch struct {
	engine *engine
	names  *names
	sent   clock.Mono
}

// searchesAgain is how long the releases of ghosts have until their Locker looks for more.
const searchesAgain = 50 * time.Millisecond

// searchGhosts looks for all ghosts of this Locker, and of the other side of its pair, that hold permits of a key: a
// refusal names one holder, whose process may be another one. Nobody waits for that. There are none
// if no token was released yet.
func (e *engine) searchGhosts(n *names) {
	if e.limit == 0 || !e.hasReleased() && (e.twin == nil || !e.twin.hasReleased()) {
		return
	}
	search := &ghostSearch{e, n, clock.MonoNow()}
	p := params{identity: &identity{names: n}, timeout: e.cfg.timeout()}
	e.strategy.do(context.Background(), toInspect, &p, search)
}

// searchesEvery is how long a Locker pauses between searches for those who wait: what an inspection reads is long.
const searchesEvery = time.Second

// maySearch reports whether the Locker may search at now for somebody who waits, and notes it.
func (e *engine) maySearch(now clock.Mono) bool {
	if e.limit == 0 {
		return false
	}
	t := &e.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	may := t.searched == 0 || now.Sub(t.searched) >= searchesEvery
	if may {
		t.searched = now
	}
	return may
}

// mostSearched is how many keys are searched for ghosts when the channel is open again. Ghosts of other keys are
// found by refusals.
const mostSearched = 64

// changed tells the lines that messages may have been lost, or come again. If the channel is open again after its connection
// broke, the server may have returned to older data, or be another one: so changed releases the newest tokens again, and searches
// the keys of the lines for ghosts.
func (e *engine) changed(returned bool) {
	first := e.lines.Changed()
	if !returned {
		return
	}
	e.releaseAgain()
	if e.twin != nil {
		e.twin.releaseAgain()
	}
	keys := make(map[string]*request)
	for _, w := range first {
		r := &w.(*waiter).request
		keys[r.names.lock] = r
		if len(keys) == mostSearched {
			break
		}
	}
	for lock, r := range keys {
		e.searchGhosts(&names{key: r.names.key, lock: lock, at: e.strategy.wordsOf(r.cfg.prefix, lock)})
	}
}

// lostFor is how long ago a release can have been that is not among the data of the server any more.
const lostFor = time.Minute

// releaseAgain releases the newest tokens again. Somebody may wait for their keys whom this process will not ask for: it waits
// for another key, which it asks for first, or has left.
func (e *engine) releaseAgain() {
	now := clock.MonoNow()
	e.tokens.mu.Lock()
	newest := e.tokens.released
	e.tokens.mu.Unlock()
	for i := range newest {
		if x := &newest[i]; x.number != 0 && now.Sub(x.at) < lostFor {
			e.releaseGhost(&x.names, x.token, x.number, sighting{asked: math.MaxInt64})
		}
	}
}

// hasReleased reports whether a token was released.
func (e *engine) hasReleased() bool {
	e.tokens.mu.Lock()
	defer e.tokens.mu.Unlock()
	return e.tokens.ends > 0
}

// hear releases the ghosts among the holders. If there may be more than those that an inspection lists, it looks again when
// these are gone.
func (s *ghostSearch) hear(got reply) {
	if got.seen == nil {
		return
	}
	e, found := s.engine, false
	for _, h := range got.seen.status.Holding {
		found = e.releasesGhost(s.names, string(h.Token), s.sent) || found
	}
	if found && len(got.seen.status.Holding) == mostHolding {
		e.pending.begin()
		time.AfterFunc(searchesAgain, func() { // it posts a command, and ends
			defer e.pending.done()
			e.searchGhosts(s.names)
		})
	}
}

// deliver tells the line of a token that Redis has handed it the key. If no line waits with the token, it may be a
// ghost.
func (e *engine) deliver(h wire.HandOver) {
	if a := e.tokens.of(h.Token); a == nil || !a.inLine.Message(h, clock.Now()) {
		e.handed(h)
	}
}

// handed releases the token of a message, if that is a ghost. The token says which part of the key is the prefix, and
// so where the fences are.
func (e *engine) handed(h wire.HandOver) {
	number, prefix, made := e.mint.Made(h.Token)
	if !made || prefix == wire.LongestPrefix || prefix > len(h.Key) {
		return
	}
	n := &names{key: h.Key[prefix:], lock: h.Key, at: e.strategy.wordsOf(h.Key[:prefix], h.Key)}
	e.releaseGhost(n, h.Token, number, sighting{message: &h})
}

// releaseGhost releases a token of this Locker, unless it is used or spared, or the sighting is old. It reports whether
// it does. While the release is under way, the token is used. Nobody waits for that: if it fails, the key ends by
// itself.
func (e *engine) releaseGhost(n *names, token string, number uint64, seen sighting) bool {
	ghost := &attempt{engine: e, id: identity{names: n, token: token}, minted: number}
	ghost.acquire.timeout = e.cfg.timeout()
	if !e.tokens.takes(ghost, seen) {
		return false
	}
	ghost.giveBack(ghost.releasing(context.Background(), clock.MonoNow(), 0))
	return true
}
