//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// listed returns what list prints: the lines of the table, and stderr.
func (s *server) listed(t *testing.T, args ...string) (lines []string, summary string) {
	t.Helper()
	return s.listedWith(t, 0, args...)
}

// listedWith is listed with another exit status.
func (s *server) listedWith(t *testing.T, code int, args ...string) (lines []string, summary string) {
	t.Helper()
	p := start(t, redlatchCmd(t, s.url, append([]string{"list"}, args...)...))
	for line := range p.lines {
		lines = append(lines, line)
	}
	require.Equal(t, code, p.code(), p.errors())
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

// TestListShowsLocksOfThoseWhoPoll: the UUIDs in their tokens have another version. It shows a semaphore
// whose only permit is kept, too.
func TestListShowsLocksOfThoseWhoPoll(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		locktest.MustLock(t, s.locker(t, locktest.LongTTL, redlatch.WithoutQueue()), "polled")
		kept := locktest.MustLock(t, locktest.Semaphore(t, s.client, 2), "kept", redlatch.WithMinHold(time.Hour))
		require.NoError(t, kept.Unlock(t.Context()))
		lines, _ := s.listed(t)
		require.Contains(t, strings.Join(lines, "\n"), "polled")
		require.Contains(t, strings.Join(lines, "\n"), "kept")
	})
}

// TestListShowsWhatIsHeld: locks of each kind, with their owners and waiters, and no keys of other
// programs.
func TestListShowsWhatIsHeld(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
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
			`^mail +shared +mailer and 1 more +\S+ +` + left + ` +0 +-$`,
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
		lines, _ = s.listed(t, "-match", "mail", "-long")
		require.Len(t, lines, 4)
		for _, line := range lines[2:] {
			require.Regexp(t, `^ +holds +mailer +\S+ +`+left+`$`, line)
		}
		lines, _ = s.listed(t, "-prefix", "im")
		require.Regexp(t, `^port +lock `, lines[1])
		lines, _ = s.listed(t, "-json", "-match", "mail")
		var got record
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
		require.Equal(t, []any{"mail", "shared", "mailer", 2, 1, 1}, []any{got.Key, got.Kind, got.Owner, got.Holders, got.Votes, got.Servers})
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
	scan := &scanner{pattern: "*", tell: func(int, int) {}}
	found, failed := scan.all(ctx, s.client)
	require.Empty(t, failed)
	require.Equal(t, map[string]*kind{"k": plainKind}, found)
	require.GreaterOrEqual(t, scan.read, names)
	require.Less(t, largest, 1_000_000)
}

// TestListAsksForManyKeysAtOnce: it is fast, since it sends two commands for a page of up to 1,000
// keys, and further ones only for what may be a lock.
func TestListAsksForManyKeysAtOnce(t *testing.T) {
	t.Parallel()
	s, ctx := onRedis(t), t.Context()
	const others, locks = 20_000, 50
	require.NoError(t, s.client.Eval(ctx, `for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'foreign:' .. i, 'value ' .. i) end return 1`, nil, others).Err())
	l := s.locker(t, locktest.LongTTL)
	for i := range locks {
		locktest.MustLock(t, l, fmt.Sprint("lock:", i))
	}
	require.NoError(t, s.client.ConfigResetStat(ctx).Err())
	lines, summary := s.listed(t)
	require.Len(t, lines, 1+locks)
	require.Contains(t, summary, "50 locks, 0 waiters; 20,051 keys read in ")
	const pages = others/mostOfPage + 20 // they are smaller at first, and SCAN may return fewer keys than asked for
	require.LessOrEqual(t, s.calls(t, "scan"), pages)
	require.LessOrEqual(t, s.calls(t, "eval")+s.calls(t, "evalsha"), pages+2*locks+2, "some of the first ones find no script")
}

// calls returns how many commands of a name clients have sent since the statistics were reset.
func (s *server) calls(t *testing.T, name string) (n int) {
	t.Helper()
	_, text, sent := strings.Cut(s.client.Info(t.Context(), "commandstats").Val(), "cmdstat_"+name+":calls=")
	if sent {
		_, err := fmt.Sscan(strings.SplitN(text, ",", 2)[0], &n)
		require.NoError(t, err)
	}
	return n
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
	lines, report := s.listedWith(t, exitUnavailable)
	require.Regexp(t, `^k +lock +api-7 .* 1 of 2$`, lines[1])
	require.Contains(t, report, "redlatch: list: server 2: ")
	p := start(t, redlatchCmd(t, nowhere, "list"))
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), "connection refused")
}

// TestListNamesEachDeadServer: by the number of its URL. It shows what the others have, and its
// status says that something is missing.
func TestListNamesEachDeadServer(t *testing.T) {
	t.Parallel()
	alive := onMiniredis(t)
	locktest.MustLock(t, alive.locker(t, locktest.LongTTL), "k")
	s := &server{url: "redis://127.0.0.1:1 " + alive.url + " redis://127.0.0.1:2"}
	lines, report := s.listedWith(t, exitUnavailable)
	require.Regexp(t, `^k +lock +other .* 1 of 3$`, lines[1])
	require.Contains(t, report, "1 lock, 0 waiters; ")
	require.Contains(t, report, "redlatch: list: server 1: dial tcp 127.0.0.1:1: ")
	require.Contains(t, report, "redlatch: list: server 3: dial tcp 127.0.0.1:2: ")
	require.NotContains(t, report, "server 2")

	s.url = nowhere + " " + nowhere
	lines, report = s.listedWith(t, exitUnavailable)
	require.Empty(t, lines)
	require.Equal(t, 2, strings.Count(report, "\n"), report)
}

// TestListOfAClusterShowsWhatTheLivingMastersHave: each master is a server of its own. A dead one
// is named, and costs only its own keys.
func TestListOfAClusterShowsWhatTheLivingMastersHave(t *testing.T) {
	t.Parallel()
	masters := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	s := &server{url: "redis+cluster://" + masters[0].Addr() + "," + masters[1].Addr()}
	cluster := locktest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{masters[0].Addr()}}))
	l := locktest.SetNXPX(t, cluster, locktest.LongTTL)
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprintf("k%02d", i))
		locktest.MustLock(t, l, all[i])
	}
	keys := func(lines []string) (keys []string) {
		for _, line := range lines[1:] {
			keys = append(keys, strings.Fields(line)[0])
		}
		return keys
	}
	lines, _ := s.listed(t)
	require.Equal(t, all, keys(lines))
	living := slices.DeleteFunc(slices.Clone(all), func(key string) bool {
		master, err := cluster.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		return master.Options().Addr == masters[2].Addr()
	})
	require.NotEqual(t, all, living)
	masters[2].Kill()
	lines, report := s.listedWith(t, exitUnavailable)
	require.Equal(t, living, keys(lines))
	require.Equal(t, 1, strings.Count(report, "redlatch: list: "), report)
	require.Contains(t, report, masters[2].Addr())
}

// TestListExplainsAnswers: with the hints that status has.
func TestListExplainsAnswers(t *testing.T) {
	t.Parallel()
	r := redistest.StartTCP(t)
	r.User(t, "+ping")
	for url, hint := range map[string]string{
		"redis://locks:secret@" + r.Addr(): "SECURITY.md has the rights",
		"redis://locks:wrong@" + r.Addr():  "the user or the password in the URL is wrong",
	} {
		for _, command := range [][]string{{"list"}, {"watch"}, {"status", "k"}} {
			p := start(t, redlatchCmd(t, url, command...))
			require.Equal(t, exitUnavailable, p.code(), p.errors())
			require.Contains(t, p.errors(), hint, command)
		}
	}
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

// TestLongestWaitComesFirst: then the others by their names.
func TestLongestWaitComesFirst(t *testing.T) {
	t.Parallel()
	held := func(key string, waits ...time.Duration) listed {
		l := listed{key: key, kind: plainKind}
		for _, waited := range waits {
			l.Queue = append(l.Queue, redlatch.Waiter{Waited: waited})
		}
		return l
	}
	all := []listed{held("b"), held("d", time.Minute), held("a"), held("e", time.Minute), held("c", time.Hour, time.Second)}
	slices.SortFunc(all, byWait)
	var keys string
	for _, l := range all {
		keys += l.key
	}
	require.Equal(t, "cdeab", keys)
}

// TestListShowsWhoWaits: -waiting shows only keys with waiters. With -long, the columns are the same
// behind the row of a waiter.
func TestListShowsWhoWaits(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	l := s.locker(t, locktest.LongTTL)
	for _, key := range []string{"a", "b", "c", "permits"} {
		locktest.MustLock(t, l, key)
	}
	mail := locktest.Semaphore(t, s.client, 3, locktest.LongTTL, redlatch.WithOwner("the mailer of"))
	locktest.MustLock(t, mail, "mail")
	locktest.MustLock(t, mail, "mail")
	for _, key := range []string{"b", "c"} {
		locktest.WaitInLine(t, s.locker(t), key)
	}
	first := func(lines []string) (keys string) {
		for _, line := range lines[1:] {
			keys += strings.Fields(line)[0] + " "
		}
		return keys
	}
	lines, _ := s.listed(t)
	require.Regexp(t, "^(b c|c b) a mail permits $", first(lines), "each is looked at in a moment of its own")
	lines, summary := s.listed(t, "-waiting")
	require.Regexp(t, "^(b c|c b) $", first(lines))
	require.Contains(t, summary, "2 locks, 2 waiters; ")
	lines, _ = s.listed(t, "-long")
	require.Regexp(t, "^(b waits c waits|c waits b waits) a mail holds holds permits $", first(lines))
	for _, column := range []string{"KIND", "OWNER", "SINCE", "LEFT", "WAITERS"} {
		at := strings.Index(lines[0], column)
		for _, line := range lines[1:] {
			if len(line) > at {
				require.Regexp(t, `  $`, line[:at], "%s begins in one column:\n%s", column, strings.Join(lines, "\n"))
				require.True(t, line[at] != ' ' || strings.Contains(line, "waits"), line)
			}
		}
	}
	lines, _ = s.listed(t, "-waiting", "-json")
	require.Len(t, lines, 2)
}

// TestTableFitsTheScreen: it shows the beginning and the end of long keys, and says how many rows
// are left out.
func TestTableFitsTheScreen(t *testing.T) {
	t.Parallel()
	whole := table{{"KEY", "OWNER"}, {strings.Repeat("k", 20) + "/" + strings.Repeat("ö", 20), "api-7:1"}, {"", "waits"}, {"b", "x"}, {"c", "x"}}
	for _, c := range []struct {
		columns, rows int
		want          string
	}{
		{0, 0, "KEY                                        OWNER\n" + strings.Repeat("k", 20) + "/" + strings.Repeat("ö", 20) +
			"  api-7:1\n                                           waits\nb                                          x\n" +
			"c                                          x\n"},
		{25, 4, "KEY              OWNER\nkkkkkkk…ööööööö  api-7:1\n                 waits\nand 2 more\n"},
		{25, 5, "KEY              OWNER\nkkkkkkk…ööööööö  api-7:1\n                 waits\nb                x\nc                x\n"},
		{4, 3, "KEY        OWNER\nkkkk…öööö  api-7:1\nand 3 more\n"},
	} {
		var out bytes.Buffer
		whole.writeTo(&out, c.columns, c.rows)
		require.Equal(t, c.want, out.String())
	}
	var out bytes.Buffer
	table(nil).writeTo(&out, 80, 24)
	require.Empty(t, out.String())
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

// TestDocumentsShowTheTable: the tables in the documents have its columns, and its kinds.
func TestDocumentsShowTheTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	(&listFlags{}).table([]listed{{key: "k", kind: plainKind}}, 1).writeTo(&out, 0, 0)
	columns := strings.Fields(strings.Split(out.String(), "\n")[0])
	for _, document := range []string{"doc.go", "../../README.md", "../../docs/operations.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		header := regexp.MustCompile(`(?m)^(?://\t)?(KEY .*)$`).FindStringSubmatch(string(text))
		require.NotNil(t, header, document)
		require.Equal(t, columns, strings.Fields(header[1]), document)
		kinds := []string{plainKind.name, sharedKind.name, legacyKind.name, "writer"}
		for _, row := range regexp.MustCompile(`(?m)^(?://\t)?(?:import|mail|report) +(\w+)`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, kinds, row[1], document)
		}
	}
}
