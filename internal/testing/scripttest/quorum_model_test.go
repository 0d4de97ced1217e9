package scripttest

import "strconv"

const (
	counterKey    = "counter"
	counterMemory = 3_600_000
	counterBound  = int64(1<<47 - 1)
)

// vote returns the least fence of the present.
func (m *model) vote() int64 { return (m.seconds() - epoch) * 250_000 }

func (m *model) quorumAcquire(k, a words) any {
	lock := k[0]
	token, ttl, latest := a[0], a.number(1), a.number(2)
	holder := m.get(lock)
	if m.now > latest && holder != token {
		return m.time("late")
	}
	if holder != "" && holder != token {
		if failed, ok := m.written(lock, 0).(failure); ok {
			return failed
		}
		mark := a[3]
		if v := m.keys[k[2]]; v != nil && v.text != mark {
			mark = ""
		}
		_ = attempt(func() { m.set(k[2], mark, 500) })
		return []any{m.pttl(lock), holder}
	}
	counter, failed := m.counter(k[1])
	if failed != "" {
		return failed
	}
	if holder == "" || m.pttl(lock) < ttl {
		m.set(lock, token, ttl)
	}
	return m.mint(k[1], counter)
}

// counter reads a fence counter.
func (m *model) counter(key string) (n int64, failed failure) {
	var text string
	if failed = attempt(func() { text = m.get(key) }); failed == wrongType {
		return 0, noCounter
	}
	if failed == "" && text != "" {
		var err error
		if n, err = strconv.ParseInt(text, 10, 64); err != nil || n >= counterBound {
			return 0, noCounter
		}
	}
	return n, failed
}

// mint raises a counter, and returns the vote.
func (m *model) mint(key string, counter int64) int64 {
	fence := max(counter+1, m.vote())
	m.set(key, strconv.FormatInt(fence, 10), counterMemory)
	return fence
}

func (m *model) quorumRelease(k, a words) any {
	lock, token, latest, keep := k[0], a[0], a.number(2), a.number(3)
	holder := m.get(lock)
	if holder != token {
		return m.written(lock, one(keep > 0 && holder == "~"+token))
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
	mark := m.keys[k[1]]
	m.del(lock, k[1])
	return 1 + one(mark != nil && mark.text != a[1])
}

func (m *model) quorumExtend(k, a words) any {
	lock := k[0]
	token, ttl, fence, restore, latest := a[0], a.number(1), a.at(2), a.number(3), a.number(4)
	holder := m.get(lock)
	if holder != "" && holder != token || holder == "" && restore == 0 {
		return m.written(lock, -one(holder != ""))
	}
	if holder == "" && m.now > latest {
		return m.time("late")
	}
	counter, failed := m.counter(k[1])
	if failed != "" {
		return failed
	}
	if holder != "" {
		m.pexpire(lock, max(m.pttl(lock), ttl))
	}
	if fence == "mint" {
		return m.mint(k[1], counter)
	}
	m.pexpire(k[1], counterMemory)
	if counter < a.number(2) {
		counter = a.number(2)
		m.set(k[1], fence, counterMemory)
	}
	if holder != "" {
		return counter
	}
	m.set(lock, token, restore)
	return int64(0)
}
