//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestStatusShowsHolders: it shows them as columns and as JSON, without the token.
func TestStatusShowsHolders(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
		require.NoError(t, s.client.Set(ctx, "foreign", "somebody", 0).Err())
		waiter := redlatchRun(t, s.url, patient, "exit 0")
		s.awaitWaiters(t, 1)

		p := start(t, redlatchCmd(t, s.url, "status", "k", "none", "foreign"))
		require.Regexp(t, `^k\theld\tother\t(1h0m0s|59m[\d.]+s)\t1$`, p.line())
		require.Equal(t, "none\tfree\t-\t-\t0", p.line())
		require.Equal(t, "foreign\theld\t-\tnever\t0", p.line())
		require.Zero(t, p.code())
		require.Empty(t, p.errors())

		p = start(t, redlatchCmd(t, s.url, "status", "-json", "k", "none"))
		line := p.line()
		require.NotContains(t, line, lock.Token())
		require.NotContains(t, line, lock.Token()[len("other/"):])
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		require.Greater(t, got["ttl_ns"], float64(59*time.Minute))
		delete(got, "ttl_ns")
		require.Equal(t, map[string]any{"key": "k", "held": true, "owner": "other", "waiters": 1.0, "holders": 1.0}, got)
		require.JSONEq(t, `{"key":"none","held":false,"owner":"","ttl_ns":0,"waiters":0,"holders":0}`, p.line())
		require.Zero(t, p.code())

		require.NoError(t, lock.Unlock(ctx))
		require.Zero(t, waiter.code())
	})
}

// TestStatusGoesOnAfterAKeyOfAnotherType: it shows the other keys. It stops at the first key if Redis is unavailable.
func TestStatusGoesOnAfterAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	require.NoError(t, s.client.RPush(t.Context(), "list", "x").Err())
	p := start(t, redlatchCmd(t, s.url, "status", "list", "k"))
	require.Equal(t, "k\tfree\t-\t-\t0", p.line())
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), `inspect "list"`)

	p = start(t, redlatchCmd(t, nowhere, "status", "a", "b"))
	require.Equal(t, exitUnavailable, p.code())
	require.Equal(t, 1, strings.Count(p.errors(), "\n"))
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

// TestStatusDoesNotCommandTheTerminal: whoever can write to Redis can put escape sequences into the name of an owner.
func TestStatusDoesNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	showLine(&b, "a\tb", redlatch.Status{Held: true, Owner: "x\x1b[2J\n"}, 0)
	require.Equal(t, `"a\tb"`+"\theld\t"+`"x\x1b[2J\n"`+"\t0s\t0\n", b.String())
}

// TestArgumentsThatCannotWork: the status is 64, and no password is printed.
func TestArgumentsThatCannotWork(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, c := range []struct {
		env  string
		args []string
	}{
		{"", nil},
		{"", []string{"frobnicate"}},
		{"", []string{"redis://:" + secret + "@host"}},
		{"", []string{"run", "k", "--", "true"}},
		{nowhere, []string{"run"}},
		{nowhere, []string{"run", "k"}},
		{nowhere, []string{"run", "k", "--"}},
		{nowhere, []string{"run", "k", "true", "--"}},
		{nowhere, []string{"run", "-try", "-timeout", "1s", "k", "--", "true"}},
		{nowhere, []string{"run", "-timeout", "-1s", "k", "--", "true"}},
		{nowhere, []string{"run", "-timeout", "0", "k", "--", "true"}},
		{nowhere, []string{"run", "-timeout", "soon", "k", "--", "true"}},
		{nowhere, []string{"run", "-ttl", "0", "k", "--", "true"}},
		{nowhere, []string{"run", "-ttl", "-1s", "k", "--", "true"}},
		{nowhere, []string{"run", "-grace", "4s", "k", "--", "true"}},
		{nowhere, []string{"run", "-min-hold", "-1s", "k", "--", "true"}},
		{nowhere, []string{"run", "-owner", "", "k", "--", "true"}},
		{nowhere, []string{"run", "", "--", "true"}},
		{nowhere, []string{"run", "-frobnicate", "k", "--", "true"}},
		{nowhere, []string{"run", "-limit", "0", "k", "--", "true"}},
		{nowhere, []string{"status", "-limit", "several", "k"}},
		{nowhere + " " + nowhere, []string{"run", "-limit", "2", "k", "--", "true"}},
		{nowhere, []string{"status"}},
		{nowhere, []string{"unlock", "-f"}},
		{nowhere, []string{"unlock", "k", "-f"}},
		{nowhere, []string{"unlock", "k"}},
		{"http://:" + secret + "@host", []string{"status", "k"}},
		{"redis://:" + secret + "@host:port", []string{"status", "k"}},
		{"redis://:" + secret + "/x@host:1", []string{"status", "k"}},
		{"redis://user:1/" + secret + "@host", []string{"status", "k"}},
		{"redis://:%zz" + secret + "@host", []string{"status", "k"}},
		{"redis://:" + secret + "@host/db", []string{"status", "k"}},
		{"redis://:" + secret + "@host?db=" + secret, []string{"status", "k"}},
		{nowhere, []string{"status", "-redis", "redis://:" + secret + "@host:port", "k"}},
		{nowhere, []string{"status", "---redis=redis://:" + secret + "@host", "k"}},
		{nowhere, []string{"status", "-json=redis://:" + secret + "@host", "k"}},
	} {
		p := start(t, redlatchCmd(t, c.env, c.args...))
		require.Equal(t, exitUsage, p.code(), "%q %q", c.env, c.args)
		require.NotEmpty(t, p.errors())
		require.NotContains(t, p.errors(), secret)
		p.gone()
	}
}

// TestPasswordIsNotPrinted: not even if Redis refuses the password, or if there is no server.
func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	s := onRedis(t)
	require.NoError(t, s.client.ConfigSet(t.Context(), "requirepass", "another").Err())
	for _, url := range []string{
		"unix://:" + secret + "@" + s.addr, "unix://root:" + secret + "@" + s.addr,
		"redis://:" + secret + "@127.0.0.1:1", "rediss://u:" + secret + "@127.0.0.1:1",
	} {
		p := start(t, redlatchCmd(t, url, "status", "k"))
		require.Equal(t, exitUnavailable, p.code())
		require.NotEmpty(t, p.errors())
		require.NotContains(t, p.errors(), secret)
	}
	require.Zero(t, start(t, redlatchCmd(t, "unix://:another@"+s.addr, "status", "k")).code())
}

// TestFlagsWinOverTheEnvironment: -redis is used, and REDIS_URL is not.
func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Parallel()
	require.Zero(t, start(t, redlatchCmd(t, nowhere, "status", "-redis", onMiniredis(t).url, "k")).code())
}

// TestUsageIsOnStderr: the manual in doc.go has the same flags.
func TestUsageIsOnStderr(t *testing.T) {
	t.Parallel()
	flags := regexp.MustCompile(`(?m)^  (-[a-z-]+)`)
	manual, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for name, usage := range map[string]string{"run": runUsage, "status": statusUsage, "unlock": unlockUsage} {
		for _, args := range [][]string{{name, "-h"}, {"help", name}} {
			p := start(t, redlatchCmd(t, "", args...))
			require.Zero(t, p.code())
			require.Equal(t, usage, p.errors())
			p.gone()
		}
		for _, found := range flags.FindAllStringSubmatch(usage, -1) {
			require.Contains(t, string(manual), found[1])
		}
	}
	for _, args := range [][]string{{"-h"}, {"help"}} {
		p := start(t, redlatchCmd(t, "", args...))
		require.Zero(t, p.code())
		require.Equal(t, usage, p.errors())
	}
}
