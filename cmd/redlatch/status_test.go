//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestStatusShowsHolders: it shows them as columns and as JSON, without the token.
func TestStatusShowsHolders(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
		require.NoError(t, s.client.Set(ctx, "foreign", "somebody", 0).Err())
		waiter := redlatchRun(t, s.url, append(patient, "-owner", "second"), "exit 0")
		s.awaitWaiters(t, 1)

		p := start(t, redlatchCmd(t, s.url, "status", "k", "none", "foreign"))
		require.Regexp(t, `^k\theld\tother\t(1h0m0s|59m[\d.]+s)\t1\t\S+$`, p.line())
		require.Regexp(t, `^\twaits\tsecond\t[0-9.]+m?s$`, p.line())
		require.Equal(t, "none\tfree\t-\t-\t0\t-", p.line())
		require.Equal(t, "foreign\theld\t-\tnever\t0\t-", p.line())
		require.Zero(t, p.code())
		require.Empty(t, p.errors())

		p = start(t, redlatchCmd(t, s.url, "status", "-json", "k", "none"))
		line := p.line()
		require.NotContains(t, line, string(lock.Token()))
		require.NotContains(t, line, string(lock.Token())[len("other/"):])
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		require.Greater(t, got["ttl_ns"], float64(59*time.Minute))
		since, err := time.Parse(time.RFC3339Nano, got["since"].(string))
		require.NoError(t, err)
		require.WithinRange(t, since, time.Now().Add(-longest), time.Now())
		require.Equal(t, "second", got["queue"].([]any)[0].(map[string]any)["owner"])
		require.Positive(t, got["queue"].([]any)[0].(map[string]any)["waited_ns"])
		for _, field := range []string{"ttl_ns", "since", "queue"} {
			delete(got, field)
		}
		require.Equal(t, map[string]any{"key": "k", "held": true, "kept": false, "owner": "other", "waiters": 1.0, "holders": 1.0}, got)
		require.JSONEq(t, `{"key":"none","held":false,"kept":false,"owner":"","ttl_ns":0,"waiters":0,"queue":[],"holders":0}`, p.line())
		require.Zero(t, p.code())

		require.NoError(t, lock.Unlock(ctx))
		require.Zero(t, waiter.code())
	})
}

// TestStatusGoesOnAfterAKeyOfAnotherType: it shows the other keys. It stops at the first key if
// Redis is unavailable.
func TestStatusGoesOnAfterAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	require.NoError(t, s.client.RPush(t.Context(), "list", "x").Err())
	p := start(t, redlatchCmd(t, s.url, "status", "list", "k"))
	require.Equal(t, "k\tfree\t-\t-\t0\t-", p.line())
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), `inspect "list"`)

	p = start(t, redlatchCmd(t, nowhere, "status", "a", "b"))
	require.Equal(t, exitUnavailable, p.code())
	require.Equal(t, 1, strings.Count(p.errors(), "\n"))
}

// TestKeyThatIsNotTextCanBeGivenBack: a shell reads the form in which a key is shown, whatever its
// bytes are, and JSON has them too. So such a lock can be found, and released.
func TestKeyThatIsNotTextCanBeGivenBack(t *testing.T) {
	redistest.MustHave(t, "bash")
	t.Parallel()
	s := onRedis(t) // miniredis panics at a pattern that is not UTF-8
	for key, shown := range map[string]string{
		"orders:\xff\xfe1": `$'orders:\xff\xfe1'`, "it's\n\\x": `$'it\'s\x0a\\x'`, "zero\u200bwidth": `$'zero\xe2\x80\x8bwidth'`,
		"möwe": "möwe", "\ufffd": "\ufffd",
	} {
		lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), key)
		lines, _ := s.listed(t)
		require.Len(t, lines, 2)
		require.Regexp(t, "^"+regexp.QuoteMeta(shown)+" +lock ", lines[1])
		lines, _ = s.listed(t, "-match", key[:1]+"*"+key[len(key)-1:])
		require.Len(t, lines, 2)
		bash := func(command string) *program {
			cmd := redlatchCmd(t, s.url)
			cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-c", cmd.Path + " " + command}
			return start(t, cmd)
		}
		require.True(t, strings.HasPrefix(bash("status "+shown).line(), shown+"\theld\t"))

		lines, _ = s.listed(t, "-json")
		var got record
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
		if utf8.ValidString(key) {
			require.Equal(t, key, got.Key)
			require.Empty(t, got.KeyBase64)
		} else {
			require.Equal(t, key, string(got.KeyBase64))
		}
		require.Zero(t, bash("unlock -f "+shown).code())
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	}
}

// TestPrefixIsThatOfTheLibrary: -prefix and WithKeyPrefix lead to the same key, for all commands.
func TestPrefixIsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	locktest.MustLock(t, s.locker(t, locktest.LongTTL, redlatch.WithKeyPrefix("app:")), "k")
	p := start(t, redlatchCmd(t, s.url, "status", "-prefix", "app:", "k"))
	require.Contains(t, p.line(), "k\theld\tother\t")
	require.Equal(t, exitBusy, redlatchRun(t, s.url, []string{"-try", "-prefix=app:"}, "exit 0").code())
	require.Zero(t, start(t, redlatchCmd(t, s.url, "unlock", "-f", "-prefix", "app:", "k")).code())
	require.Zero(t, redlatchRun(t, s.url, []string{"-try", "-prefix=app:"}, "exit 0").code())
}

// TestStatusDoesNotCommandTheTerminal: whoever can write to Redis can put escape sequences into the
// name of an owner.
func TestStatusDoesNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	showLine(&b, "a\tb", redlatch.Status{
		Held: true, Token: "secret", Owner: "x\x1b[2J\n", Waiters: 2, Queue: []redlatch.Waiter{{Owner: "\x1b", Waited: time.Minute}, {}},
	})
	require.Equal(t, `$'a\x09b'`+"\theld\t"+`$'x\x1b[2J\x0a'`+"\t0s\t2\t-\n\twaits\t"+`$'\x1b'`+"\t1m0s\n\twaits\t-\t0s\n", b.String())
}

// TestStatusShowsAMinHold: nobody holds the key, and the time left is that of the min hold.
func TestStatusShowsAMinHold(t *testing.T) {
	t.Parallel()
	var line, object bytes.Buffer
	kept := redlatch.Status{Kept: true, TTL: 8 * time.Second, Waiters: 2}
	showLine(&line, "k", kept)
	require.Equal(t, "k\tkept\t-\t8s\t2\t-\n", line.String())
	require.NoError(t, json.NewEncoder(&object).Encode(recordOf("k", kept)))
	require.JSONEq(t, `{"key":"k","held":false,"kept":true,"owner":"","ttl_ns":8000000000,"waiters":2,"queue":[],"holders":0}`, object.String())
}

// TestPatternIsRefused: a key that is free and looks like a pattern is most likely one. A key with
// such a name that is held is not.
func TestPatternIsRefused(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	for _, args := range [][]string{{"status", "imp*"}, {"unlock", "-f", "imp*"}} {
		p := start(t, redlatchCmd(t, s.url, args...))
		require.Equal(t, exitUsage, p.code(), p.errors())
		require.Contains(t, p.errors(), "use redlatch list -match")
	}
	locktest.MustLock(t, s.locker(t, locktest.LongTTL), "imp*")
	require.Contains(t, start(t, redlatchCmd(t, s.url, "status", "imp*")).line(), "imp*\theld\tother\t")
	require.Zero(t, start(t, redlatchCmd(t, s.url, "unlock", "-f", "imp*")).code())
}
