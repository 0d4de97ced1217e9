//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// watching starts watch, and waits until it sees.
func (s *server) watching(t *testing.T, args ...string) *program {
	t.Helper()
	p := start(t, redlatchCmd(t, s.url, append([]string{"watch"}, args...)...))
	locktest.Eventually(t, "it sees", func() bool { return strings.Contains(p.errors(), "watching hand-overs: ") })
	return p
}

// handOver hands key from one owner to the other.
func (s *server) handOver(t *testing.T, key, from, to string) {
	t.Helper()
	lock := locktest.MustLock(t, s.locker(t, redlatch.WithOwner(from)), key)
	next := locktest.WaitInLine(t, s.locker(t, redlatch.WithOwner(to)), key)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, (<-next).Unlock(t.Context()))
}

// TestWatchPrintsHandOvers: also those of semaphores. The old owner is known if its hand-over was
// seen.
func TestWatchPrintsHandOvers(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		all, some := s.watching(t), s.watching(t, "-match", "imp*t", "-prefix", "p:")
		s.handOver(t, "import", "a", "b")
		require.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}\timport\t-\tb\t\d+\t\S+m?s$`, all.line())
		s.handOver(t, "import", "c", "d")
		require.Contains(t, all.line(), "\timport\tb\td\t", "c took a free key")
		s.handOver(t, "p:export", "a", "b")
		s.handOver(t, "p:import", "a", "b")
		require.Contains(t, all.line(), "\tp:export\t")
		require.Contains(t, all.line(), "\tp:import\t")
		require.Contains(t, some.line(), "\timport\t-\tb\t")

		mail := locktest.Semaphore(t, s.client, 1)
		lock := locktest.MustLock(t, mail, "mail")
		next := locktest.WaitInLine(t, locktest.Semaphore(t, s.client, 1, redlatch.WithOwner("mailer")), "mail")
		require.NoError(t, lock.Unlock(t.Context()))
		fence := (<-next).Fence()
		require.Contains(t, all.line(), fmt.Sprintf("\tmail\t-\tmailer\t%d\t", fence))
	})
}

// TestWatchSeesOneDatabase: pub/sub has none, but applications that share a server by databases may
// have keys of one name. The queue hands locks and permits on in each of them.
func TestWatchSeesOneDatabase(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		third := &server{url: s.url + "/3", client: locktest.Closing(t, redis.NewClient(&redis.Options{Network: s.network, Addr: s.addr, DB: 3}))}
		if s.network == "unix" {
			third.url = s.url + "?db=3"
		}
		zero, three := s.watching(t), third.watching(t)
		third.handOver(t, "import", "a", "of three")
		mail := locktest.Semaphore(t, third.client, 2)
		lock := locktest.MustLock(t, mail, "mail")
		locktest.MustLock(t, mail, "mail")
		next := locktest.WaitInLine(t, locktest.Semaphore(t, third.client, 2, redlatch.WithOwner("mailer")), "mail")
		require.NoError(t, lock.Unlock(t.Context()))
		<-next
		s.handOver(t, "import", "a", "of zero")
		require.Contains(t, three.line(), "\timport\t-\tof three\t")
		require.Contains(t, three.line(), "\tmail\t-\tmailer\t")
		require.Contains(t, zero.line(), "\timport\t-\tof zero\t", "it has not seen the others")
	})
}

// TestWatchGoesOnAfterAnOutage: it says that it has missed some. Without a server at the start, its
// status is 69.
func TestWatchGoesOnAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	proxy := faultproxy.New(t, s.network, s.addr)
	p := (&server{url: "redis://" + proxy.Addr()}).watching(t)
	proxy.Refuse()
	locktest.Eventually(t, "it is reported", func() bool { return strings.Contains(p.errors(), "continuing despite an error") })
	proxy.Heal()
	locktest.Eventually(t, "it is connected", func() bool { return strings.Contains(p.errors(), "connected again") })
	s.handOver(t, "k", "a", "b")
	require.Contains(t, p.line(), "\tk\t-\tb\t")

	p = start(t, redlatchCmd(t, nowhere, "watch"))
	require.Equal(t, exitUnavailable, p.code())
	p = start(t, redlatchCmd(t, nowhere+" "+nowhere, "watch"))
	require.Equal(t, exitUsage, p.code())
}

// TestWatchNeedsOnlyItsRights: those of SECURITY.md, and none on a key.
func TestWatchNeedsOnlyItsRights(t *testing.T) {
	t.Parallel()
	r := redistest.StartTCP(t)
	s := newServer(t, "redis://locks:secret@"+r.Addr(), "tcp", r.Addr())
	r.User(t, rightsOf(t, "watch")...)
	p := s.watching(t)
	s.handOver(t, "k", "a", "b")
	require.Contains(t, p.line(), "\tk\t-\tb\t")
}

// TestWatchIgnoresOtherMessages: whoever may publish can send anything.
func TestWatchIgnoresOtherMessages(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := &watcher{out: &b, match: globbed("*"), owners: make(map[string]string)}
	entry := "2000 redlatch:c x\x1b/" + uuid.Must(uuid.NewV7()).String()
	for _, message := range []string{
		"", "a b c d e", "1 2 3 4", "1 2 3 -1 x", "1 2 3 99 " + entry, "1 2 3 5 " + entry, "1 2 3 15 2000 redlatch:c x",
		fmt.Sprintf("99999999999999999999 2 3 %d %s", len(entry), entry),
	} {
		require.NoError(t, w.print(message))
	}
	require.Empty(t, b.String())
	require.NoError(t, w.print(fmt.Sprintf("1 2 3 %d %sa\nb", len(entry), entry)))
	require.Contains(t, b.String(), "\t$'a\\x0ab'\t-\t$'x\\x1b'\t192\t0s\n")
}

// TestGlobIsThatOfRedis: a pattern of watch selects the keys that it selects for list.
func TestGlobIsThatOfRedis(t *testing.T) {
	t.Parallel()
	for pattern, keys := range map[string][2]string{
		"*": {"a\nb", ""}, "imp*": {"import", "simp"}, "a?c": {"abc", "ac"}, "a[bc]d": {"abd", "aed"}, "a[^b]c": {"adc", "abc"},
		"a[0-9]": {"a7", "ab"}, `a\*`: {"a*", "ab"}, "a.c": {"a.c", "abc"}, "[": {"[", "a"}, "a[z-a]": {"a[z-a]", "az"},
		"\xff*": {"\xff1", "\xfe1"}, "m??we": {"möwe", "mowe"}, "[\xfe-\xff]": {"\xff", "a"},
	} {
		require.True(t, globbed(pattern)(keys[0]), pattern)
		require.False(t, keys[1] != "" && globbed(pattern)(keys[1]), pattern)
	}
}
