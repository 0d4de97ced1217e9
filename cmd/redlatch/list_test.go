//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/race"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// listed returns what list prints: the lines of the table, and stderr.
func (s *server) listed(t *testing.T, args ...string) (lines []string, summary string) {
	t.Helper()
	p := start(t, redlatchCmd(t, s.url, append([]string{"list"}, args...)...))
	for line := range p.lines {
		lines = append(lines, line)
	}
	require.Zero(t, p.code(), p.errors())
	return lines, p.errors()
}

// foreign writes keys of other programs, which look like ours in part.
func foreign(t *testing.T, c *redis.Client) {
	t.Helper()
	ctx := t.Context()
	v7 := uuid.Must(uuid.NewV7()).String()
	for key, value := range map[string]any{
		"session": uuid.NewString(), "cache": "text", "counter": 1, "seen": time.Now().Unix(), "long": strings.Repeat("x", 300) + "/" + v7,
		"joined": "x" + v7, "half": v7[:20],
	} {
		require.NoError(t, c.Set(ctx, key, value, time.Hour).Err())
	}
	require.NoError(t, c.Set(ctx, "id", v7, 0).Err(), "without a TTL")
	require.NoError(t, c.HSet(ctx, "hash", "a", v7).Err())
	require.NoError(t, c.RPush(ctx, "list", v7).Err())
	require.NoError(t, c.SAdd(ctx, "set", v7).Err())
	require.NoError(t, c.ZAdd(ctx, "scores", redis.Z{Score: 7, Member: v7}).Err())
	require.NoError(t, c.ZAdd(ctx, "delayed", redis.Z{Score: float64(time.Now().UnixMicro()), Member: "job"}).Err())
}

// TestListShowsWhatIsHeld: locks of each kind, with their owners and waiters, and no keys of other
// programs.
func TestListShowsWhatIsHeld(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		foreign(t, s.client)
		lines, summary := s.listed(t)
		require.Empty(t, lines)
		require.Regexp(t, `^0 locks, 0 waiters; \d+ keys read in \S+\n$`, summary)

		l := s.locker(t, locktest.LongTTL)
		locktest.MustLock(t, l, "import")
		locktest.WaitInLine(t, s.locker(t, redlatch.WithOwner("next")), "import")
		require.NoError(t, locktest.MustLock(t, l, "{t}kept", redlatch.WithMinHold(time.Hour)).Unlock(ctx))
		mail := locktest.Semaphore(t, s.client, 2, locktest.LongTTL, redlatch.WithOwner("mailer"))
		locktest.MustLock(t, mail, "mail")
		locktest.MustLock(t, mail, "mail")
		locktest.MustLock(t, locktest.LegacySetNX(t, s.client, locktest.LongTTL, redlatch.WithOwner("old one")), "nightly")
		lines, summary = s.listed(t)
		const left = `(1h0m[0-2]s|59m5\ds)`
		for i, want := range []string{
			`^KEY +KIND +OWNER +SINCE +LEFT +WAITERS +LONGEST$`,
			`^import +lock +other +\S+ +` + left + ` +1 +\S+m?s$`,
			`^mail +semaphore +mailer and 1 more +\S+ +` + left + ` +0 +-$`,
			`^nightly +legacy +old one +\S+ +` + left + ` +0 +-$`,
			`^\{t\}kept +lock +\(kept\) +- +` + left + ` +0 +-$`,
		} {
			require.Greater(t, len(lines), i, lines)
			require.Regexp(t, want, lines[i])
		}
		require.Len(t, lines, 5)
		require.Regexp(t, `^4 locks, 1 waiter; `, summary)

		lines, _ = s.listed(t, "-match", "imp*", "-long")
		require.Len(t, lines, 3)
		require.Regexp(t, `^ +waits +next +\S+m?s$`, lines[2])
		lines, _ = s.listed(t, "-prefix", "im")
		require.Regexp(t, `^port +lock `, lines[1])
		lines, _ = s.listed(t, "-json", "-match", "mail")
		var got record
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
		require.Equal(t, []any{"mail", "semaphore", "mailer", 2, 1, 1}, []any{got.Key, got.Kind, got.Owner, got.Holders, got.Votes, got.Servers})
		require.WithinRange(t, got.Since, time.Now().Add(-longest), time.Now())
	})
}

// TestListReadsLittle: whatever the keys hold, no reply has more than a megabyte. Long names make
// small pages.
func TestListReadsLittle(t *testing.T) {
	t.Parallel()
	s, ctx := onRedis(t), t.Context()
	big := strings.Repeat("x", 5_000_000)
	require.NoError(t, s.client.Set(ctx, "text", big, 0).Err())
	require.NoError(t, s.client.ZAdd(ctx, "zset", redis.Z{Score: float64(time.Now().UnixMicro()), Member: big}).Err())
	require.NoError(t, s.client.RPush(ctx, "list", big).Err())
	locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k")
	sent := func() (n int64) {
		_, text, _ := strings.Cut(s.client.Info(ctx, "stats").Val(), "total_net_output_bytes:")
		_, err := fmt.Sscan(text, &n)
		require.NoError(t, err)
		return n
	}
	before := sent()
	lines, _ := s.listed(t)
	require.Len(t, lines, 2)
	require.Less(t, sent()-before, int64(100_000))

	const names, length = 5000, 2000
	pipe := s.client.Pipeline()
	for i := range names {
		pipe.Set(ctx, fmt.Sprintf("%0*d", length, i), "", 0)
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	largest := 0
	s.client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, cmd)
			if page, ok := cmd.(*redis.ScanCmd); ok {
				keys, _ := page.Val()
				largest = max(largest, len(strings.Join(keys, "")))
			}
			return err
		}
	}))
	scan := &scanner{pattern: "*", found: make(map[string]*kind), tell: func(int, int) {}}
	require.NoError(t, scan.all(ctx, s.client))
	require.Equal(t, map[string]*kind{"k": plainKind}, scan.found)
	require.GreaterOrEqual(t, scan.read, names)
	require.Less(t, largest, 1_000_000)
}

// TestListIsFast: it takes at most half as long again as redis-cli --scan, which only prints the
// names. On a busy machine each of them may take much longer now and then, so the fastest of some
// rounds count.
func TestListIsFast(t *testing.T) {
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("redis-cli is not installed: test skipped")
	}
	s, ctx := onRedis(t), t.Context()
	const others, locks = 100_000, 500
	require.NoError(t, s.client.Eval(ctx, `for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'foreign:' .. i, 'value ' .. i) end return 1`, nil, others).Err())
	l := s.locker(t, locktest.LongTTL)
	for i := range locks {
		locktest.MustLock(t, l, fmt.Sprint("lock:", i))
	}
	fastest := map[string]time.Duration{"redis-cli": time.Hour, "list": time.Hour}
	for round := 0; round < 3 || round < 20 && !race.Detector() && fastest["list"] >= fastest["redis-cli"]*3/2; round++ {
		for name, run := range map[string]func(){
			"redis-cli": func() { require.NoError(t, exec.Command("redis-cli", "-s", s.addr, "--scan").Run()) },
			"list": func() {
				lines, summary := s.listed(t)
				require.Len(t, lines, 1+locks)
				require.Contains(t, summary, "500 locks, 0 waiters; 100,501 keys read in ")
			},
		} {
			begin := time.Now()
			run()
			fastest[name] = min(fastest[name], time.Since(begin))
		}
	}
	t.Log(fastest)
	if !race.Detector() { // it makes list slow, and not redis-cli
		require.Less(t, fastest["list"], fastest["redis-cli"]*3/2)
	}
}

// TestListOfAQuorumCountsVotes: it shows what any server has. A dead server is reported.
func TestListOfAQuorumCountsVotes(t *testing.T) {
	t.Parallel()
	var urls []string
	var clients []*redis.Client
	for range 3 {
		s := onMiniredis(t)
		urls, clients = append(urls, s.url), append(clients, s.client)
	}
	locktest.MustLock(t, locktest.Redlock(t, clients, locktest.LongTTL, redlatch.WithOwner("api-7")), "k")
	locktest.Eventually(t, "on all nodes", func() bool {
		return clients[0].Exists(t.Context(), "k").Val()+clients[1].Exists(t.Context(), "k").Val()+clients[2].Exists(t.Context(), "k").Val() == 3
	})
	require.NoError(t, clients[2].Del(t.Context(), "k").Err())
	s := &server{url: strings.Join(urls, " ")}
	lines, _ := s.listed(t)
	require.Regexp(t, `VOTES$`, lines[0])
	require.Regexp(t, `^k +lock +api-7 .* 2 of 3$`, lines[1])

	s.url = urls[0] + " " + nowhere
	lines, report := s.listed(t)
	require.Regexp(t, `^k +lock +api-7 .* 1 of 2$`, lines[1])
	require.Contains(t, report, "redlatch: list: server ")
	p := start(t, redlatchCmd(t, nowhere, "list"))
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), "connection refused")
}

// TestListNeedsOnlyItsRights: those of SECURITY.md are enough, and the user can write nothing. Keys
// that it may not read are counted.
func TestListNeedsOnlyItsRights(t *testing.T) {
	t.Parallel()
	r := redistest.StartTCP(t)
	s := newServer(t, "redis://locks:secret@"+r.Addr(), "tcp", r.Addr())
	r.User(t, rightsOf(t, "list")...)
	prefix := redlatch.WithKeyPrefix("lock:")
	locktest.MustLock(t, s.locker(t, locktest.LongTTL, prefix), "k")
	locktest.WaitInLine(t, s.locker(t, prefix), "k")
	locktest.MustLock(t, locktest.Semaphore(t, s.client, 2, locktest.LongTTL, prefix), "permits")
	locktest.MustLock(t, locktest.LegacySetNX(t, s.client, locktest.LongTTL, prefix), "old")
	require.NoError(t, s.client.Set(t.Context(), "other", "x", 0).Err())
	lines, report := s.listed(t, "-prefix", "lock:")
	require.Len(t, lines, 4)
	require.NotContains(t, report, "could not be read")
	lines, report = s.listed(t)
	require.Len(t, lines, 4)
	require.Regexp(t, `redlatch: list: \d keys could not be read: .*(can't access|permissions)`, report)
	user := redis.NewClient(r.User(t, rightsOf(t, "list")...))
	defer user.Close()
	require.ErrorContains(t, user.Set(t.Context(), "lock:k", "x", 0).Err(), "NOPERM")
}

// rightsOf returns the rights of a command from SECURITY.md.
func rightsOf(t *testing.T, command string) []string {
	t.Helper()
	text, err := os.ReadFile("../../SECURITY.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER ` + command + ` on >secret (.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, line)
	return strings.Fields(line[1])
}

// TestListGoesOn: with -watch it prints the table each second.
func TestListGoesOn(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "import")
	p := start(t, redlatchCmd(t, s.url, "list", "-watch"))
	for range 2 {
		require.Contains(t, p.line(), "KEY ")
		require.Contains(t, p.line(), "import ")
	}
	require.NoError(t, lock.Unlock(t.Context()))
	locktest.Eventually(t, "it is not listed any more", func() bool { return strings.Contains(p.errors(), "0 locks, 0 waiters") })
}

// TestDocumentsShowTheTable: the tables in the documents have its columns.
func TestDocumentsShowTheTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	(&listFlags{}).print(&out, []listed{{key: "k", kind: plainKind}}, 1)
	columns := strings.Fields(strings.Split(out.String(), "\n")[0])
	for _, document := range []string{"doc.go", "../../README.md", "../../docs/oncall.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		header := regexp.MustCompile(`(?m)^(?://\t)?(KEY .*)$`).FindStringSubmatch(string(text))
		require.NotNil(t, header, document)
		require.Equal(t, columns, strings.Fields(header[1]), document)
	}
}
