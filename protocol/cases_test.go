package protocol_test

import (
	"fmt"
	"strings"
)

// The names in vectors.
const (
	lock     = "orders:42"
	register = "redlatch:fence"
	waiting  = "{orders:42}:queue:orders:42"
	permits  = "{orders:42}:permits:orders:42"
	counter  = "{orders:42}:fence:orders:42"
	wanted   = "{orders:42}:wanted:orders:42"
	owner    = "{orders:42}:owner:orders:42"
	stamp    = "{orders:42}:stamp:orders:42"

	there = "redlatch:0199c0de-0000-7000-8000-000000000001" // a channel with a subscriber
	away  = "redlatch:0199c0de-0000-7000-8000-000000000002" // a channel without one

	me    = "worker-1:11/0199c0de-0001-7a5e-9c01-0d2e4f6a8b1c"
	other = "worker-2:22/0199c0de-0002-7c11-a2b3-1a2b3c4d5e6f"
	third = "worker-3:33/0199c0de-0003-7d22-b3c4-2b3c4d5e6f70"

	soon = "{now+60000000}" // a command before this is not late
	past = "{now-1000000}"
)

// entry returns an entry of a queue. limit is empty except for a semaphore.
func entry(limit, channel, token string) string { return "2000" + limit + " " + channel + " " + token }

func text(s string, pttl int64) value { return value{String: &s, PTTL: pttl} }

// set returns a sorted set of members, each followed by its score.
func set(pttl int64, members ...string) value {
	v := value{PTTL: pttl}
	for i := 0; i < len(members); i += 2 {
		v.ZSet = append(v.ZSet, [2]string{members[i], members[i+1]})
	}
	return v
}

// A part is a part of a state, or of a call, with its name. A nil value is a missing key.
type part struct {
	name string
	v    *value
	argv []string
}

func has(name string, v value) part { return part{name: name, v: &v} }
func hasNone(name string) part      { return part{name: name} }
func says(name string, argv ...string) part {
	return part{name: name, argv: append([]string{}, argv...)}
}

// pick returns the parts with some names.
func pick(parts []part, names ...string) (picked []part) {
	for _, name := range names {
		for _, p := range parts {
			if p.name == name {
				picked = append(picked, p)
			}
		}
	}
	if len(picked) != len(names) {
		panic(fmt.Sprint("a name is missing: ", names))
	}
	return picked
}

// product returns a vector for each way to choose a state of two keys and a call.
func product(keys []string, first string, firsts []part, second string, seconds, calls []part) (all []vector) {
	for _, a := range firsts {
		for _, b := range seconds {
			for _, c := range calls {
				v := vector{Before: state{}, Keys: keys, Argv: c.argv}
				for key, p := range map[string]part{first: a, second: b} {
					if p.v != nil {
						v.Before[key] = *p.v
					}
				}
				v.Name = strings.Join([]string{a.name, b.name, c.name}, ", ")
				all = append(all, v)
			}
		}
	}
	return all
}

// allCases returns the vectors of each script without what they expect.
func allCases() map[string][]vector {
	return map[string][]vector{
		"acquire.lua": acquires(), "release.lua": releases(), "extend.lua": extends(), "inspect.lua": inspects(),

		"semaphore_acquire.lua": semaphoreAcquires(), "semaphore_release.lua": semaphoreReleases(),
		"semaphore_extend.lua":  semaphoreCalls(says("renewed", me, "60000"), says("renewed for less", me, "1000")),
		"semaphore_inspect.lua": semaphoreInspects(),

		"quorum_acquire.lua": quorumAcquires(), "quorum_release.lua": quorumReleases(), "quorum_extend.lua": quorumExtends(),

		"legacy_acquire.lua": legacy(says("acquired", me, "60", soon), says("acquired late", me, "60", past)),
		"legacy_extend.lua":  legacy(says("renewed", me, "60")),
		"legacy_release.lua": legacy(says("released", me)),
		"legacy_inspect.lua": legacy(says("inspected")),
	}
}

var (
	locks = []part{
		hasNone("free"), has("mine", text(me, 30000)), has("held", text(other, 30000)),
		has("held for ever", text(other, -1)),
		has("kept", text("~"+other, 30000)), has("kept by me", text("~"+me, 30000)),
		has("held by another library", text("locked", 30000)), has("of another type", set(-1, "a", "1")),
	}
	queues = []part{
		hasNone("nobody waits"),
		has("somebody waits", set(60000, entry("", there, other), "{now-5000000}")),
		has("a dead process waits", set(60000, entry("", away, third), "{now-5000000}")),
		has("a dead process waits first", set(60000, entry("", away, third), "{now-5000000}", entry("", there, other), "{now-3000000}")),
		has("a process that polls waits", set(60000, entry("", "-"+away, third), "{now-5000000}")),
		has("I wait first", set(60000, entry("", there, me), "{now-5000000}", entry("", there, other), "{now-3000000}")),
		has("I wait second", set(60000, entry("", there, other), "{now-5000000}", entry("", there, me), "{now-3000000}")),
		has("an entry without a claim comes first", set(60000, "0 "+there+" "+third, "{now-5000000}",
			entry("", there, other), "{now-3000000}")),
		has("the clock was set back", set(60000, entry("", there, other), "{now+10000000}")),
		has("a mark, and one has looked", set(60000, "!", "{mark-5000000}", entry("", there, third), "{now-9000000}",
			entry("", there, other), "{now-8000000}.5")),
		has("the queue is of another type", text("x", -1)),
	}
	registers = []part{
		has("the register is ahead", text("{tick+1000000}", 86400000)),
		has("the register is behind", text("{tick-250000000}", 86400000)),
		has("the register holds something else", text("x", -1)),
		has("the register is too large", text("140737488355327", -1)),
	}
	abc = []string{lock, register, waiting}
)

func acquires() (all []vector) {
	mine := entry("", there, me)
	calls := []part{
		says("acquired", me, "10000", soon), says("acquired with an entry", me, "10000", soon, mine, "0"),
		says("looked again", me, "10000", soon, mine, "3000000", "again"),
	}
	waited := []part{says("acquired with an entry after 4 s", me, "10000", soon, mine, "4000000")}
	late := []part{
		says("acquired late", me, "10000", past),
		says("acquired late with an entry", me, "10000", past, mine, "0"),
	}
	all = product(abc, lock, pick(locks, "free", "held"), waiting, queues, calls)
	all = append(all, product(abc, lock, pick(locks, "mine"), waiting, queues[:3], calls)...)
	all = append(all, product(abc, lock, locks[3:], waiting, queues[:1], calls[:2])...)
	all = append(all, product(abc, lock, pick(locks, "held"), waiting,
		pick(queues, "somebody waits", "the clock was set back"), waited)...)
	all = append(all, product(abc, lock, locks[:3], waiting, queues[:1], late)...)
	all = append(all, product(abc, lock, locks[:1], waiting, crowds(""), calls)...)
	return append(all, product(abc, lock, locks[:1], register, registers, calls[:1])...)
}

// crowds returns queues in which a script does not reach the end. limit is empty except for a semaphore.
func crowds(limit string) []part {
	var dead, silent []string
	for i := range 70 {
		// All have waited for longer than the caller and the mark, even if a machine is slow.
		token, score := fmt.Sprintf("dead-%02d", i), fmt.Sprintf("{now-%d}", 19000000-i*100000)
		dead = append(dead, entry(limit, away, token), score)
		silent = append(silent, entry(limit, there, token), score)
	}
	return []part{
		has("70 dead processes wait", set(60000, dead...)),
		has("70 silent processes wait", set(60000, append([]string{"!", "{mark-5000000}"}, silent...)...)),
	}
}

func releases() (all []vector) {
	next := entry("", there, third)
	calls := []part{
		says("released", me), says("released with my entry", me, entry("", there, me)),
		says("released with the next entry", me, "", next, "0", soon),
	}
	late := []part{says("released with the next entry, late", me, "", next, "0", past)}
	keeps := []part{
		says("kept for 5 s", me, "", "", "0", soon, "5000"), says("kept late", me, "", "", "0", past, "5000"),
		says("kept late, and TIME is known", me, "", "", "0", "-{now-3000000}", "5000"),
		says("kept too late, and TIME is known", me, "", "", "0", "-{now-9000000}", "5000"),
	}
	all = product(abc, lock, pick(locks, "mine"), waiting, queues, calls)
	all = append(all, product(abc, lock, pick(locks, "mine"), waiting, queues[:2], late)...)
	all = append(all, product(abc, lock, pick(locks, "free", "held", "kept by me", "of another type"), waiting,
		pick(queues, "I wait second"), calls)...)
	all = append(all, product(abc, lock, pick(locks, "mine", "kept by me"), waiting, queues[:2], keeps)...)
	all = append(all, product(abc, lock, pick(locks, "mine"), waiting, crowds("")[:1], calls[:1])...)
	handed := product(abc, lock, pick(locks, "mine"), register, registers, calls[:1])
	for i := range handed {
		handed[i].Before[waiting] = *queues[1].v
	}
	return append(all, handed...)
}

func extends() (all []vector) {
	calls := []part{says("renewed", me, "60000"), says("renewed for less", me, "1000")}
	none := []part{hasNone("no register")}
	all = product([]string{lock}, lock, locks, register, none, calls)
	adopted := product([]string{lock, register}, lock, locks[:3], register, append(none, registers...), calls[:1])
	for i := range adopted {
		adopted[i].Name = strings.Replace(adopted[i].Name, "renewed", "adopted", 1)
	}
	return append(all, adopted...)
}

func inspects() (all []vector) {
	all = product([]string{lock, waiting}, lock, locks[:5], waiting, queues[:4], []part{says("inspected")})
	all = append(all, product([]string{lock, waiting}, lock, locks[1:2], waiting, queues[8:],
		[]part{says("inspected")})...)
	return append(all, product([]string{lock}, lock, locks, waiting, queues[:1],
		[]part{says("inspected without a queue")})...)
}
