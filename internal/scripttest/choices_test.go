package scripttest

import (
	"math/rand/v2"
	"strconv"
)

// choices are random.
type choices struct {
	*rand.Rand
	start int64  // TIME when the sequence begins, in µs
	usual string // the limit of most calls
}

func choose(seed uint64) choices {
	c := choices{Rand: rand.New(rand.NewPCG(seed, 0)), start: 1_780_000_000_000_000}
	if c.IntN(6) == 0 {
		c.start = epoch*1_000_000 - 1000 // a clock that is wrong
	}
	c.usual = c.of("1", "2", "3", "3")
	return c
}

func (c choices) of(all ...string) string { return all[c.IntN(len(all))] }

func (c choices) token() string { return c.of("a", "b", "c/x y") }

// owner is mostly the holder.
func (c choices) owner() string { return c.of(theHolder, theHolder, c.token()) }

func (c choices) ttl() string { return c.of("20", "500", "3000", "70000") }

func (c choices) latest() string {
	return c.of(atMicros+"1000000", atMicros+"1000000", atMicros+"0", atMicros+"-1")
}

func (c choices) entry(token string) string {
	return c.of("20", "500", "500") + " " + c.of(listening, listening, "-"+deaf, "-"+deaf, deaf) + " " + token
}

func (c choices) waited() string { return c.of("0", "0", "1000", "70000000", "4000000000000000") }

// maybe adds more words half of the time.
func (c choices) maybe(w words, more ...string) words {
	if c.IntN(2) == 0 {
		return w
	}
	return append(w, more...)
}

func (c choices) acquire() step {
	token := c.token()
	return step{keys: 3, words: c.queues(words{"acquire.lua", "k", "fence", "queue", token, c.ttl(), c.latest()}, token)}
}

// queues has most acquires queue an entry.
func (c choices) queues(w words, token string) words {
	if c.IntN(3) == 0 {
		return w
	}
	return c.maybe(append(w, c.entry(token), c.waited()), "again")
}

func (c choices) release() step {
	return step{keys: 3, words: c.handsOn(words{"release.lua", "k", "fence", "queue", c.owner()})}
}

// handsOn adds what a release does with the queue.
func (c choices) handsOn(w words) words {
	own := c.of("", c.entry(c.token()))
	next := c.entry(c.of(c.token(), theLast))
	switch c.IntN(5) {
	case 0:
		return w
	case 1:
		return append(w, own)
	case 2:
		return append(w, own, c.of("", next), c.waited(), c.latest(), c.ttl())
	}
	return append(w, own, next, c.waited(), c.latest())
}

func (c choices) extend() step { return c.extends("extend.lua") }

func (c choices) extends(script string) step {
	if c.IntN(3) == 0 {
		return step{keys: 1, words: words{script, "k", c.owner(), c.ttl()}}
	}
	return step{keys: 2, words: words{script, "k", "fence", c.owner(), c.ttl()}}
}

func (c choices) inspect() step {
	w := c.maybe(words{"inspect.lua", "k"}, "queue")
	return step{keys: len(w) - 1, words: w}
}

func (c choices) limit() string { return c.of(c.usual, c.usual, c.usual, "1", "2", "0") }

func (c choices) semaphoreAcquire() step {
	token := c.token()
	return step{keys: 3, words: c.queues(words{"semaphore_acquire.lua", "k", "fence", "queue", token, c.ttl(), c.limit(), c.latest()}, token)}
}

func (c choices) semaphoreRelease() step {
	return step{keys: 3, words: c.handsOn(words{"semaphore_release.lua", "k", "fence", "queue", c.owner(), c.limit()})}
}

func (c choices) semaphoreExtend() step { return c.extends("semaphore_extend.lua") }

func (c choices) semaphoreInspect() step {
	return step{keys: 2, words: words{"semaphore_inspect.lua", "k", "queue"}}
}

func (c choices) quorumAcquire() step {
	return step{keys: 3, words: words{"quorum_acquire.lua", "k", counterKey, "wanted", c.token(), c.ttl(), c.latest()}}
}

func (c choices) quorumRelease() step {
	return step{keys: 2, words: c.maybe(words{"quorum_release.lua", "k", "wanted", c.owner()}, c.ttl())}
}

func (c choices) quorumExtend() step {
	w := words{"quorum_extend.lua", "k", counterKey, c.owner(), c.ttl()}
	switch c.IntN(3) {
	case 1:
		w = append(w, "mint")
	case 2:
		w = append(w, c.fence(), c.ttl(), c.latest())
	}
	return step{keys: 2, words: w}
}

func (c choices) quorumRaise() step {
	return step{keys: 2, words: words{"quorum_raise.lua", "k", counterKey, c.owner(), c.fence()}}
}

func (c choices) fence() string { return c.of(atVote+"0", atVote+"1", atVote+"2", atVote+"5000000") }

func (c choices) legacyAcquire() step {
	return c.legacy("legacy_acquire.lua", c.of("1", "1", "2", "60"), c.latest())
}

func (c choices) legacyRelease() step { return c.legacy("legacy_release.lua") }

func (c choices) legacyExtend() step { return c.legacy("legacy_extend.lua", c.of("1", "1", "2", "60")) }

func (c choices) legacyInspect() step {
	return step{keys: 3, words: words{"legacy_inspect.lua", "k", "owner", "stamp"}}
}

func (c choices) legacy(script string, args ...string) step {
	return step{keys: 3, words: append(words{script, "k", "owner", "stamp", c.owner()}, args...)}
}

// What other clients do with the keys.

func (c choices) lose(key string) step { return step{words: words{"del", key}} }

func (c choices) set(key string, values ...string) step {
	return step{words: words{"set", key, c.of(values...)}}
}

func (c choices) retype(key string) step { return step{words: words{retype, key}} }

func (c choices) zadd(key, score string, member string) step {
	return step{words: words{"zadd", key, score, member}}
}

func (c choices) lockData() step {
	switch c.IntN(6) {
	case 0:
		return c.retype("k")
	case 1:
		return c.set("k", "somebody", "a", "~a")
	}
	return c.lose("k")
}

func (c choices) permitData() step {
	switch c.IntN(6) {
	case 0:
		return c.set("k", "a")
	case 1:
		return c.retype("k")
	case 2:
		return c.zadd("k", atMicros+"0", "a")
	case 3:
		return c.zadd("k", atMicros+"5000", c.of("~b", "somebody"))
	}
	return c.lose("k")
}

func (c choices) queueData() step {
	switch c.IntN(8) {
	case 0:
		return c.set("queue", "x")
	case 1, 2:
		return c.zadd("queue", "7", c.of("no entry", "~"))
	case 3, 4, 5:
		return c.zadd("queue", c.of("9", atMicros+"3000"), c.entry(c.of(c.token(), theLast)))
	}
	return c.lose("queue")
}

func (c choices) registerData() step {
	switch c.IntN(8) {
	case 0:
		return c.retype("fence")
	case 1:
		return c.set("fence", "x", "x", "9223372036854775807")
	case 2:
		return c.set("fence", "140737488355326", "140737488355327", "9007199254740993")
	case 3, 4:
		return c.set("fence", atTicks+"-2502", atTicks+"-2502", atTicks+"-2501", atTicks+"0", atTicks+"5")
	}
	return c.lose("fence")
}

func (c choices) counterData() step {
	switch c.IntN(8) {
	case 0, 1:
		return c.retype(counterKey)
	case 2, 3:
		return c.set(counterKey, "x")
	case 4:
		return c.set(counterKey, strconv.FormatInt(counterBound, 10), strconv.FormatInt(counterBound-1, 10))
	case 5:
		return c.set(counterKey, atVote+"0", atVote+"-1", atVote+"1")
	}
	return c.lose(c.of(counterKey, counterKey, "wanted"))
}

func (c choices) legacyData() step {
	switch c.IntN(8) {
	case 0:
		return c.retype(c.of("k", "owner", "stamp"))
	case 1:
		return c.set(c.of("k", "stamp"), "x", "-1")
	case 2:
		return c.set("k", atSeconds+"3/.75", "9000000000000000000")
	case 3, 4:
		return c.set(c.of("k", "stamp"), atSeconds+"-1", atSeconds+"0", atSeconds+"3")
	case 5:
		return c.set("owner", "a", "b")
	}
	return c.lose(c.of("k", "k", "owner", "stamp"))
}
