package scripttest

import "strings"

func (m *model) semaphoreAcquire(k, a words) any {
	permits, queue := k[0], k[2]
	token, ttl, limit, latest, entry, waited, again := a[0], a.number(1), a.number(2), a.number(3), a.at(4), a.number(5), a.at(6) == "again"
	if entry != "" {
		m.zrem(permits, "~")
	}
	held, failed := m.look(permits)
	if failed != "" {
		return failed
	}
	free, had := limit-held, m.leaseEnd(permits, token) > 0
	if m.now > latest && !had && (entry != "" || free > 0) {
		return m.time("late")
	}
	fresh, queued := int64(0), false
	enqueue := func() {
		fresh, queued = m.enqueue(func(f func()) { f() }, queue, entry, waited, again), true
	}
	waiter := ""
	_ = attempt(func() { waiter = m.first(queue) })
	if !had && free > 0 && waiter != "" {
		if entry != "" {
			enqueue()
		}
		free, _, _ = m.handOn(k, free, entry, "")
		had = m.leaseEnd(permits, token) > 0
	}
	if !had && free <= 0 {
		m.purge(permits)
		reply := []any{int64(0)}
		if holder := m.first(permits); holder != "" {
			reply = []any{m.untilIn(permits, holder), holder}
		}
		if entry == "" {
			m.zrem(permits, "~")
			return reply
		}
		if len(reply) == 1 {
			reply = append(reply, nil)
		}
		if !queued {
			enqueue()
		}
		return m.time(append(reply, fresh, one(m.first(queue) == entry))...)
	}
	if had {
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
	if gone := m.withdraw(queue, entry) || fresh == 1; gone && !had && again {
		return -tick
	}
	return tick
}

func (m *model) semaphoreRelease(k, a words) any {
	permits, queue := k[0], k[2]
	token, limit, own, next, waited, latest, keep := a[0], a.number(1), a.at(2), a.at(3), a.number(4), a.number(5), a.number(6)
	m.zrem(permits, "~")
	held, failed := m.look(permits)
	released := failed == "" && m.leaseEnd(permits, token) > 0
	if released && keep == 0 {
		next = m.enqueueNext(queue, next, waited, latest)
	}
	m.withdraw(queue, own)
	switch {
	case failed != "":
		return int64(0)
	case !released:
		return one(keep > 0 && m.leaseEnd(permits, "~"+token) > 0)
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
	_, answer, tick := m.handOn(k, limit-held+1, "", next)
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
	reply := []any{nil, nil, int64(0), nil, nil}
	holders, named := int64(0), false
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
	reply[1], reply[3] = m.waiters(k[1])
	reply[4] = holders
	return reply
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

// look returns the number of holders.
func (m *model) look(permits string) (held int64, failed failure) {
	if oldest := m.score(permits, m.first(permits)); 0 < oldest && oldest < leastScore {
		return 0, noSemaphore
	}
	for _, token := range m.members(permits) {
		held += one(m.leaseEnd(permits, token) > 0)
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

// handOn also returns the tick that told was granted, or 0.
func (m *model) handOn(k words, free int64, mine, told string) (left, answer, own int64) {
	permits, queue := k[0], k[2]
	first := func() (text string) {
		_ = attempt(func() { text = m.first(queue) })
		return text
	}
	answer = 1
	for text := first(); text != "" && text != mine && free > 0; text = first() {
		if e := m.listener(text); e != nil {
			tick, failed := m.tick(k[1])
			if failed != "" {
				break
			}
			had := m.leaseEnd(permits, e.token) > 0
			m.hold(permits, e.token, e.claim)
			if reached := m.announce(e, tick, permits); reached < 0 {
				answer = reached
			}
			if answer == -2 {
				if !had {
					m.zrem(permits, e.token)
				}
				break
			}
			if !had {
				free--
			}
			if text == told {
				own = tick
			}
		}
		m.zrem(queue, text)
	}
	return free, answer, own
}
