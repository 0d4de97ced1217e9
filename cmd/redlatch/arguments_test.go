//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestDurationWithoutAUnitIsExplained: the text says what is missing.
func TestDurationWithoutAUnitIsExplained(t *testing.T) {
	code, errs := dispatched(t, nowhere, "run", "-min-hold", "5", "k", "--", "true")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `redlatch: run: invalid value "5" for flag -min-hold: time: missing unit in duration "5"`)
}

// TestArgumentsThatCannotWork: the status is 64, and no password is printed.
func TestArgumentsThatCannotWork(t *testing.T) {
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
		{nowhere, []string{"run", "-ttl", "2ms", "k", "--", "true"}},
		{nowhere, []string{"run", "-grace", "4s", "k", "--", "true"}},
		{nowhere, []string{"run", "-min-hold", "-1s", "k", "--", "true"}},
		{nowhere, []string{"run", "-keep-after", "0", "k", "--", "true"}},
		{nowhere, []string{"run", "-keep-after", "-1s", "k", "--", "true"}},
		{nowhere, []string{"run", "-min-hold", "2h", "-max-hold", "1h", "k", "--", "true"}},
		{nowhere, []string{"run", "-max-hold", "0", "k", "--", "true"}},
		{nowhere, []string{"run", "-max-hold", "3s", "-grace", "2s", "k", "--", "true"}},
		{nowhere, []string{"run", "-owner", "~1", "k", "--", "true"}},
		{nowhere, []string{"run", "", "--", "true"}},
		{nowhere, []string{"run", "-frobnicate", "k", "--", "true"}},
		{nowhere, []string{"run", "-limit", "0", "k", "--", "true"}},
		{nowhere, []string{"run", "-limit", "several", "k", "--", "true"}},
		{nowhere, []string{"run", "-busy-status", "256", "k", "--", "true"}},
		{nowhere, []string{"run", "-busy-status", "-1", "k", "--", "true"}},
		{nowhere, []string{"run", "-busy-status", "ok", "k", "--", "true"}},
		{nowhere, []string{"run", "-read", "-write", "k", "--", "true"}},
		{nowhere, []string{"run", "-limit", "2", "-read", "k", "--", "true"}},
		{nowhere, []string{"status", "-limit", "2", "k"}},
		{nowhere + " " + nowhere, []string{"run", "-write", "k", "--", "true"}},
		{nowhere + " " + nowhere, []string{"run", "-limit", "2", "k", "--", "true"}},
		{nowhere, []string{"status"}},
		{nowhere, []string{"version", "k"}},
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
		{"redis+sentinel://:" + secret + "@host:1,host:2", []string{"status", "k"}},
		{"redis+sentinel://:" + secret + "@host/NAME", []string{"status", "k"}},
		{"redis+sentinel://:" + secret + "@host:1,host/NAME", []string{"status", "k"}},
		{"redis+sentinel://:" + secret + "@host:1/NAME/db", []string{"status", "k"}},
		{"redis+sentinel://:" + secret + "@host:1/NAME/0?db=%zz", []string{"status", "k"}},
		{"redis+cluster://:" + secret + "@host", []string{"status", "k"}},
		{"redis+cluster://:" + secret + "@host:1,host", []string{"status", "k"}},
		{"redis+cluster://:" + secret + "@host:1/1", []string{"status", "k"}},
		{"redis+cluster://:" + secret + "@host:1?db=%zz", []string{"status", "k"}},
		{"cluster://:" + secret + "@host:1", []string{"status", "k"}},
		{secret + "@host:6379", []string{"status", "k"}},
		{nowhere, []string{"status", "-redis", "redis://:" + secret + "@host:port", "k"}},
		{nowhere, []string{"status", "---redis=redis://:" + secret + "@host", "k"}},
		{nowhere, []string{"status", "-json=redis://:" + secret + "@host", "k"}},
	} {
		code, errs := dispatched(t, c.env, c.args...)
		require.Equal(t, exitUsage, code, "%q %q", c.env, c.args)
		require.NotEmpty(t, errs)
		require.NotContains(t, errs, secret)
		require.NotRegexp(t, `With[A-Z]`, errs, "flags have other names than options")
	}
}

// TestPasswordIsNotPrinted: not even if Redis refuses the password, or if there is no server.
func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	s := onRedis(t)
	require.NoError(t, s.client.ConfigSet(t.Context(), "requirepass", "another").Err())
	var runs []*program
	for _, url := range []string{
		"unix://:" + secret + "@" + s.addr, "unix://root:" + secret + "@" + s.addr,
		"redis://:" + secret + "@127.0.0.1:1", "rediss://u:" + secret + "@127.0.0.1:1",
	} {
		runs = append(runs, start(t, redlatchCmd(t, url, "status", "k")))
	}
	for _, p := range runs {
		require.Equal(t, exitUnavailable, p.code())
		require.NotEmpty(t, p.errors())
		require.NotContains(t, p.errors(), secret)
	}
	require.Zero(t, start(t, redlatchCmd(t, "unix://:another@"+s.addr, "status", "k")).code())
}

// TestFlagsWinOverTheEnvironment: -redis is used, and REDIS_URL is not.
func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	locktest.Eventually(t, "it is used", func() bool { return start(t, redlatchCmd(t, nowhere, "status", "-redis", s.url, "k")).code() == 0 })
}

// TestUsageIsOnStdout if it was asked for, so that it can be searched. The manual in doc.go has the
// same flags.
func TestUsageIsOnStdout(t *testing.T) {
	flags := regexp.MustCompile(`(?m)^  (-[a-z-]+)`)
	manual, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for name, usage := range map[string]string{"run": runUsage, "list": listUsage, "watch": watchUsage, "status": statusUsage, "unlock": unlockUsage, "version": versionUsage} {
		for _, args := range [][]string{{name, "-h"}, {"help", name}} {
			require.Equal(t, usage, printed(t, args...))
		}
		for _, found := range flags.FindAllStringSubmatch(usage, -1) {
			require.Contains(t, string(manual), found[1])
		}
	}
	for _, args := range [][]string{{"-h"}, {"help"}} {
		require.Equal(t, usage, printed(t, args...))
	}
}

// TestInvalidURLIsAnsweredByTheFormsThereAre: for example, if the scheme is missing.
func TestInvalidURLIsAnsweredByTheFormsThereAre(t *testing.T) {
	for _, url := range []string{"localhost:6379", "redis+cluster://localhost", "redis+sentinel://localhost:26379"} {
		code, errs := dispatched(t, nowhere+" "+url, "status", "k")
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "URL 2 of REDIS_URL is not valid")
		for _, form := range []string{"redis://HOST:PORT/DB", "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB", "redis+cluster://HOST:PORT,HOST:PORT"} {
			require.Contains(t, errs, form)
		}
	}
}

// TestUnencodedPasswordIsExplained: the text says what to encode, and has nothing of the password.
func TestUnencodedPasswordIsExplained(t *testing.T) {
	for _, url := range []string{
		"redis://:hun/ter2@host:1", "redis://user:12#hunter2@host:1", "redis+sentinel://:hun/ter2@host:1/main",
		"redis+cluster://user:1/hunter2@host:1", "redis://:%zzhunter2@host",
	} {
		code, errs := dispatched(t, nowhere+" "+url, "status", "k")
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "URL 2 of REDIS_URL is not valid: special characters in a password must be percent-encoded, such as %40 for @")
		require.NotContains(t, errs, "ter2")
	}
}

// TestSentinelsFindThePrimary: the user, the password and the database are those of the Redis
// servers. The Sentinels may have a password of their own.
func TestSentinelsFindThePrimary(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t)
	redistest.StartReplica(t, primary)
	var addrs []string
	for _, s := range redistest.StartSentinels(t, "main", primary) {
		addrs = append(addrs, s.Addr())
	}
	url := "redis+sentinel://" + strings.Join(addrs, ",") + "/main/2"
	cmd := redlatchCmd(t, url, "run", "-ttl", "1m", "k", "--", "sh", "-c", `echo "$REDLATCH_TOKEN"; read -r x; exit 3`)
	in := pipe(t, cmd)
	p := start(t, cmd)
	client := redis.NewClient(&redis.Options{Addr: primary.Addr(), DB: 2})
	defer client.Close()
	token := p.line()
	require.Equal(t, token, client.Get(t.Context(), "k").Val())
	require.Contains(t, start(t, redlatchCmd(t, url, "status", "k")).line(), "k\theld\t")
	require.NoError(t, in.Close())
	require.Equal(t, 3, p.code())

	for _, addr := range addrs {
		sentinel := redis.NewClient(&redis.Options{Addr: addr})
		defer sentinel.Close()
		if err := sentinel.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">s/ecret").Err(); err != nil {
			t.Skip("these Sentinels have no users: ", err)
		}
	}
	p = start(t, redlatchCmd(t, url, "status", "k"))
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), "NOAUTH")
	require.Contains(t, start(t, redlatchCmd(t, url+"?sentinel_password=s%2Fecret", "status", "k")).line(), "k\tfree\t")
}

// TestErrorsNameFlags: they do not name options of the library, which its hints advise.
func TestErrorsNameFlags(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	require.NoError(t, s.client.ZAdd(t.Context(), "k", redis.Z{Score: 1, Member: "x"}).Err())
	for _, args := range [][]string{{"status", "k"}, {"unlock", "-f", "k"}, {"run", "k", "--", "true"}} {
		p := start(t, redlatchCmd(t, s.url, args...))
		require.Equal(t, exitUnavailable, p.code())
		require.Contains(t, p.errors(), "a semaphore needs -limit")
		require.Contains(t, p.errors(), "-prefix")
		require.NotRegexp(t, `With[A-Z]`, p.errors())
	}
	p := start(t, redlatchCmd(t, s.url, "run", "-owner", "a\nb", "k", "--", "true"))
	require.Equal(t, exitUsage, p.code())
	require.Equal(t, `redlatch: new setnxpx: invalid argument: -owner "a\nb": '\n' cannot be printed`+"\n", p.errors())
}

// TestCluster: the commands lock, show and release keys of all nodes. A URL of one node is refused,
// and the error says which form is right.
func TestCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range redistest.StartCluster(t) {
		addrs = append(addrs, s.Addr())
	}
	url := "redis+cluster://" + strings.Join(addrs[:2], ",")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	for _, key := range []string{"a", "b", "c"} { // they are on different nodes
		cmd := redlatchCmd(t, url, "run", "-ttl", "1m", "-owner", "holder", key, "--", "sh", "-c", "echo ready; read -r x; exit 3")
		in := pipe(t, cmd)
		holder := start(t, cmd)
		holder.expect("ready")
		waiter := start(t, redlatchCmd(t, url, "run", "-owner", "next one", key, "--", "sh", "-c", "exit 4"))
		locktest.Eventually(t, "it queues", func() bool {
			return client.ZCard(t.Context(), "{"+key+"}:queue:"+key).Val() == 1
		})
		p := start(t, redlatchCmd(t, url, "status", key))
		require.Regexp(t, `^`+key+`\theld\tholder\t\S+\t1\t\S+$`, p.line())
		require.Regexp(t, `^\twaits\tnext one\t\S+$`, p.line())
		require.Zero(t, p.code())
		require.NoError(t, in.Close())
		require.Equal(t, 3, holder.code())
		require.Equal(t, 4, waiter.code())
		lock := locktest.MustLock(t, locktest.SetNXPX(t, client, locktest.LongTTL), key)
		require.Zero(t, start(t, redlatchCmd(t, url, "unlock", "-f", key)).code())
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	}
	for _, key := range []string{"a", "b", "c"} {
		locktest.MustLock(t, locktest.SetNXPX(t, client, locktest.LongTTL), key)
	}
	lines, summary := (&server{url: url}).listed(t)
	require.Len(t, lines, 4)
	require.Contains(t, summary, "3 locks, 0 waiters; ")
	var plain []*program
	for _, key := range []string{"a", "b", "c"} {
		plain = append(plain, start(t, redlatchCmd(t, "redis://"+addrs[0], "status", key)))
	}
	refused := 0
	for _, p := range plain {
		if code := p.code(); code != 0 {
			require.Equal(t, exitUnavailable, code)
			require.Contains(t, p.errors(), "redis+cluster URL")
			refused++
		}
	}
	require.Positive(t, refused)
}

// TestVersionIsPrinted: on stdout.
func TestVersionIsPrinted(t *testing.T) {
	t.Parallel()
	p := start(t, redlatchCmd(t, "", "version"))
	require.Regexp(t, `^redlatch \S+ go1\.\S+ \w+/\w+$`, p.line())
	require.Zero(t, p.code())
}

// TestVersionIsThatOfTheCode: a module below this one requires a release, and replaces it by this
// clone.
func TestVersionIsThatOfTheCode(t *testing.T) {
	t.Parallel()
	require.Equal(t, "v0.1.0", versionOf(debug.Module{Version: "v0.1.0"}))
	require.Equal(t, "(devel)", versionOf(debug.Module{Version: "v0.1.0", Replace: &debug.Module{Path: "../", Version: "(devel)"}}))
}
