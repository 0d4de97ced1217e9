package scripttest

import (
	"cmp"
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
	if m.now > latest && !had {
		return m.time("late")
	}
	if beside && !had && m.leaseEnd(permits, a.at(5)) == 0 {
		return int64(0)
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
		nobody := held == 0
		if m.first(queue) == mark && m.callRoll(queue, entry) {
			return []any{"more", fresh}
		}
		h := m.handOn(k, held, entry, "", true)
		if h.more {
			return []any{"more", fresh}
		}
		held, blocked = h.held, h.blocked
		if head, _ := m.head(queue); nobody && held > 0 && head != "" {
			if old := m.first(queue); strings.HasPrefix(old, mark) {
				m.zrem(queue, old)
			}
			_ = attempt(func() { m.zadd(queue, m.now-zero, mark) })
		}
		had = m.leaseEnd(permits, token) > 0
	}
	if !had && (blocked || !fits()) {
		m.purge(permits)
		holder, ends := m.named(permits, exclusive(token))
		if entry != "" && limit < held && held < everybody && !exclusive(token) {
			ends = m.freeAt(permits, held-max(limit, 1), ends)
		}
		reply := []any{int64(0)}
		if holder != "" {
			reply = []any{(ends - m.now + 999) / 1000, holder}
		}
		switch {
		case entry == "":
			m.zrem(permits, "~")
		case !queued:
			enqueue()
		}
		head, ends := m.head(queue)
		switch {
		case head != "" && m.first(queue) == mark:
			if entry != "" {
				m.answerRoll(queue, entry)
			}
		case blocked && ends == 0 || ends != 0 && head != "" && head == entry:
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
		var h handedPermits
		if left > 0 || len(a) < 2 {
			h = m.handOn(k, held, "", "", false)
		}
		if holders, kept := m.live(permits); len(holders)+len(kept) > 0 {
			m.purge(permits)
		}
		return h.rest(3 * one(keep > 0 && m.leaseEnd(permits, "~"+token) > 0))
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
	h := m.handOn(k, held, "", next, false)
	m.purge(permits)
	if m.leaving != "" {
		m.zrem(permits, token)
	}
	return h.rest(m.handedOn(next, h.answer, h.tick))
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
	if _, failed := m.look(k[0]); failed != "" {
		return failed
	}
	holders, kept := m.live(k[0])
	reply := []any{nil, nil, int64(0), nil, int64(len(holders)), nil}
	members := []any{}
	if len(holders) == 0 {
		holders = kept
	}
	for _, token := range holders[:min(len(holders), 100)] {
		members = append(members, token, m.untilIn(k[0], token))
	}
	if len(members) > 0 {
		reply[0], reply[2] = members[0], members[1]
	}
	waiters, count := m.waiters(k[1])
	reply[1], reply[3], reply[5] = waiters, count, members
	return reply
}

// live returns the tokens that hold a permit, and the values that keep others out, each in the order of their ends.
func (m *model) live(permits string) (holders, kept []string) {
	for _, token := range m.members(permits) {
		switch {
		case m.end(permits, token) <= m.now:
		case m.score(permits, token) < 0:
			kept = append(kept, token)
		default:
			holders = append(holders, token)
		}
	}
	return holders, kept
}

// named returns the token that a refusal names, and when the first permit ends; or the last one, and when that ends.
func (m *model) named(permits string, last bool) (token string, ends int64) {
	holders, kept := m.live(permits)
	for _, of := range [][]string{holders, kept} {
		if len(of) == 0 {
			continue
		}
		one := of[0]
		if last {
			one = of[len(of)-1]
		}
		if at := m.end(permits, one); token == "" || (at > ends) == last {
			ends = at
		}
		token = cmp.Or(token, one)
	}
	return token, ends
}

// freeAt returns the earliest time at which more than a number of permits have ended. The first ends at a time.
func (m *model) freeAt(permits string, over, at int64) int64 {
	holders, kept := m.live(permits)
	for _, of := range [][2][]string{{holders, kept}, {kept, holders}} {
		if place := over - int64(len(of[1])); 0 <= place && place < int64(len(of[0])) {
			at = max(at, m.end(permits, of[0][place]))
		}
	}
	return at
}

// leastScore is the least score of a permit.
const leastScore = 9e14

// mostScore is the greatest end of one.
const mostScore = 8e15

// end returns when a permit ends, or 0 without one.
func (m *model) end(permits, token string) int64 {
	ends := m.score(permits, token)
	if ends < 0 {
		ends += zero
	}
	return ends
}

// leaseEnd returns 0 if the token holds no permit.
func (m *model) leaseEnd(permits, token string) int64 {
	if ends := m.end(permits, token); ends > m.now && token != m.leaving {
		return ends
	}
	return 0
}

// untilIn returns in how many ms the lease of a token ends.
func (m *model) untilIn(permits, token string) int64 {
	return (m.end(permits, token) - m.now + 999) / 1000
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

// look returns the number of holders. An exclusive one is the only one. It ends last if others seem to last again.
func (m *model) look(permits string) (held int64, failed failure) {
	if oldest := m.end(permits, m.first(permits)); oldest > 0 && (oldest < leastScore || oldest > mostScore) {
		return 0, noSemaphore
	}
	holders, kept := m.live(permits)
	for _, all := range [][]string{holders, kept} {
		if len(all) > 0 && exclusive(all[len(all)-1]) {
			return everybody, ""
		}
	}
	return int64(len(holders) + len(kept)), ""
}

// purge removes permits that have ended, at most 64 of each kind.
func (m *model) purge(permits string) {
	var ended [2]int
	for _, token := range m.members(permits) {
		kind := one(m.score(permits, token) < 0)
		if m.end(permits, token) <= m.now && ended[kind] < most {
			m.call("zremrangebyrank")
			ended[kind]++
			delete(m.keys[permits].set, token)
		}
	}
	if m.keys[permits] != nil {
		m.dropEmpty(permits)
	}
}

// most is how much of anything a script does. A grant counts twice.
const most = 64

func (m *model) hold(permits, token string, ttl int64) {
	ends := max(m.now+ttl*1000, m.leaseEnd(permits, token))
	if strings.HasPrefix(token, "~") {
		ends -= zero
	}
	m.zadd(permits, ends, token)
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
	if till := m.score(queue, all[0]) + zero; all[0] == "!"+all[1] && till <= m.now+3_000_000 {
		ends = till
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

// handedPermits is what handOn has done.
type handedPermits struct {
	held         int64 // how many hold permits then
	blocked      bool  // the first entry must wait
	answer, tick int64 // the tick that told was granted, or 0
	more         bool
}

// rest returns a reply, or says that there is more to hand on.
func (h handedPermits) rest(reply any) any {
	if h.more {
		return []any{"more", reply}
	}
	return reply
}

func (m *model) handOn(k words, held int64, mine, told string, looks bool) handedPermits {
	permits, queue := k[0], k[2]
	h := handedPermits{held: held, answer: 1}
	for done := 0; ; looks = true {
		text, ends := m.head(queue)
		if !looks {
			_ = attempt(func() {
				if m.first(queue) == mark {
					m.zrem(queue, mark)
				}
			})
		}
		if text == "" || text == mine {
			return h
		}
		if h.more = done >= most; h.more {
			return h
		}
		done++
		if e := m.listener(text); e != nil {
			had := m.leaseEnd(permits, e.token) > 0
			fits := had || h.held < limitOf(e.token, e.limit)
			if h.blocked = !fits && (ends == 0 || ends > m.now); h.blocked {
				return h
			}
			if fits {
				tick, failed := m.tick(k[1])
				if failed != "" {
					return h
				}
				done++
				m.hold(permits, e.token, e.claim)
				if reached := m.announce(e, tick, permits); reached < 0 {
					h.answer = reached
				}
				if h.answer == -2 {
					if !had {
						m.zrem(permits, e.token)
					}
					return h
				}
				switch {
				case had:
				case exclusive(e.token):
					h.held = everybody
				default:
					h.held++
				}
				if text == told {
					h.tick = tick
				}
			}
		}
		m.zrem(queue, text)
		m.withdraw(queue, "!"+text)
	}
}
