package scripttest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// scripts has the model of each script.
var scripts = map[string]func(m *model, keys, args words) any{
	"acquire.lua": (*model).acquire, "release.lua": (*model).release, "extend.lua": (*model).extend, "inspect.lua": (*model).inspect,

	"semaphore_acquire.lua": (*model).semaphoreAcquire, "semaphore_release.lua": (*model).semaphoreRelease,
	"semaphore_extend.lua": (*model).semaphoreExtend, "semaphore_inspect.lua": (*model).semaphoreInspect,

	"quorum_acquire.lua": (*model).quorumAcquire, "quorum_release.lua": (*model).quorumRelease,
	"quorum_extend.lua": (*model).quorumExtend,

	"legacy_acquire.lua": (*model).legacyAcquire, "legacy_release.lua": (*model).legacyRelease,
	"legacy_extend.lua": (*model).legacyExtend, "legacy_inspect.lua": (*model).legacyInspect,
}

func (m *model) acquire(k, a words) any {
	lock, queue := k[0], k[2]
	token, ttl, latest, own, waited, again := a[0], a.number(1), a.number(2), a.at(3), a.number(4), a.at(5) == "again"
	late, holder := m.now > latest, ""
	if own != "" || late {
		holder = m.get(lock)
	}
	if late && holder != token {
		return m.time("late")
	}
	free := holder == "" && (own != "" || m.setNX(lock, token, ttl))
	if !free {
		holder = m.get(lock)
	}
	var head string
	var h handedOver
	added, placed := int64(0), false
	if free {
		_ = attempt(func() { head = m.first(queue) })
	}
	if own != "" && (head != "" && head != own || !free && holder != token) {
		added, placed = m.enqueue(func(f func()) { f() }, queue, own, waited, again)
	}
	if free && head != "" {
		if m.first(queue) == mark {
			h.more = m.callRoll(queue, own)
		}
		if !h.more {
			h = m.handOver(k, own, false, true)
		}
		switch {
		case h.more && own == "":
			m.del(lock)
			fallthrough
		case h.more:
			return []any{"more", added}
		case h.to != nil:
			holder = h.to.token
		}
	}
	fresh := free && h.to == nil
	if !fresh && holder != token {
		if own == "" {
			return []any{m.pttl(lock), holder}
		}
		waiter, marked := m.firstWaiter(queue)
		if marked && (free || again || !placed) {
			m.answerRoll(queue, own)
		}
		return m.time(m.pttl(lock), holder, added, one(waiter == own))
	}
	gone := m.withdraw(queue, own) || added == 1 || fresh && head == ""
	switch {
	case fresh && (own != "" || h.silent):
		m.set(lock, token, ttl)
	case !fresh:
		m.pexpire(lock, max(m.pttl(lock), ttl))
	}
	tick, failed := m.tick(k[1])
	switch {
	case failed == "" && fresh && gone && again:
		return -tick
	case failed == "":
		return tick
	case fresh:
		m.del(lock)
	}
	return failed
}

func (m *model) release(k, a words) any {
	lock, queue := k[0], k[2]
	token, leaving, next, waited, latest, keep := a[0], a.at(1), a.at(2), a.number(3), a.number(4), a.number(5)
	holder := m.get(lock)
	if holder != token {
		removed := false
		if leaving != "" {
			_ = attempt(func() { removed = m.zrem(queue, leaving) })
		}
		if removed && m.lone(queue) {
			m.zrem(queue, mark)
		}
		return m.written(k[0], 3*one(keep > 0 && holder == "~"+token))
	}
	keep, late := m.keeps(keep, latest)
	if late != nil {
		return late
	}
	if keep > 0 {
		m.pexpire(lock, keep)
		m.set(lock, "~"+token, keep)
		return int64(1)
	}
	asked := next != ""
	if asked {
		m.withdraw(queue, "~")
	}
	next = m.enqueueNext(queue, next, waited, latest)
	m.withdraw(queue, leaving)
	h := m.handOver(k, "", !asked, false)
	switch {
	case h.more:
		m.pexpire(lock, 1000)
		return []any{"more", m.handedOn(next, 1, 0)}
	case h.to == nil:
		m.del(lock)
		return m.handedOn(next, 1-3*one(h.silent), 0)
	case h.to.text != next:
		h.tick = 0
	}
	return m.handedOn(next, 1-2*one(h.silent), h.tick)
}

// A handedOver is what hand_over.lua has done.
type handedOver struct {
	to     *entry // nil: nobody
	tick   int64
	silent bool
	more   bool
}

// mark is the first member of a queue after a look has handed the key over.
const mark = "!"

// callRoll is roll_call.lua. It reports whether it has done its most.
func (m *model) callRoll(queue, own string) (more bool) {
	since := m.score(queue, mark) + zero
	old := func(score int64) bool { return score < since || score > m.now }
	entries := m.members(queue)[1:]
	gone := 0
	for _, entry := range entries[:min(len(entries), most)] {
		switch {
		case m.halved(queue, entry):
			_ = attempt(func() { m.zadd(queue, m.score(queue, entry), entry) })
		case m.now-since >= 300_000 && entry != own && old(m.score(queue, entry)):
			m.zrem(queue, entry)
			gone++
		}
	}
	if gone < most {
		m.zrem(queue, mark)
	}
	return gone == most
}

// answerRoll marks an entry of a line that looks while there is a mark.
func (m *model) answerRoll(queue, own string) {
	if m.first(queue) == mark && !m.halved(queue, own) {
		_ = attempt(func() {
			m.zadd(queue, m.score(queue, own), own)
			m.keys[queue].set[own] += 0.5
		})
	}
}

// lone reports whether a queue has only a mark, if it is one.
func (m *model) lone(queue string) bool {
	all := []string{}
	_ = attempt(func() { all = m.members(queue) })
	return len(all) == 1 && all[0] == mark
}

// firstWaiter returns the first entry, and whether a mark comes before it.
func (m *model) firstWaiter(queue string) (entry string, marked bool) {
	all := append(m.members(queue), "", "")
	if all[0] == mark {
		return all[1], true
	}
	return all[0], false
}

// handOver is hand_over.lua. unproven says that the script has not written yet.
func (m *model) handOver(k words, own string, unproven, looks bool) (h handedOver) {
	lock, queue := k[0], k[2]
	text := ""
	_ = attempt(func() { text = m.first(queue) })
	skipped := 0
	for ; text != "" && text != own && skipped < most; text = m.first(queue) {
		e := m.listener(text)
		if e == nil {
			m.zrem(queue, text)
			skipped++
			continue
		}
		if unproven {
			m.withdraw(queue, "~")
		}
		tick, failed := m.tick(k[1])
		if failed != "" {
			return h
		}
		m.set(lock, e.token, e.claim)
		answer := m.announce(e, tick, lock)
		if h.silent = answer < 0; answer != -2 {
			h.to, h.tick = e, tick
			if looks && len(m.members(queue)) > 1 {
				_ = attempt(func() { m.zadd(queue, m.now-zero, mark) })
			}
			m.zrem(queue, text)
		}
		return h
	}
	h.more = skipped == most && (looks || text != "")
	return h
}

// keeps is keep.lua. It returns how long to keep the key, or the answer to a sender who may not know
// the time.
func (m *model) keeps(keep, latest int64) (left int64, late any) {
	switch known := latest < 0; {
	case keep == 0 || m.now <= max(latest, -latest):
		return keep, nil
	case known:
		return max(keep-(m.now+latest+999)/1000, 0), nil
	}
	return 0, m.time("late")
}

// handedOn returns the reply of a release that has queued next, or nothing. A tick of 0 is none.
func (m *model) handedOn(next string, answer, tick int64) any {
	switch {
	case next == "":
		return answer
	case tick == 0:
		return m.time(answer)
	}
	return append(m.time(answer), tick)
}

func (m *model) extend(k, a words) any {
	holder := m.get(k[0])
	if holder != a[0] {
		return m.written(k[0], -one(holder != ""))
	}
	m.pexpire(k[0], max(m.pttl(k[0]), a.number(1)))
	return m.adopted(k)
}

// adopted returns the tick of an adoption, or 1 if it is a renewal.
func (m *model) adopted(k words) any {
	if len(k) < 2 {
		return int64(1)
	}
	tick, failed := m.tick(k[1])
	if failed != "" {
		return failed
	}
	return tick
}

func (m *model) inspect(k, _ words) any {
	reply := []any{nil, []any{}, int64(0), int64(0)}
	if len(k) > 1 {
		reply[1], reply[3] = m.waiters(k[1])
	}
	if holder := m.get(k[0]); holder != "" {
		reply[0] = holder
	}
	reply[2] = m.pttl(k[0])
	return reply
}

// waiters is waiters.lua.
func (m *model) waiters(queue string) (waiters []any, count int64) {
	waiters = []any{}
	for i, entry := range m.members(queue) {
		if i == 0 && strings.HasPrefix(entry, mark) {
			continue
		}
		if count++; count <= 100 {
			waiters = append(waiters, entry, max(m.now-m.score(queue, entry), 0))
		}
	}
	return waiters, count
}

// written is writable.lua: it returns answer, or the failure of a replica.
func (m *model) written(key string, answer int64) any {
	if failed := attempt(func() { m.zrem(key, "~") }); failed == readOnly {
		return failed
	}
	return answer
}

// withdraw removes an entry, if there is one, from what may be another type of key. It reports
// whether it was not there.
func (m *model) withdraw(queue, entry string) (gone bool) {
	if entry != "" {
		_ = attempt(func() { gone = !m.zrem(queue, entry) })
	}
	return gone
}

// enqueue is queue.lua. placed says that the script knows whether the entry is the first.
func (m *model) enqueue(
	try func(func()), queue, entry string, waited int64, again bool,
) (added int64, placed bool) {
	const memory = 60_000
	if again && m.score(queue, entry) > 0 {
		m.pexpire(queue, memory)
		return 0, false
	}
	ours, score := false, max(m.now-waited, 1)
	add := func() {
		m.call("zadd")
		if m.score(queue, entry) == 0 {
			added = m.zadd(queue, score, entry)
		}
		ours = true
	}
	if attempt(add) != "" {
		m.withdraw(queue, "~")
		try(add)
	}
	alone := false
	if added == 1 {
		all := m.members(queue)
		last := all[len(all)-1]
		alone = len(all) == 1 || len(all) == 2 && all[0] == mark && last == entry
		if placed = alone || last == entry; last != entry && m.score(queue, last) >= m.now {
			m.zadd(queue, max(m.score(queue, last)+1-waited, 1), entry)
		}
	}
	if ours && (alone || m.now%16 == 0) {
		try(func() { m.pexpire(queue, memory) })
	}
	return added, placed
}

// enqueueNext queues the entry that came with a release, unless it came too late. It returns the
// entry then.
func (m *model) enqueueNext(queue, next string, waited, latest int64) string {
	if next == "" || m.now > latest {
		return ""
	}
	m.enqueue(func(f func()) { _ = attempt(f) }, queue, next, waited, false)
	return next
}

// tick is fence.lua.
func (m *model) tick(register string) (tick int64, failed failure) {
	const memory, slack = 86_400_000, 2500
	failed = attempt(func() { tick = m.incr(register) })
	switch {
	case failed == "" && tick < 1<<47:
		if now := m.ticks(); tick < now-slack || tick == 1 {
			tick = max(now, 1)
			m.set(register, strconv.FormatInt(tick, 10), memory)
		}
		return tick, ""
	case failed == "":
		m.keys[register].text = strconv.FormatInt(tick-1, 10)
		failed = noRegister
	case failed == wrongType, failed == notAnInteger:
		failed = noRegister
	}
	return 0, failed
}

// ticks returns the clock in units of 4 µs, from 2026 on.
func (m *model) ticks() int64 { return (m.seconds()-epoch)*250_000 + m.micros()/4 }

// epoch is the start of 2026, in s.
const epoch = 1767225600

type entry struct {
	text, channel, token string
	claim, limit         int64
	dash                 bool
}

var entryForm = regexp.MustCompile(`^([1-9]\d*):?(\d*) (-?)(\S+) (.*)$`)

// listener is listens.lua. It returns the entry, or nil if it is none, its claim is too small or too large, or its
// process does not listen.
func (m *model) listener(text string) *entry {
	parts := words(entryForm.FindStringSubmatch(text))
	if parts == nil {
		return nil
	}
	e := &entry{text: text, claim: parts.number(1), limit: 1, dash: parts[3] != "", channel: parts[4], token: parts[5]}
	if parts[2] != "" {
		e.limit = parts.number(2)
	}
	if e.claim > 4e12 {
		return nil
	}
	if e.dash || slices.Contains(listening, e.channel) || m.fault == noPubSub {
		return e
	}
	return nil
}

// announce is announce.lua. It returns 1, or -1 if PUBLISH is refused, and -2 if nobody would look
// soon then.
func (m *model) announce(e *entry, tick int64, lock string) int64 {
	refused := attempt(func() {
		m.publish(e.channel, fmt.Sprintf("%d %d %d %d %s%s", m.seconds(), m.micros(), tick, len(e.text), e.text, lock))
	})
	switch {
	case refused == "":
		return 1
	case e.dash:
		return -1
	}
	return -2
}
