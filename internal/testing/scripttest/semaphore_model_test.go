package scripttest

import (
	"strings"
)

func (m *model) semaphoreAcquire(k, a words) any {
	permits, queue := k[0], k[2]
	token, ttl, limit, latest, entry, waited, again := a[0], a.number(1), a.number(2), a.number(3), a.at(4), a.number(5), a.at(6) == "again"
	beside := len(a) > 4 && entry == ""
	if beside {
		m.zrem(permits, "~")
	}
	held, failed := m.look(permits)
	if failed != "" {
		return failed
	}
	had := m.leaseEnd(permits, token) > 0
	fits := func() bool { return held < limitOf(token, limit) }
	if beside && !had && m.leaseEnd(permits, a.at(5)) == 0 {
		return int64(0)
	}
	if m.now > latest && !had && (entry != "" || fits()) {
		return m.time("late")
	}
	fresh, queued, blocked := int64(0), false, false
	enqueue := func() {
		fresh, _ = m.enqueue(func(f func()) { f() }, queue, entry, waited, again)
		queued = true
	}
	if head, _ := m.head(queue); !had && !beside && fits() && head != "" {
		if entry != "" {
			enqueue()
		}
		held, blocked, _, _ = m.handOn(k, held, entry, "")
		had = m.leaseEnd(permits, token) > 0
	}
	if !had && (blocked || !fits()) {
		m.purge(permits)
		reply := []any{int64(0)}
		holder := m.first(permits)
		if all := m.members(permits); exclusive(token) && len(all) > 0 {
			holder = all[len(all)-1]
		}
		if holder != "" {
			reply = []any{m.untilIn(permits, holder), m.named(permits, holder, exclusive(token))}
		}
		switch {
		case entry == "":
			m.zrem(permits, "~")
		case !queued:
			enqueue()
		}
		head, ends := m.head(queue)
		if blocked && ends == 0 || ends != 0 && head == entry {
			m.keepBack(queue, head)
		}
		if entry == "" {
			return reply
		}
		if len(reply) == 1 {
			reply = append(reply, nil)
		}
		return m.time(append(reply, fresh, one(head == entry))...)
	}
	if had || entry != "" {
		m.zrem(permits, "~")
	}
	tick, failed := m.tick(k[1])
	if failed != "" {
		if fresh == 1 {
			m.zrem(queue, entry)
		}
		return failed
	}
	m.hold(permits, token, ttl)
	m.purge(permits)
	if gone := m.dismiss(queue, entry) == 0 || fresh == 1; entry != "" && gone && !had && again {
		return -tick
	}
	return tick
}

func (m *model) semaphoreRelease(k, a words) any {
	permits, queue := k[0], k[2]
	token, own, next, waited, latest, keep := a[0], a.at(1), a.at(2), a.number(3), a.number(4), a.number(5)
	m.zrem(permits, "~")
	held, failed := m.look(permits)
	released := failed == "" && m.leaseEnd(permits, token) > 0
	if released && keep == 0 {
		next = m.enqueueNext(queue, next, waited, latest)
	}
	left := m.dismiss(queue, own)
	switch {
	case failed != "":
		return int64(0)
	case !released:
		if left > 0 {
			m.handOn(k, held, "", "")
		}
		return 3 * one(keep > 0 && m.leaseEnd(permits, "~"+token) > 0)
	}
	keep, late := m.keeps(keep, latest)
	if late != nil {
		return late
	}
	if keep > 0 {
		m.hold(permits, "~"+token, keep)
		m.zrem(permits, token)
		return int64(1)
	}
	m.leaving = token
	if held--; exclusive(token) {
		held = 0
	}
	_, _, answer, tick := m.handOn(k, held, "", next)
	m.purge(permits)
	if m.leaving != "" {
		m.zrem(permits, token)
	}
	return m.handedOn(next, answer, tick)
}

func (m *model) semaphoreExtend(k, a words) any {
	m.zrem(k[0], "~")
	if m.leaseEnd(k[0], a[0]) == 0 {
		return int64(0)
	}
	m.hold(k[0], a[0], a.number(1))
	return m.adopted(k)
}

func (m *model) semaphoreInspect(k, _ words) any {
	if oldest := m.score(k[0], m.first(k[0])); 0 < oldest && oldest < leastScore {
		return noSemaphore
	}
	reply := []any{nil, nil, int64(0), nil, nil, nil}
	holders, named := int64(0), false
	members := []any{}
	for _, token := range m.members(k[0]) {
		if m.leaseEnd(k[0], token) == 0 {
			continue
		}
		if kept := strings.HasPrefix(token, "~"); holders == 0 || !kept && !named {
			reply[0], reply[2] = token, m.untilIn(k[0], token)
			named = !kept
		}
		holders++
	}
	for _, token := range m.members(k[0]) {
		if m.leaseEnd(k[0], token) > 0 && (!named || !strings.HasPrefix(token, "~")) && len(members) < 200 {
			members = append(members, token, m.untilIn(k[0], token))
		}
	}
	waiters, count := m.waiters(k[1])
	reply[1], reply[3], reply[4], reply[5] = waiters, count, holders, members
	return reply
}

// named returns a holder in place of one that only keeps others out, if there is any: the last of
// them, or the first.
func (m *model) named(permits, holder string, last bool) string {
	if !strings.HasPrefix(holder, "~") {
		return holder
	}
	for _, token := range m.members(permits) {
		if !strings.HasPrefix(token, "~") {
			if holder = token; !last {
				break
			}
		}
	}
	return holder
}

// leastScore is the least score of a permit.
const leastScore = 9e14

// leaseEnd returns 0 if the token holds no permit.
func (m *model) leaseEnd(permits, token string) int64 {
	if ends := m.score(permits, token); ends > m.now && token != m.leaving {
		return ends
	}
	return 0
}

// untilIn returns in how many ms the lease of a token ends.
func (m *model) untilIn(permits, token string) int64 {
	return (m.score(permits, token) - m.now + 999) / 1000
}

// everybody is how many holders one counts for that is exclusive.
const everybody = 1 << 40

// exclusive reports whether a token is that of a writer, or keeps others out after it.
func exclusive(token string) bool { return strings.HasPrefix(strings.TrimPrefix(token, "~"), "!") }

// limitOf returns the limit of a caller whose token may be exclusive.
func limitOf(token string, limit int64) int64 {
	if exclusive(token) {
		return 1
	}
	return limit
}

// look returns the number of holders. An exclusive one is the only one.
func (m *model) look(permits string) (held int64, failed failure) {
	if oldest := m.score(permits, m.first(permits)); 0 < oldest && oldest < leastScore {
		return 0, noSemaphore
	}
	for _, token := range m.members(permits) {
		if m.leaseEnd(permits, token) > 0 {
			if held++; held == 1 && exclusive(token) {
				return everybody, ""
			}
		}
	}
	return held, ""
}

// purge removes permits that have expired, if there are any.
func (m *model) purge(permits string) {
	if oldest := m.score(permits, m.first(permits)); 0 < oldest && oldest <= m.now {
		m.zremUpTo(permits, m.now)
	}
}

func (m *model) hold(permits, token string, ttl int64) {
	m.zadd(permits, max(m.now+ttl*1000, m.leaseEnd(permits, token)), token)
	if token == m.leaving {
		m.leaving = ""
	}
	if m.pttl(permits) <= ttl {
		m.pexpire(permits, ttl+1)
	}
}

// zero is the score of a mark whose time is 0.
const zero = 9e15

// head returns the first entry, and until when it keeps others back, or 0. A key of another type
// counts as an empty queue.
func (m *model) head(queue string) (entry string, ends int64) {
	var all []string
	_ = attempt(func() { all = append(m.members(queue), "", "") })
	if all == nil || !strings.HasPrefix(all[0], "!") {
		return words(all).at(0), 0
	}
	if all[0] == "!"+all[1] {
		ends = m.score(queue, all[0]) + zero
	}
	return all[1], ends
}

// keepBack replaces the mark.
func (m *model) keepBack(queue, entry string) {
	if old := m.first(queue); strings.HasPrefix(old, "!") && old != "!"+entry {
		m.zrem(queue, old)
	}
	m.zadd(queue, m.now+3_000_000-zero, "!"+entry)
}

// dismiss removes an entry, if there is one, and its mark. It returns how many members it has
// removed, or more than 0 for a key of another type.
func (m *model) dismiss(queue, entry string) (removed int64) {
	if entry == "" {
		return 0
	}
	if failed := attempt(func() { removed = one(m.zrem(queue, entry)) + one(m.zrem(queue, "!"+entry)) }); failed != "" {
		return 1
	}
	return removed
}

// handOn returns how many hold permits then, and whether the first entry must wait. It also returns
// the tick that told was granted, or 0.
func (m *model) handOn(k words, held int64, mine, told string) (_ int64, blocked bool, answer, own int64) {
	permits, queue := k[0], k[2]
	answer = 1
	for {
		text, ends := m.head(queue)
		if text == "" || text == mine {
			return held, false, answer, own
		}
		if e := m.listener(text); e != nil {
			had := m.leaseEnd(permits, e.token) > 0
			fits := had || held < limitOf(e.token, e.limit)
			if !fits && (ends == 0 || ends > m.now) {
				return held, true, answer, own
			}
			if fits {
				tick, failed := m.tick(k[1])
				if failed != "" {
					return held, false, answer, own
				}
				m.hold(permits, e.token, e.claim)
				if reached := m.announce(e, tick, permits); reached < 0 {
					answer = reached
				}
				if answer == -2 {
					if !had {
						m.zrem(permits, e.token)
					}
					return held, false, answer, own
				}
				switch {
				case had:
				case exclusive(e.token):
					held = everybody
				default:
					held++
				}
				if text == told {
					own = tick
				}
			}
		}
		m.dismiss(queue, text)
	}
}
