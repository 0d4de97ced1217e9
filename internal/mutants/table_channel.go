package main

// channels are mistakes about messages that do not come: no channel, a silent subscription, PUBLISH that is refused.
var channels = []mutant{
	{
		name: "lines without a channel never queue", rule: "28", file: "entry.go",
		old:   `if w.waitedLocked() < patience {`,
		new:   `if true {`,
		tests: "TestProcessWithoutAChannel",
	},
	{
		name: "a turn is published to a process that polls", rule: "28", file: "announce.lua",
		old:   `if polls == '' then`,
		new:   `if true then`,
		tests: "TestReleaseHandsOnToAProcessThatPolls",
	},
	{
		name: "a process that polls is skipped", rule: "28", file: "announce.lua",
		old:   `(listeners > 0 or cluster or polls ~= '')`,
		new:   `(listeners > 0 or cluster)`,
		tests: "TestReleaseHandsOnToAProcessThatPolls",
	},
	{
		name: "a silent subscription is kept", rule: "30", file: "turn.go",
		old:   `if a.entry == "" || a.announced || w.handed != nil || a.made.Polls {`,
		new:   `if true {`,
		tests: "TestSilentSubscription",
	},
	{
		name: "a line that gets no messages does not poll", rule: "28", file: "entry.go",
		old: `case state.Polls:
		w.watch.Poll()
`,
		new: `case state.Polls:
`,
		tests: "TestBackoffRunsUnderNoMutex",
	},
	{
		name: "PUBLISH counts as refused for ever", rule: "28", file: "internal/handoff/subscription.go",
		old:   `return time.Now().Before(s.mute)`,
		new:   `return !s.mute.IsZero()`,
		tests: "TestPublishIsTriedAgain",
	},
	{
		name: "a line loses its place when PUBLISH is tried again", rule: "28", file: "entry.go",
		old:   `return a.made.Deaf && !now.Deaf`,
		new:   `return !now.Deaf`,
		tests: "TestRefusedPublishCostsNoPlace",
	},
	{
		name: "a line relies on messages that cannot come any more", rule: "28", file: "entry.go",
		old: `return now.Polls
`,
		new: `return false
`,
		tests: "TestRefusedPublishCostsNoPlace",
	},
	{
		name: "a line polls for ever once SUBSCRIBE was refused", rule: "28", file: "entry.go",
		old:   `return a.made.Deaf && !now.Deaf`,
		new:   `return false`,
		tests: "TestRefusedPublishCostsNoPlace",
	},
	{
		name: "a message that has arrived counts as missing", rule: "30", file: "turn.go",
		old:   `a.announced || w.handed != nil || a.made.Polls`,
		new:   `a.announced || a.made.Polls`,
		tests: "TestMessageThatCameIsNotMissed",
	},
	{
		name: "a message that arrives soon counts as missing", rule: "30", file: "turn.go",
		old: `		l.missing = ""
`,
		new:   ``,
		tests: "TestMessageThatCameIsNotMissed",
	},
}
