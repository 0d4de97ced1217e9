package redlatchvalkey

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/valkey-io/valkey-go"
)

// exchange carries commands out, all of them on one connection of valkey. The error follows the
// replies.
func (c *conn) exchange(ctx context.Context, commands [][]string) (replies []byte, err error) {
	for _, words := range commands {
		if why := refusal(words); why != "" { // of a transaction, no part may be carried out
			for range commands {
				replies = appendError(replies, "ERR redlatch: a client of valkey-go carries no "+why)
			}
			return replies, nil
		}
	}
	if c.closed(ctx) {
		return nil, redis.ErrClosed // nothing was sent
	}
	answers := make([]string, len(commands))
	built := make([]valkey.Completed, 0, len(commands))
	for i, words := range commands {
		if answers[i] = c.answer(words); answers[i] == "" {
			built = append(built, build(c.server, words))
		}
	}
	results := do(ctx, c.server, built)
	for _, answer := range answers {
		if answer != "" {
			replies = append(replies, answer...)
			continue
		}
		message, err := results[0].ToMessage()
		results = results[1:]
		if answer, is := valkey.IsValkeyErr(err); is { // also one to the handshake of valkey-go
			replies = appendError(replies, answerText(answer))
			continue
		}
		if err != nil && !valkey.IsValkeyNil(err) {
			return replies, err
		}
		replies = appendMessage(replies, message)
	}
	return replies, nil
}

// do is DoMulti, and Do for a single command, which is cheaper.
func do(ctx context.Context, server valkey.Client, commands []valkey.Completed) []valkey.ValkeyResult {
	switch len(commands) {
	case 0:
		return nil
	case 1:
		return []valkey.ValkeyResult{server.Do(ctx, commands[0])}
	}
	return server.DoMulti(ctx, commands...)
}

// answer returns the reply to a command of the handshake of go-redis, which valkey-go has done on its own
// connections, and to ASKING where valkey-go follows the redirection itself. For any other command it is
// empty.
func (c *conn) answer(words []string) string {
	switch name(words) {
	case "hello": // go-redis takes an error to mean an old server
		return "-ERR unknown command 'HELLO'\r\n"
	case "select":
		return "+OK\r\n"
	case "asking":
		if c.whole {
			return "+OK\r\n"
		}
	}
	return ""
}

// build returns a command. Of a script it says which is the first key, so that valkey-go finds the server
// if it has to.
func build(server valkey.Client, words []string) valkey.Completed {
	keys := len(words) // the index of the first
	if strings.HasPrefix(name(words), "eval") && len(words) > 3 && words[2] != "0" {
		keys = 3
	}
	b := server.B().Arbitrary(words[:keys]...)
	if keys < len(words) {
		b = b.Keys(words[keys]).Args(words[keys+1:]...)
	}
	if waits[name(words)] {
		return b.Blocking()
	}
	return b.Build()
}

// waits has commands that may hold up those behind them. valkey-go sends them, and what comes with them, on
// a connection that nobody else uses meanwhile. So WAIT counts the replicas for the grant before it.
var waits = setOf(`wait waitaof blpop brpop brpoplpush blmove blmpop bzpopmin bzpopmax bzmpop xread xreadgroup`)

// refused has commands that change a connection.
var refused = setOf(`multi exec discard watch unwatch monitor auth reset quit sync psync
	psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe`)

func setOf(names string) map[string]bool {
	set := make(map[string]bool)
	for name := range strings.FieldsSeq(names) {
		set[name] = true
	}
	return set
}

// refusal returns what is refused about a command, or "".
func refusal(words []string) string {
	switch n := name(words); {
	case n == "":
		return "command without a name"
	case refused[n]:
		return strings.ToUpper(n)
	}
	return ""
}

func name(words []string) string { return strings.ToLower(words[0]) }

// parse returns the commands in data, and what is left of it. A command is an array of strings.
func parse(data []byte) (commands [][]string, rest []byte, err error) {
	text := string(data)
	for {
		words, after, err := parseOne(text)
		if err != nil {
			return nil, nil, err
		}
		if words == nil {
			return commands, data[len(data)-len(text):], nil
		}
		commands, text = append(commands, words), after
	}
}

// parseOne returns the first command in text, and what follows it; nil if it is not there as a whole.
func parseOne(text string) (words []string, after string, err error) {
	n, text, err := parseLength(text, "*")
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, text, err = parseLength(text, "$"); err != nil || size < 0 || len(text) < size+len(lineEnd) {
			return nil, "", err
		}
		words, text = append(words, text[:size]), text[size+len(lineEnd):]
	}
	return words, text, err
}

// parseLength returns the number in the first line of text; -1 if the line is not there as a whole.
func parseLength(text, kind string) (n int, after string, err error) {
	line, after, whole := strings.Cut(text, lineEnd)
	if !whole {
		return -1, "", nil
	}
	digits, is := strings.CutPrefix(line, kind)
	if n, err = strconv.Atoi(digits); !is || err != nil || n < 0 {
		return 0, "", fmt.Errorf("redlatch: go-redis wrote no command but %q", line)
	}
	return n, after, nil
}

const lineEnd = "\r\n"

// appendMessage adds what valkey-go has read, as Redis wrote it.
func appendMessage(b []byte, m valkey.ValkeyMessage) []byte {
	answer, isError := valkey.IsValkeyErr(m.Error())
	switch {
	case isError:
		return appendError(b, answerText(answer))
	case m.IsNil():
		return append(b, "$-1\r\n"...)
	case m.IsInt64():
		n, _ := m.ToInt64()
		return appendNumber(b, ':', n)
	case m.IsBool():
		if is, _ := m.ToBool(); is {
			return append(b, "#t\r\n"...)
		}
		return append(b, "#f\r\n"...)
	case m.IsArray():
		elements, _ := m.ToArray()
		b = appendNumber(b, '*', int64(len(elements)))
		for _, element := range elements {
			b = appendMessage(b, element)
		}
		return b
	case m.IsMap():
		elements, _ := m.ToMap()
		b = appendNumber(b, '%', int64(len(elements)))
		for key, element := range elements {
			b = appendMessage(appendString(b, key), element)
		}
		return b
	}
	text, _ := m.ToString()
	switch {
	case m.IsFloat64():
		return append(append(append(b, ','), text...), lineEnd...)
	case !m.IsString() && strings.Index(text, ":") == len("txt"): // which says how it is to be shown
		text = text[len("txt:"):]
	}
	return appendString(b, text)
}

func appendNumber(b []byte, kind byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, kind), n, 10), lineEnd...)
}

func appendString(b []byte, text string) []byte {
	return append(append(appendNumber(b, '$', int64(len(text))), text...), lineEnd...)
}

func appendError(b []byte, text string) []byte {
	return append(append(append(b, '-'), text...), lineEnd...)
}

// answerText returns the text of an answer as Redis wrote it, on one line. valkey-go removes the word ERR.
func answerText(answer error) string {
	text := strings.NewReplacer("\r", " ", "\n", " ").Replace(answer.Error())
	code, _, _ := strings.Cut(text, " ")
	if strings.HasPrefix(text, "@") || code != "" && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return text
	}
	return "ERR " + text
}
