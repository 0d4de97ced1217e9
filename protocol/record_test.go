package protocol_test

import (
	"strconv"
	"strings"
)

// recorded returns a vector with what a server has replied, and placeholders for times.
func (got played) recorded(script string, v vector) vector {
	v.After = state{}
	for key, r := range got.after {
		left := r.pttl
		if left > 0 {
			left = got.left(left)
		}
		to := value{PTTL: left}
		for _, z := range r.set {
			to.ZSet = append(to.ZSet, [2]string{z.Member.(string), got.namedScore(z.Score)})
		}
		if r.set == nil {
			text := r.text
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				if name := got.named(n, strings.HasPrefix(script, "quorum")); name != "" {
					text = name
				}
			}
			to.String = &text
		}
		v.After[key] = to
	}
	for _, m := range got.messages {
		words := strings.SplitN(m[1], " ", 4)
		tick, _ := strconv.ParseInt(words[2], 10, 64)
		v.Messages = append(v.Messages, [2]string{m[0], "{s} {us} " + got.named(tick, false) + " " + words[3]})
	}
	v.Reply = got.replyOf(script, got.reply, 0)
	return v
}

func (got played) left(ms int64) int64 { return roundest(ms, ms+(got.to-got.from)/1000+1) }

// ages is where the second field of a reply of inspect is, which has the ages of entries.
const ages = -1

// replyOf returns a reply with placeholders. depth is how deep in another one it is, or ages.
func (got played) replyOf(script string, reply any, depth int) any {
	switch reply := reply.(type) {
	case error:
		_, text, _ := strings.Cut(reply.Error(), " ")
		if strings.Contains(reply.Error(), "WRONGTYPE") {
			text = "WRONGTYPE"
		}
		return map[string]string{"error": text}
	case []any:
		all := make([]any, len(reply))
		for i, part := range reply {
			in := depth + 1
			if depth == ages || depth == 0 && i == 1 && strings.HasSuffix(script, "inspect.lua") {
				in = ages
			}
			all[i] = got.replyOf(script, part, in)
			if i > 0 && all[i-1] == "{s}" {
				all[i] = "{us}"
			}
		}
		return all
	case int64:
		votes := strings.HasPrefix(script, "quorum")
		name := got.named(reply, votes)
		switch {
		case name != "":
			return name
		case reply < 0 && got.named(-reply, votes) != "":
			return "-" + got.named(-reply, votes)
		case reply < 200:
			return reply
		case depth == ages:
			return shown("age", roundest(reply-(got.to-got.from), reply))
		case strings.HasPrefix(script, "legacy"):
			return shown("until", (reply+got.to/1000)/1000-got.from/1_000_000-1)
		}
		return shown("left", got.left(reply))
	}
	return reply
}
