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
	return till, len(value) < 64 && timestampForm.MatchString(value)
}

// format returns a number without its fraction, rounded.
func format(number float64) string { return strconv.FormatFloat(number, 'f', 0, 64) }

// A legacyLock is what each script of LegacySetNX reads first.
type legacyLock struct {
	value, owner, stamp string
	till                float64
	odd, passed         bool
}

func (m *model) legacy(k words) (l legacyLock) {
	l.value, l.owner, l.stamp = m.get(k[0]), m.get(k[1]), m.get(k[2])
	till, ok := timestamp(l.value)
	l.till, l.odd, l.passed = till, l.value != "" && !ok, ok && float64(m.seconds()) > till
	return l
}

// heldBy reports whether the token wrote the lock last, and its time has not passed.
func (l *legacyLock) heldBy(token string) bool {
	return l.value != "" && !l.odd && !l.passed && l.owner == token && l.stamp == l.value
}

// own has the token hold the lock until ends.
func (m *model) own(k words, token string, ends float64) {
	life := int64(math.RoundToEven((ends - float64(m.seconds()) + 1) * 1000))
	m.set(k[0], format(ends), 0)
	m.set(k[1], token, life)
	m.set(k[2], format(ends), life)
}

func (m *model) legacyAcquire(k, a words) any {
	token, ends := a[0], float64(m.seconds()+a.number(1)+1)
	l := m.legacy(k)
	if m.now > a.number(2) {
		return m.time("late")
	}
	m.call("setnx")
	switch {
	case l.value == "":
		m.own(k, token, ends)
		return int64(1)
	case l.odd:
		return noTimestamp
	case !l.passed && !l.heldBy(token):
		return []any{m.timeLeft(l.till)}
	case ends > l.till:
		m.own(k, token, ends)
	}
	return int64(2)
}

// timeLeft returns how long a lock is held yet, in ms.
func (m *model) timeLeft(till float64) int64 {
	left := min(math.Floor(till)+1-float64(m.seconds()), 9e9)
	return int64(left)*1000 - m.micros()/1000
}

func (m *model) legacyExtend(k, a words) any {
	l := m.legacy(k)
	if !l.heldBy(a[0]) {
		return m.written(k[0], 0)
	}
	_ = attempt(func() { m.zrem(k[0], "~") })
	m.own(k, a[0], max(float64(m.seconds()+a.number(1)+1), l.till))
	return int64(1)
}

func (m *model) legacyRelease(k, a words) any {
	l := m.legacy(k)
	if l.heldBy(a[0]) {
		m.del(k...)
		return int64(1)
	}
	return m.written(k[0], -one(l.owner == a[0]))
}

func (m *model) legacyInspect(k, _ words) any {
	l := m.legacy(k)
	switch {
	case l.odd:
		return noTimestamp
	case l.value == "", l.passed:
		return []any{nil, []any{}, int64(0), int64(0)}
	case l.stamp != l.value:
		l.owner = ""
	}
	return []any{l.owner, []any{}, m.timeLeft(l.till), int64(0)}
}
