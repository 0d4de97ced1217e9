package scripttest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
)

// choices are random.
type choices struct {
	*rand.Rand
	start int64  // TIME when the sequence begins, in µs
	usual string // the limit of most calls

	tokens []string // to choose from
}

func (f family) choose(seed uint64) choices {
	c := choices{Rand: rand.New(rand.NewPCG(seed, 0)), start: 1_780_000_000_000_000, tokens: f.tokens}
	if c.IntN(6) == 0 {
		c.start = epoch*1_000_000 - 1000 // a clock that is wrong
	}
	c.usual = []string{"1", "2", "3", "3"}[c.IntN(4)]
	return c
}

// A step in words: a command, or a script with its keys, a colon, and its arguments. {a|b} is a or
// b, and {a|2*b} more often b. A name in capitals stands for what is defined here, TOKEN for any
// token, ME for one token in the whole step, and USUAL for the usual limit. A plus is a space in a
// word, and ” an empty word. The words with "holder", "last" and "micros:", and others like it,
// depend on the model: see step.at.
var definitions = map[string]string{
	"OWNER":  "{2*holder|TOKEN}",
	"TTL":    "{20|500|3000|70000}",
	"LATEST": "micros:{2*1000000|0|-1}",
	"KEEPS":  "{2*LATEST|0|micros:-15500|2*-{3*LATEST|micros:-15500|micros:-9000000}} TTL", // until when it begins, and how long it lasts
	"WAITED": "{2*0|1000|70000000|4000000000000000}",
	"LIMIT":  "{3*USUAL|1|2|0}",

	"LISTENER": "{20|2*500}{2*:USUAL|:1|:2|}+{2*there|2*-away|away}", // one of a semaphore has a limit
	"ENTRY":    "LISTENER+TOKEN",
	"NEXT":     "LISTENER+{TOKEN|2*last}",
	"QUEUES":   "{|LISTENER+ME WAITED|LISTENER+ME WAITED again}", // what an acquire queues
	"OWN":      "{''|ENTRY}",
	"PERMITS":  "{2*HANDSON|OWN {''|NEXT} WAITED KEEPS}",
	"HANDSON":  "{|OWN|2*OWN {''|NEXT} WAITED KEEPS|2*OWN NEXT WAITED LATEST}", // what a release does with the queue

	"INSPECT":   "inspect.lua k {|queue} :",
	"LOCKDATA":  "{retype k|set k {somebody|a|~a}|4*del k}",
	"QUEUEDATA": "{set queue x|2*zadd queue 7 {no+entry|~|0:2+there+last|4000000000001+-away+last}|3*zadd queue -7 !no+entry|5*zadd queue {9|micros:3000} {2*NEXT|500:USUAL+there+last}|4*CROWD|2*del queue}",
	"MARKDATA":  "{2*zadd queue mark:{2*-1000|-299000|-301000|2*-5000000} !|zadd queue micros:{-6000000|-1000}/.5 NEXT|2*zadd queue micros:900000000 NEXT|2*CROWD}",
	"CROWD":     "crowd queue 8 {3*no+entry|500:200+away+x|3*500:200+there+x}",
	"REGISTERDATA": `{retype fence|set fence {2*x|9223372036854775807}|set fence {140737488355326|140737488355327|9007199254740993}|
		2*set fence ticks:{2*-2502|-2501|0|5}|3*del fence}`,
	"PERMITDATA": `{set k a|retype k|zadd k micros:0 {a|!d}|zadd k micros:5000 somebody|zadd k kept:{5000|-5} {~b|~!d}|
		crowd k {micros:-5|kept:-5|kept:900000} ~x|2*del k}`,
	"COUNTERDATA": `{2*retype counter|2*set counter x|set counter {140737488355327|140737488355326}|set counter vote:{0|-1|1}|
		2*del {2*counter|wanted}}`,
	"LEGACYDATA": `{retype {k|owner|stamp}|set {k|stamp} {x|-1|x|9999999999999999999999999999999999999999999999999999999999999999999999}|set k {seconds:3/.75|9000000000000000000}|
		2*set {k|stamp} seconds:{-1|0|3}|set owner {a|b}|2*del {2*k|owner|stamp}}`,
	"FENCE":   "vote:{-9|0|1|2|5000000}",
	"LEASE":   "{2*1|2|60}",
	"TRIPLET": "k owner stamp : OWNER",
}

// A family is a strategy whose scripts run on the same keys. The texts are steps.
type family struct {
	tokens  []string
	keys    []string
	acquire string
	others  string
	data    string // what other clients do
	faults  []fault
}

var (
	queueFaults = []fault{replica, replica, full, full, moving, moving, moving, moving, noPublish, noPublish, noPublish, noPublish, noPubSub, noIncr, noIncr, noIncr, noIncr, noZAdd}

	owners = []string{"a", "b", "c/x+y"}

	semaphoreOthers = `{3*semaphore_release.lua k fence queue : OWNER PERMITS|2*semaphore_extend.lua k {|2*fence} : OWNER TTL|
		semaphore_release.lua k fence queue : {2*holder '' 500:USUAL+there+last 0 LATEST|x head}|2*semaphore_inspect.lua k queue :}`

	families = map[string]family{
		"lock": {
			owners,
			[]string{"k", "fence", "queue"},
			"acquire.lua k fence queue : ME TTL LATEST QUEUES",
			"{3*release.lua k fence queue : OWNER HANDSON|release.lua k fence queue : x head|2*extend.lua k {|2*fence} : OWNER TTL|INSPECT}",
			"{2*QUEUEDATA|2*MARKDATA|REGISTERDATA|3*LOCKDATA}",
			queueFaults,
		},
		"semaphore": {
			owners,
			[]string{"k", "fence", "queue"},
			"semaphore_acquire.lua k fence queue : ME TTL LIMIT LATEST QUEUES",
			semaphoreOthers,
			"{2*QUEUEDATA|MARKDATA|REGISTERDATA|2*PERMITDATA}",
			queueFaults,
		},
		"read-write": { // a token with a mark is exclusive
			[]string{"a", "b", "!d", "!e"},
			[]string{"k", "fence", "queue"},
			"semaphore_acquire.lua k fence queue : ME TTL LIMIT LATEST {4*QUEUES|'' {2*holder|b}}",
			semaphoreOthers,
			"{2*QUEUEDATA|MARKDATA|REGISTERDATA|2*PERMITDATA}",
			queueFaults,
		},
		"quorum": {
			owners,
			[]string{"k", counterKey, "wanted"},
			"quorum_acquire.lua k counter wanted : TOKEN TTL LATEST {x|y}",
			`{quorum_release.lua k wanted : OWNER {x|y} {|KEEPS}|2*quorum_extend.lua k counter : OWNER TTL {mint|2*FENCE|FENCE TTL LATEST}|INSPECT}`,
			"{2*COUNTERDATA|LOCKDATA}",
			[]fault{replica, full, unreadable, moving},
		},
		"legacy": {
			owners,
			[]string{"k", "owner", "stamp"},
			"legacy_acquire.lua TRIPLET LEASE LATEST",
			"{legacy_release.lua TRIPLET|legacy_extend.lua TRIPLET LEASE|legacy_inspect.lua k owner stamp :}",
			"LEGACYDATA",
			[]fault{replica, full, moving},
		},
	}
)

// step returns a step that a text stands for.
func (c choices) step(text string) (s step) {
	var out strings.Builder
	c.fill(&out, text, c.tokens[c.IntN(len(c.tokens))])
	return parsed(out.String())
}

// parsed returns the step of a text without choices.
func parsed(text string) (s step) {
	s.words = strings.Fields(text)
	if colon := slices.Index(s.words, ":"); colon > 0 {
		s.keys, s.words = colon-1, slices.Delete(s.words, colon, colon+1)
	}
	for i, w := range s.words {
		s.words[i] = strings.ReplaceAll(strings.Trim(w, "'"), "+", " ")
	}
	return s
}

// fill writes a text with its choices made. me is what ME stands for.
func (c choices) fill(out *strings.Builder, text, me string) {
	for text != "" {
		end := 1
		switch first := rune(text[0]); {
		case first == '{':
			var ways []string
			start, depth := end, 1
			for ; depth > 0; end++ {
				switch text[end] {
				case '{':
					depth++
				case '}':
					depth--
				}
				if depth > 0 && (depth > 1 || text[end] != '|') {
					continue
				}
				way, weight := strings.TrimSpace(text[start:end]), 1
				if len(way) > 1 && way[1] == '*' {
					way, weight = way[2:], int(way[0]-'0')
				}
				ways = append(ways, slices.Repeat([]string{way}, weight)...)
				start = end + 1
			}
			c.fill(out, ways[c.IntN(len(ways))], me)
		case unicode.IsUpper(first):
			for end < len(text) && unicode.IsUpper(rune(text[end])) {
				end++
			}
			switch name := text[:end]; name {
			case "ME":
				out.WriteString(me)
			case "TOKEN":
				out.WriteString(c.tokens[c.IntN(len(c.tokens))])
			case "USUAL":
				out.WriteString(c.usual)
			default:
				c.fill(out, definitions[name], me)
			}
		default:
			out.WriteByte(text[0])
		}
		text = text[end:]
	}
}

// sometimes returns 0, or one of some numbers with a chance of 1 in n.
func (c choices) sometimes(n int, of ...int64) int64 {
	if c.IntN(n) > 0 {
		return 0
	}
	return of[c.IntN(len(of))]
}

// sequence returns n random steps.
func (f family) sequence(c choices, n int) []step {
	steps := make([]step, n)
	for i := range steps {
		text, faulty := f.acquire, i > 3 && c.IntN(5) == 0
		switch kind := c.IntN(16); {
		case i%10 < 4, kind >= 10: // so that locks are held, and others wait
		case kind < 3:
			text, faulty = f.data, false
		default:
			text, faulty = f.others, c.IntN(2) == 0
		}
		suffered := healthy
		if faulty {
			suffered = f.faults[c.IntN(len(f.faults))]
		}
		if suffered == moving { // no Locker has a limit of 0, with which there may be no permits to keep the key
			text = strings.ReplaceAll(text, "LIMIT", "USUAL")
		}
		s := c.step(text)
		s.fault = suffered
		if i > 0 && c.IntN(8) == 0 {
			s = steps[i-1] // it is sent again
		}
		s.after = cmp.Or(c.sometimes(7, 1, 19, 20, 480, 500, 1000), c.sometimes(17, 3000, 61_000, 90_000_000))
		s.jump = cmp.Or(c.sometimes(7, -2_000_000, 2_000_000, 3_000_000), c.sometimes(3, c.Int64N(1000), c.Int64N(40_000), -c.Int64N(3000)))
		steps[i] = s
	}
	return steps
}
