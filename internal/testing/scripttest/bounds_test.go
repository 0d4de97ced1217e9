package scripttest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// What a script may do at most. To grant a permit takes eight commands.
const (
	mostCommands = most*4 + 40
	mostElements = most * 9 // that commands return or remove; inspect returns 100 holders and 100 waiters with numbers
)

// counting is a script that counts the commands that another one runs, and the elements that they
// return or remove.
func counting(t *testing.T, file string) *redis.Script {
	return redis.NewScript(`
local commands, elements, server = 0, 0, redis
local function counted(call)
  return function(name, ...)
    local reply = call(name, ...)
    commands = commands + 1
    if type(reply) == 'table' then
      elements = elements + #reply
    elseif type(reply) == 'number' and string.find(name, '^ZREM') then
      elements = elements + reply
    end
    return reply
  end
end
local redis = {call = counted(server.call), pcall = counted(server.pcall), error_reply = server.error_reply}
local function script()
` + source(t, file, nil) + `
end
local reply = script()
return {commands, elements, reply or false}
`)
}

// members returns a script that makes a sorted set of ARGV[1] members. now is TIME in µs, and i their number.
func members(score, member string) string {
	return fmt.Sprintf(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], string.format('%%.0f', %s), %s) end
`, score, member)
}

const laterBy = "now + 3600000000 + i"

// TestNoScriptGrows: it runs as many commands with 10,000 holders, kept permits, permits that have
// expired, waiters or dead waiters as with few, or as many as are allowed.
func TestNoScriptGrows(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	listener := client.Subscribe(t.Context(), "there")
	defer listener.Close()
	_, err := listener.Receive(t.Context())
	require.NoError(t, err)

	permits := map[string]string{
		"none":             "",
		"holders":          members(laterBy, "'h' .. i"),
		"kept":             members(laterBy+" - 9e15", "'~k' .. i"),
		"kept and holders": members(laterBy+" - (i > 1 and 9e15 or 0)", "i > 1 and '~k' .. i or 'h1'"),
		"expired":          members("now - i - 1", "'e' .. i"),
		"expired keeps":    members("now - i - 1 - 9e15", "'~e' .. i"),
		"a writer is left": members("i > 1 and now - i or "+laterBy, "i > 1 and 'e' .. i or '!w'"),
	}
	queues := map[string]string{
		"none":            "",
		"dead":            members("i", "'1000:20000 gone t' .. i"),
		"readers":         members("i", "'1000:20000 there t' .. i"),
		"writers":         members("i", "'1000:1 there !t' .. i"),
		"no entry":        members("i", "'x' .. i"),
		"a writer leaves": members("i", "i > 1 and '1000:20000 there t' .. i or '1000:20000 there !w'"),
	}
	semaphore := []string{
		"semaphore_inspect.lua k queue :", "semaphore_extend.lua k : h1 10000", "semaphore_extend.lua k fence : h1 10000",
		"semaphore_release.lua k fence queue : h1", "semaphore_release.lua k fence queue : !w",
		"semaphore_release.lua k fence queue : ~k2", "semaphore_release.lua k fence queue : nobody",
		"semaphore_release.lua k fence queue : h1 '' 1000:1+there+n 0 9e15",
		"semaphore_release.lua k fence queue : h1 '' '' 0 9e15 1000",
		"semaphore_release.lua k fence queue : !w 1000:20000+there+!w",
	}
	for _, token := range []string{"h1", "new", "!new"} {
		for _, limit := range []string{"1", "20000"} {
			acquire := "semaphore_acquire.lua k fence queue : " + token + " 10000 " + limit + " 9e15"
			entry := "1000:" + limit + "+there+" + token
			semaphore = append(semaphore, acquire, acquire+" "+entry+" 0", acquire+" "+entry+" 0 again", acquire+" '' h1")
		}
	}
	lock := []string{
		"inspect.lua k queue :", "extend.lua k : a 10000", "release.lua k fence queue : a", "release.lua k fence queue : b",
		"release.lua k fence queue : a '' 1000+there+n 0 9e15", "release.lua k fence queue : a '' '' 0 9e15 1000",
		"acquire.lua k fence queue : b 10000 9e15", "acquire.lua k fence queue : b 10000 9e15 1000+there+b 0",
		"acquire.lua k fence queue : b 10000 9e15 1000+there+b 0 again",
	}
	dumps := make(map[string]string)
	dump := func(script string, n int) string {
		name := fmt.Sprint(n, script)
		if dumps[name] == "" && script != "" {
			require.ErrorIs(t, client.Eval(t.Context(), script, []string{"made"}, n).Err(), redis.Nil)
			dumps[name] = client.Dump(t.Context(), "made").Val()
			client.Del(t.Context(), "made")
		}
		return dumps[name]
	}
	made := make(map[string]*redis.Script)
	run := func(step, k, queue string) (commands, elements int64) {
		require.NoError(t, client.Del(t.Context(), "k", "queue", "fence").Err())
		for key, is := range map[string]string{"k": k, "queue": queue} {
			switch {
			case is == "a":
				client.Set(t.Context(), key, is, 0)
			case is != "":
				require.NoError(t, client.RestoreReplace(t.Context(), key, 0, is).Err())
			}
		}
		w := parsed(step)
		if made[w.words[0]] == nil {
			made[w.words[0]] = counting(t, w.words[0])
		}
		got, err := made[w.words[0]].Run(t.Context(), client, w.words[1:1+w.keys], asAny(w.words[1+w.keys:])...).Slice()
		require.NoError(t, err, step)
		return got[0].(int64), got[1].(int64)
	}
	compare := func(where, step string, state func(n int) (k, queue string)) {
		k, queue := state(10)
		few, small := run(step, k, queue)
		k, queue = state(10_000)
		many, large := run(step, k, queue)
		t.Logf("%s: %s: %d and %d commands, %d and %d elements", where, step, few, many, small, large)
		require.LessOrEqual(t, many, max(few, mostCommands), "commands: %s: %s", where, step)
		require.LessOrEqual(t, large, max(small, mostElements), "elements: %s: %s", where, step)
	}
	for waiters, queue := range queues {
		for _, step := range lock {
			for _, holder := range []string{"a", ""} {
				compare(fmt.Sprintf("holder %q, waiters: %s", holder, waiters), step, func(n int) (string, string) {
					return holder, dump(queue, n)
				})
			}
		}
		for held, k := range permits {
			for _, step := range semaphore {
				compare(fmt.Sprintf("permits: %s, waiters: %s", held, waiters), step, func(n int) (string, string) {
					return dump(k, n), dump(queue, n)
				})
			}
		}
	}
}
