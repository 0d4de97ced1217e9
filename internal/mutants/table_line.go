package main

// turns are mistakes about the line of the callers of one process, and about the turns that serve it.
var turns = []mutant{
	{
		name: "a turn serves those who came later", rule: "18", file: "internal/line/line.go",
		old:   `p == nil || p.number > t.last || `,
		new:   `p == nil || `,
		tests: "TestWhoeverComesLaterWaitsForTheNextTurn",
	},
	{
		name: "a turn serves a caller again who comes back", rule: "18", file: "internal/line/line.go",
		old: `p.in, p.number, p.before, p.after = true, l.arrivals, l.tail, nil`,
		new: `if p.number == 0 {
		p.number = l.arrivals
	}
	p.in, p.before, p.after = true, l.tail, nil`,
		tests: "TestServedCallerWaitsForTheNextTurn",
	},
	{
		name: "a turn serves without a limit", rule: "18", file: "internal/line/line.go",
		old: `t.left--
`,
		new:   ``,
		tests: "TestTurnServesAtMostItsPassesAndOne",
	},
	{
		name: "a turn serves the newest caller first", rule: "18", file: "internal/line/line.go",
		old: `p := l.head
`,
		new: `p := l.tail
`,
		tests: "TestLineAgreesWithItsModelInEveryShortSequence",
	},
	{
		name: "the last of a line leaves and takes its end along", rule: "18", file: "internal/line/line.go",
		old:   `l.tail = p.before`,
		new:   `l.tail = nil`,
		tests: "TestLineAgreesWithItsModelInRandomSequences",
	},
	{
		name: "a caller that was served leaves the line again", rule: "17", file: "internal/line/line.go",
		old:   `if !p.in {`,
		new:   `if p.number == 0 {`,
		tests: "TestWhoeverWasServedCannotLeave",
	},
	{
		name: "a place that was served keeps the next one in memory", rule: "17", file: "internal/line/line.go",
		old:   `p.in, p.before, p.after = false, nil, nil`,
		new:   `p.in = false`,
		tests: "TestPlaceThatWasServedHoldsNoOther",
	},
	{
		name: "a loop ends at a place that it removes", rule: "18", file: "internal/line/line.go",
		old: `after := p.after
			if !yield(p) {
				return
			}
			p = after`,
		new: `if !yield(p) {
				return
			}
			p = p.after`,
		tests: "TestLoopMayRemoveWhatItIsGiven",
	},
}
