//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestUnlockReleasesInThePlaceOfTheOwner: the run that held the lock ends, and a waiter gets the
// lock.
func TestUnlockReleasesInThePlaceOfTheOwner(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		owner := redlatchRun(t, s.url, []string{"-ttl", "6s", "-owner", "stuck"}, `echo $$; echo ready; exec sleep 60`)
		owner.group()
		owner.expect("ready")
		cmd := redlatchCmd(t, s.url, "run", "-ttl", "1m", "k", "--", "sh", "-c", "echo mine; read -r x; exit 0")
		in := pipe(t, cmd)
		next := start(t, cmd)
		s.awaitWaiters(t, 1)

		p := start(t, redlatchCmd(t, s.url, "unlock", "-f", "k"))
		require.Zero(t, p.code())
		require.Equal(t, "\"k\" is released; it was held by stuck, "+noticesLate+"\n", p.errors())
		next.expect("mine")
		require.Equal(t, exitLost, owner.code())
		require.NoError(t, in.Close())
		require.Zero(t, next.code())
		s.isClean(t)

		p = start(t, redlatchCmd(t, s.url, "unlock", "-f", "k"))
		require.Zero(t, p.code())
		require.Equal(t, "\"k\" is free\n", p.errors())
	})
}

// TestUnlockReleasesTheHolderThatIsNamed: and not the healthy one. Status and unlock find out
// themselves that the key is a semaphore.
func TestUnlockReleasesTheHolderThatIsNamed(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		inputs, holders := map[string]io.Closer{}, map[string]*program{}
		for _, name := range []string{"hung", "healthy"} {
			cmd := redlatchCmd(t, s.url, "run", "-limit", "2", "-owner", name, "k", "--", "sh", "-c", "echo ready; read -r x; exit 3")
			inputs[name] = pipe(t, cmd)
			holders[name] = start(t, cmd)
			holders[name].expect("ready")
			time.Sleep(2 * time.Millisecond) // tokens have whole ms
		}
		third := redlatchRun(t, s.url, []string{"-limit", "2", "-try"}, "exit 0")
		require.Equal(t, exitBusy, third.code())
		third = redlatchRun(t, s.url, []string{"-limit", "3", "-try"}, "exit 0")
		require.Zero(t, third.code(), "each caller brings its limit")
		status := func(holders int) (lines []string) {
			p := start(t, redlatchCmd(t, s.url, "status", "k"))
			for range 1 + holders {
				lines = append(lines, p.line())
			}
			require.Zero(t, p.code())
			return lines
		}
		lines := status(2)
		require.Regexp(t, `^k\t2 holders\t(hung|healthy)\t[0-9.]+m?s\t0\t\S+$`, lines[0])
		require.Regexp(t, `^\tholds\thung\t\S+\t[0-9.]+m?s$`, lines[1])
		require.Regexp(t, `^\tholds\thealthy\t\S+\t[0-9.]+m?s$`, lines[2])

		unlock := func(args ...string) (int, string) {
			p := start(t, redlatchCmd(t, s.url, append([]string{"unlock", "-f"}, append(args, "k")...)...))
			return p.code(), p.errors()
		}
		code, said := unlock()
		require.Equal(t, exitUsage, code)
		require.Contains(t, said, `unlock "k": it has 2 holders: use -owner with one of: healthy, hung`)
		code, said = unlock("-owner", "nobody")
		require.Equal(t, exitBusy, code)
		require.Contains(t, said, `nothing was released: held by another owner: healthy, hung`)
		require.Equal(t, lines[2][:15], status(2)[2][:15])
		code, said = unlock("-owner", "hung")
		require.Zero(t, code)
		require.Equal(t, "\"k\" is released in the place of hung, "+noticesLate+"; others still hold it\n", said)
		require.Equal(t, exitLost, holders["hung"].code())
		require.Contains(t, status(1)[1], "\tholds\thealthy\t")
		require.NoError(t, inputs["healthy"].Close())
		require.Equal(t, 3, holders["healthy"].code())
		_ = inputs["hung"].Close()
		s.isClean(t)
	})
}

// TestUnlockReleasesAllThatANameHolds: a process can hold several permits.
func TestUnlockReleasesAllThatANameHolds(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		l := locktest.Semaphore(t, s.client, 3, locktest.LongTTL, redlatch.WithOwner("hung"))
		locks := []*redlatch.Lock{locktest.MustLock(t, l, "k"), locktest.MustLock(t, l, "k")}
		healthy := locktest.MustLock(t, l, "k", redlatch.WithOwner("healthy"))
		p := start(t, redlatchCmd(t, s.url, "unlock", "-f", "-owner", "hung", "k"))
		require.Zero(t, p.code())
		require.Equal(t, "\"k\" is released in the place of hung (2 permits), "+noticesLate+"; others still hold it\n", p.errors())
		for _, lock := range locks {
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		}
		p = start(t, redlatchCmd(t, s.url, "unlock", "-f", "k"))
		require.Zero(t, p.code(), "there is only one holder")
		require.Equal(t, "\"k\" is released; it was held by healthy, "+noticesLate+"\n", p.errors())
		require.ErrorIs(t, healthy.Unlock(t.Context()), redlatch.ErrLost)

		lock := locktest.MustLock(t, s.locker(t, locktest.LongTTL), "k2")
		p = start(t, redlatchCmd(t, s.url, "unlock", "-f", "-owner", "hung", "k2"))
		require.Equal(t, exitBusy, p.code())
		require.Contains(t, p.errors(), `unlock "k2": nothing was released: held by another owner: other`)
		require.NoError(t, lock.UnlockAfter(t.Context(), time.Hour))
		p = start(t, redlatchCmd(t, s.url, "unlock", "-f", "-owner", "hung", "k2"))
		require.Equal(t, exitBusy, p.code())
		require.Zero(t, start(t, redlatchCmd(t, s.url, "unlock", "-f", "k2")).code())
	})
}

// TestLegacyLockIsFoundToo: it has another form, and no queue.
func TestLegacyLockIsFoundToo(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		lock := locktest.MustLock(t, locktest.LegacySetNX(t, s.client, locktest.LongTTL, redlatch.WithOwner("old one")), "k")
		p := start(t, redlatchCmd(t, s.url, "status", "k"))
		require.Regexp(t, `^k\theld\told one\t`, p.line())
		require.Zero(t, start(t, redlatchCmd(t, s.url, "unlock", "-f", "k")).code())
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		s.isClean(t)
	})
}

// TestManyRunsReadOrOneWrites: status, list and unlock know both.
func TestManyRunsReadOrOneWrites(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		hold := func(flag, owner string) (input io.Closer, holder *program) {
			cmd := redlatchCmd(t, s.url, "run", flag, "-owner", owner, "k", "--", "sh", "-c", "echo ready; read -r x; exit 3")
			input, holder = pipe(t, cmd), start(t, cmd)
			holder.expect("ready")
			return input, holder
		}
		code := func(flag string) int { return redlatchRun(t, s.url, []string{flag, "-try"}, "exit 0").code() }
		state := func(want string) {
			p := start(t, redlatchCmd(t, s.url, "status", "k"))
			require.Contains(t, p.line(), "k\t"+want+"\t")
			require.Zero(t, p.code())
		}
		input, first := hold("-read", "first")
		input2, second := hold("-read", "second")
		require.Equal(t, []int{exitBusy, 0}, []int{code("-write"), code("-read")})
		state("2 holders")
		p := start(t, redlatchCmd(t, s.url, "unlock", "-f", "-owner", "first", "k"))
		require.Zero(t, p.code())
		state("1 holder")
		for _, in := range []io.Closer{input, input2} {
			if err := in.Close(); !errors.Is(err, os.ErrClosed) { // the one that lost its lock may have ended
				require.NoError(t, err)
			}
		}
		require.Equal(t, []int{exitLost, 3}, []int{first.code(), second.code()})

		input, first = hold("-write", "holder")
		require.Equal(t, []int{exitBusy, exitBusy}, []int{code("-write"), code("-read")})
		state("1 writer")
		p = start(t, redlatchCmd(t, s.url, "list"))
		require.Contains(t, p.line(), "KIND")
		require.Regexp(t, `^k +writer +holder `, p.line())
		require.NoError(t, input.Close())
		require.Equal(t, 3, first.code())
		s.isClean(t)
	})
}

// TestUnlockReleasesNothingNewer: a lock that another owner acquired after the status was shown
// stays.
func TestUnlockReleasesNothingNewer(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		l := s.locker(t, locktest.LongTTL)
		old := locktest.MustLock(t, l, "k")
		seen := mustInspect(t, l)
		end := ending(l, "k", seen)
		require.NoError(t, old.Unlock(ctx))
		released, err := release(ctx, l, "k", end)
		require.NoError(t, err)
		require.False(t, released, "the key is free already")
		locktest.MustLock(t, l, "k", redlatch.WithOwner("newer"))
		before := s.holds(t)

		_, err = release(ctx, l, "k", end)
		require.Equal(t, exitBusy, exitOf(err))
		require.EqualError(t, err, `unlock "k": nothing was released: redlatch: held by another owner: newer`)
		require.Equal(t, before, s.holds(t))
	})
}

// TestUnlockLeavesAloneWhatIsNoLock: a key without a TTL stays as it is.
func TestUnlockLeavesAloneWhatIsNoLock(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	require.NoError(t, s.client.Set(t.Context(), "k", "data", 0).Err())
	p := start(t, redlatchCmd(t, s.url, "unlock", "-f", "k"))
	require.Equal(t, exitUnavailable, p.code())
	require.Contains(t, p.errors(), "not a lock of this command")
	require.Equal(t, "data", s.holds(t))
}

// TestUnlockReleasesAQuorum: unlock releases on a quorum if it gets several URLs.
func TestUnlockReleasesAQuorum(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		urls = append(urls, onMiniredis(t).url)
	}
	all := strings.Join(urls, " ")
	owner := redlatchRun(t, all, patient, `echo $$; echo ready; exec sleep 60`)
	owner.group()
	owner.expect("ready")
	require.Zero(t, start(t, redlatchCmd(t, all, "unlock", "-f", "k")).code())
	require.Zero(t, redlatchRun(t, all, []string{"-try"}, "exit 0").code())
}

// TestUnlockAsks: the question shows who would lose the lock. Only y and yes mean yes.
func TestUnlockAsks(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{
		"y\n": true, "Y\n": true, "yes\n": true, "n\n": false, "\n": false, "": false, "y": false, "yesterday\n": false, "y n\n": false,
	} {
		var out bytes.Buffer
		seen := redlatch.Status{Held: true, Token: "secret", Owner: "api-7", TTL: 8 * time.Second, Waiters: 2}
		require.Equal(t, want, confirmed(strings.NewReader(answer), &out, "k", seen), "%q", answer)
		require.Equal(t, "\"k\" is held by api-7, for another 8s; 2 waiting\nif it is released, its owner notices at the next renewal, within a third of its TTL, and may work until then\nrelease it? [y/N] ", out.String())
		out.Reset()
		seen.Token, seen.Owner, seen.Held, seen.Kept = "", "", false, true
		require.Equal(t, want, confirmed(strings.NewReader(answer), &out, "k", seen), "%q", answer)
		require.Equal(t, "\"k\" is held by nobody; its min hold keeps others out for another 8s; 2 waiting\nend its min hold? [y/N] ", out.String())
	}
}

// TestUnlockEndsTheMinHoldThatItHasShown: a job that it keeps out can run again. The next waiter
// gets the key at once.
func TestUnlockEndsTheMinHoldThatItHasShown(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		for _, flags := range [][]string{nil, {"-limit", "1"}} {
			run := func(args ...string) *program {
				args = append(append([]string{"run", "-q"}, flags...), append(args, "k", "--", "true")...)
				return start(t, redlatchCmd(t, s.url, args...))
			}
			require.Zero(t, run("-min-hold", "1h").code())
			require.Equal(t, exitBusy, run("-try").code())
			p := start(t, redlatchCmd(t, s.url, "status", "k"))
			require.Regexp(t, `^k\tkept\t-\t(1h0m0[\d.]*s|59m[\d.]+s)\t0\t-$`, p.line())
			waiter := run("-ttl", "1m")
			locktest.Eventually(t, "it queues", func() bool {
				p := start(t, redlatchCmd(t, s.url, "status", "k"))
				return strings.HasSuffix(p.line(), "\t1\t-")
			})
			p = start(t, redlatchCmd(t, s.url, "unlock", "-f", "k"))
			require.Zero(t, p.code())
			require.Equal(t, "the min hold of \"k\" has ended\n", p.errors())
			require.Zero(t, waiter.code())
			s.isClean(t)
		}
	})
}

// TestUnlockEndsNoLaterMinHold: a min hold that began after unlock has shown the key stays, and so
// does one that began after an earlier one has ended.
func TestUnlockEndsNoLaterMinHold(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		l := s.locker(t, locktest.LongTTL)
		lock := locktest.MustLock(t, l, "k", redlatch.WithMinHold(time.Hour))
		seen := []redlatch.Status{mustInspect(t, l), {}}
		require.NoError(t, lock.Unlock(ctx))
		seen[1] = mustInspect(t, l)
		var ends []func(context.Context) error
		for _, st := range seen {
			ends = append(ends, ending(l, "k", st))
		}
		require.NoError(t, ending(l, "k", seen[1])(ctx))
		require.NoError(t, locktest.MustLock(t, l, "k", redlatch.WithMinHold(2*time.Hour)).Unlock(ctx))
		before := s.holds(t)
		for _, end := range ends {
			_, err := release(ctx, l, "k", end)
			require.Equal(t, exitBusy, exitOf(err))
			require.ErrorContains(t, err, `unlock "k": nothing was released: its min hold lasts for another `)
		}
		require.Equal(t, before, s.holds(t))
	})
}

func mustInspect(t *testing.T, l redlatch.Locker) redlatch.Status {
	t.Helper()
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	return st
}

// TestUnlockEndsTheMinHoldOfAQuorum: on each of its nodes.
func TestUnlockEndsTheMinHoldOfAQuorum(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		urls = append(urls, onMiniredis(t).url)
	}
	all := strings.Join(urls, " ")
	require.Zero(t, redlatchRun(t, all, []string{"-min-hold", "1h"}, "exit 0").code())
	require.Equal(t, exitBusy, redlatchRun(t, all, []string{"-try"}, "exit 0").code())
	p := start(t, redlatchCmd(t, all, "unlock", "-f", "k"))
	require.Zero(t, p.code(), p.errors())
	require.Zero(t, redlatchRun(t, all, []string{"-try"}, "exit 0").code())
}

// TestCommandsNeedTheRightsOfTheirLines: SECURITY.md names the line for each.
func TestCommandsNeedTheRightsOfTheirLines(t *testing.T) {
	t.Parallel()
	r := redistest.StartTCP(t)
	s := newServer(t, "redis://locks:secret@"+r.Addr(), "tcp", r.Addr())
	prefix := redlatch.WithKeyPrefix("lock:")
	for _, c := range []struct {
		line  string
		flags []string
		lock  func() *redlatch.Lock
	}{
		{"SetNXPX", nil, func() *redlatch.Lock { return locktest.MustLock(t, s.locker(t, prefix), "k") }},
		{"Semaphore", []string{"-limit", "2"}, func() *redlatch.Lock {
			return locktest.MustLock(t, locktest.Semaphore(t, s.client, 2, prefix), "permits")
		}},
		{"Semaphore", []string{"-write"}, func() *redlatch.Lock {
			_, write := locktest.ReadWrite(t, s.client, prefix)
			return locktest.MustLock(t, write, "catalog")
		}},
	} {
		command := func(name string, flags []string, more ...string) *program {
			return start(t, redlatchCmd(t, s.url, append(append([]string{name, "-prefix", "lock:"}, flags...), more...)...))
		}
		for _, kept := range []time.Duration{0, time.Hour} {
			lock := c.lock()
			if kept > 0 {
				require.NoError(t, lock.UnlockAfter(t.Context(), kept))
			}
			r.User(t, rightsOf(t, "list")...)
			p := command("status", nil, lock.Key())
			require.NotContains(t, p.line(), "free")
			require.Zero(t, p.code(), p.errors())
			r.User(t, rightsOf(t, c.line)...)
			p = command("unlock", nil, "-f", lock.Key())
			require.Zero(t, p.code(), p.errors())
			p = command("run", c.flags, "-try", lock.Key(), "--", "true")
			require.Zero(t, p.code(), p.errors())
		}
	}
}
