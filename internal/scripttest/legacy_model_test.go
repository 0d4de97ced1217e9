package scripttest

import (
	"math"
	"regexp"
	"strconv"
)

var timestampForm = regexp.MustCompile(`^\d+\.?\d*$`)

// timestamp reads the value of a lock.
func timestamp(value string) (till float64, ok bool) {
	till, _ = strconv.ParseFloat(value, 64)
	return till, timestampForm.MatchString(value)
}

// format returns a number without its fraction, rounded.
func format(number float64) string { return strconv.FormatFloat(number, 'f', 0, 64) }

func (m *model) legacyAcquire(k, a words) any {
	token, ttl := a[0], a.number(1)
	if m.now > a.number(2) {
		return m.time("late")
	}
	ends := float64(m.seconds() + ttl + 1)
	owner, stamp := m.get(k[1]), m.get(k[2])
	own := func() {
		m.set(k[1], token, (ttl+2)*1000)
		m.set(k[2], format(ends), (ttl+2)*1000)
	}
	m.call("setnx")
	if m.keys[k[0]] == nil {
		m.set(k[0], format(ends), 0)
		own()
		return int64(1)
	}
	value := m.get(k[0])
	till, ok := timestamp(value)
	if !ok {
		return noTimestamp
	}
	if float64(m.seconds()) > till {
		m.set(k[0], format(ends), 0)
		own()
		return int64(2)
	}
	if owner != token || stamp != value {
		return []any{m.timeLeft(till)}
	}
	if ends > till {
		m.set(k[0], format(ends), 0)
		own()
	}
	return int64(2)
}

// timeLeft returns how long a lock is held yet, in ms.
func (m *model) timeLeft(till float64) int64 {
	left := (math.Floor(till)+1-float64(m.seconds()))*1000 - float64(m.micros()/1000)
	return int64(min(left, 9e12))
}

// owned reports whether the token wrote the lock last, and its time has not passed.
func (m *model) owned(k words, token string) bool {
	value := m.get(k[0])
	owner := m.get(k[1])
	if value == "" || owner != token || m.get(k[2]) != value {
		return false
	}
	till, err := strconv.ParseFloat(value, 64)
	if err != nil {
		panic(cannotCompare)
	}
	return float64(m.seconds()) <= till
}

func (m *model) legacyExtend(k, a words) any {
	if value := m.get(k[0]); value == "" || !m.owned(k, a[0]) {
		return m.written(k[0], 0)
	}
	till, _ := timestamp(m.get(k[0]))
	ends := max(float64(m.seconds()+a.number(1)+1), till)
	life := int64(math.RoundToEven((ends - float64(m.seconds()) + 1) * 1000))
	m.set(k[0], format(ends), 0)
	m.set(k[1], a[0], life)
	m.set(k[2], format(ends), life)
	return int64(1)
}

func (m *model) legacyRelease(k, a words) any {
	if m.owned(k, a[0]) {
		m.del(k...)
		return int64(1)
	}
	return m.written(k[0], -one(m.get(k[1]) == a[0]))
}

func (m *model) legacyInspect(k, _ words) any {
	value := m.get(k[0])
	if value == "" {
		return []any{int64(0), ""}
	}
	till, ok := timestamp(value)
	if !ok {
		return noTimestamp
	}
	if float64(m.seconds()) > till {
		return []any{int64(0), ""}
	}
	owner := m.get(k[1])
	if owner != "" && m.get(k[2]) != value {
		owner = ""
	}
	return []any{m.timeLeft(till), owner}
}
