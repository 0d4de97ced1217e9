package protocol_test

var (
	sets = []part{
		hasNone("nobody holds"), has("I hold", set(30001, me, "{now+30000000}")),
		has("another holds", set(30001, other, "{now+30000000}")),
		has("two hold", set(60001, other, "{now+30000000}", me, "{now+60000000}")),
		has("one has ended", set(30001, third, "{now-5000000}", other, "{now+30000000}")),
		has("a permit is kept", set(30001, "~"+other, "{mark+30000000}")),
		has("my permit is kept", set(30001, "~"+me, "{mark+30000000}")),
		has("a writer holds", set(30001, "!"+other, "{now+30000000}")), has("no semaphore", set(-1, other, "7")),
		has("a string", text("x", -1)),
	}
	lines = []part{
		hasNone("nobody waits"), has("somebody waits", set(60000, entry(":1", there, third), "{now-5000000}")),
		has("somebody waits with a larger limit", set(60000, entry(":3", there, third), "{now-5000000}")),
		has("a dead process waits", set(60000, entry(":3", away, third), "{now-5000000}")),
		has("the time of the first has passed", set(60000, "!"+entry(":1", there, third), "{mark-1000000}",
			entry(":1", there, third), "{now-5000000}")),
	}
	semaphore = []string{lock, register, permits}
)

func semaphoreAcquires() (all []vector) {
	calls := []part{
		says("acquired, limit 1", me, "10000", "1", soon), says("acquired, limit 2", me, "10000", "2", soon),
		says("acquired with an entry, limit 1", me, "10000", "1", soon, entry(":1", there, me), "0"),
		says("looked again, limit 2", me, "10000", "2", soon, entry(":2", there, me), "0", "again"),
		says("acquired late, limit 2", me, "10000", "2", past), says("written", "!"+me, "10000", "2147483647", soon),
		says("granted beside another", me, "10000", "2147483647", soon, "", other),
	}
	all = product(semaphore, lock, sets, permits, lines[:1], calls)
	calls = calls[:4]
	all = append(all, product(semaphore, lock, sets[:1], permits, crowds(":1"), calls)...)
	return append(all, product(semaphore, lock,
		pick(sets, "nobody holds", "another holds"), permits, lines[1:], calls)...)
}

func semaphoreReleases() (all []vector) {
	calls := []part{
		says("released", me), says("released with my entry", me, entry(":1", there, me)),
		says("released with the next entry", me, "", entry(":2", there, me), "0", soon),
	}
	keeps := []part{says("kept for 5 s", me, "", "", "0", soon, "5000"), says("kept late", me, "", "", "0", past, "5000")}
	all = product(semaphore, lock, pick(sets, "I hold", "two hold"), permits, lines, calls)
	all = append(all, product(semaphore, lock,
		pick(sets, "nobody holds", "another holds"), permits, lines[1:2], calls)...)
	return append(all, product(semaphore, lock, sets, permits, lines[:1], keeps)...)
}

func semaphoreCalls(calls ...part) []vector {
	return product(semaphore[:1], lock, sets, permits, lines[:1], calls)
}

func semaphoreInspects() []vector {
	return product([]string{lock, permits}, lock, sets, permits, lines[:2], []part{says("inspected")})
}

var (
	counters = []part{
		hasNone("no counter"), has("the counter is behind", text("{vote-250000000}", 3600000)),
		has("the counter is ahead", text("{vote+250000000}", 3600000)),
		has("the counter holds something else", text("x", -1)),
	}
	marks = []part{hasNone("nobody wants it"), has("I want it", text("1", 400)), has("another wants it", text("2", 400))}
)

func quorumAcquires() (all []vector) {
	keys := []string{lock, counter, wanted}
	calls := []part{says("acquired", me, "60000", soon, "1"), says("acquired late", me, "60000", past, "1")}
	all = product(keys, lock, locks, counter, counters[:1], calls)
	all = append(all, product(keys, lock, locks[:1], counter, counters[1:], calls[:1])...)
	return append(all, product(keys, lock, pick(locks, "held"), wanted, marks[1:], calls[:1])...)
}

func quorumReleases() (all []vector) {
	calls := []part{
		says("released", me, "1"), says("kept for 5 s", me, "1", soon, "5000"), says("kept late", me, "1", past, "5000"),
	}
	all = product([]string{lock, wanted}, lock, locks, wanted, marks[:1], calls)
	return append(all, product([]string{lock, wanted}, lock, pick(locks, "mine"), wanted, marks[1:], calls[:1])...)
}

func quorumExtends() (all []vector) {
	calls := []part{
		says("renewed", me, "60000", "{vote}"), says("adopted", me, "60000", "mint"),
		says("restored", me, "60000", "{vote}", "60000", soon), says("restored late", me, "60000", "{vote}", "60000", past),
	}
	all = product([]string{lock, counter}, lock, locks[:3], counter, counters[:2], calls)
	return append(all, product([]string{lock, counter}, lock,
		pick(locks, "mine"), counter, counters[2:], calls[:2])...)
}

// legacy returns the vectors of a script of LegacySetNX.
func legacy(calls ...part) (all []vector) {
	keys := []string{lock, owner, stamp}
	for _, till := range []part{
		hasNone("free"), has("held", text("{s+30}", -1)), has("its time has passed", text("{s-5}", -1)),
		has("no time", text("x", -1)),
	} {
		for _, by := range []part{
			hasNone("by another library"), has("by me", text(me, 32000)),
			has("by another", text(other, 32000)),
		} {
			all = append(all, product(keys, lock, []part{till}, owner, []part{by}, calls)...)
		}
	}
	for i := range all {
		if token, ok := all[i].Before[owner]; ok && all[i].Before[lock].String != nil {
			all[i].Before[stamp] = text(*all[i].Before[lock].String, token.PTTL)
		}
	}
	return all
}
