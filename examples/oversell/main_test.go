package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// newShop returns a small shop on embedded servers.
func newShop(t *testing.T) *shop {
	addrs, stop, err := embed()
	require.NoError(t, err)
	t.Cleanup(stop)
	s, err := open(t.Context(), config{addrs: addrs, buyers: 4, seats: 20, work: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.close(context.Background())) })
	return s
}

func TestEachSeatIsSoldOnceUnderALock(t *testing.T) {
	for _, st := range strategies {
		if st.locker == nil {
			continue
		}
		t.Run(st.name, func(t *testing.T) {
			s := newShop(t)
			var p progress
			r, err := s.sellOut(t.Context(), st, &p)
			require.NoError(t, err)
			assert.Equal(t, 20, r.sold())
			assert.EqualValues(t, 20, p.sold.Load(), "what the buyers bought")
			assert.Len(t, r.waits, 24, "a grant for each seat, and one for each buyer who found none")
			if st.fenced {
				assert.Zero(t, r.stale(), "fences in order of sale: %d", r.fences)
			}
			require.NoError(t, report(io.Discard, []result{r}))
		})
	}
}

func TestLocksThatDoNotExcludeAreFound(t *testing.T) {
	s := newShop(t)
	s.work = 10 * time.Millisecond
	own := strategy{name: "own", fenced: true, locker: func(nodes []redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		// Each buyer locks a key of its own.
		return redlatch.NewSetNXPX(nodes[0], append(opts, redlatch.WithKeyPrefix(s.prefix+rand.Text()))...)
	}}
	r, err := s.sellOut(t.Context(), own, new(progress))
	require.NoError(t, err)
	require.ErrorContains(t, report(io.Discard, []result{r}), "own: sold")
}

func TestReportFailsWhereALockFailed(t *testing.T) {
	locked := strategy{name: "locked", fenced: true, locker: onFirst(redlatch.NewSetNXPX)}
	unfenced := strategy{name: "unfenced", locker: locked.locker}
	unlocked := strategy{name: "unlocked"}
	waits := []time.Duration{time.Millisecond}
	for name, tc := range map[string]struct {
		result result
		fails  string // part of the error; empty: none
		shows  string // part of the table
	}{
		"as it should be": {result{strategy: locked, seats: 2, fences: []uint64{7, 9}}, "", "2 growing"},
		"oversold":        {result{strategy: locked, seats: 2, fences: []uint64{7, 8, 9}}, "locked: sold 3 of 2 seats", "3 growing"},
		"undersold":       {result{strategy: locked, seats: 2, fences: []uint64{7}}, "locked: sold 1 of 2 seats", "1 growing"},
		"a fence twice":   {result{strategy: locked, seats: 2, fences: []uint64{7, 7}}, "fence 7 of sale 2", "stale at sale 2"},
		"an older fence":  {result{strategy: locked, seats: 2, fences: []uint64{7, 6}}, "fence 6 of sale 2", "stale at sale 2"},
		"no fence":        {result{strategy: locked, seats: 2, fences: []uint64{0, 0}}, "fence 0 of sale 1", "stale at sale 1"},
		"none is issued":  {result{strategy: unfenced, seats: 2, fences: []uint64{0, 0}}, "", "-"},
		"unlocked":        {result{strategy: unlocked, seats: 2, fences: []uint64{0, 0, 0}}, "", "3"},
		"unlocked, lucky": {result{strategy: unlocked, seats: 2, fences: []uint64{0, 0}}, "", "nothing was oversold this time"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.result.strategy.locker != nil {
				tc.result.waits = waits
			}
			var out bytes.Buffer
			err := report(&out, []result{tc.result})
			assert.Contains(t, out.String(), tc.shows)
			if tc.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.fails)
			}
		})
	}
}

func TestRunPrintsARowForEachStrategy(t *testing.T) {
	var out, progress bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-buyers", "4", "-seats", "20"}, &out, &progress))
	for _, st := range strategies {
		assert.Contains(t, out.String(), "\n"+st.name+" ")
		assert.Contains(t, progress.String(), st.name+": sold ")
	}
}

func TestNothingIsLeftInRedis(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	require.NoError(t, first.Set("of somebody else", "1"))
	addrs := []string{first.Addr(), second.Addr()}

	require.NoError(t, run(t.Context(), []string{"-redis", strings.Join(addrs, ","), "-seats", "20"}, io.Discard, io.Discard))
	assert.Equal(t, []string{"of somebody else"}, first.Keys())
	assert.Empty(t, second.Keys())

	for _, st := range strategies {
		t.Run("interrupted/"+st.name, func(t *testing.T) {
			s, err := open(t.Context(), config{addrs: addrs, buyers: 4, seats: 1_000_000, work: time.Millisecond})
			require.NoError(t, err)
			ctx, interrupt := context.WithCancelCause(t.Context())
			var p progress
			ended := make(chan error)
			go func() {
				_, err := s.sellOut(ctx, st, &p)
				ended <- err
			}()
			interrupted := errors.New("interrupted")
			require.Eventually(t, func() bool { return p.sold.Load() >= 5 }, time.Minute, time.Millisecond)
			interrupt(interrupted)
			require.ErrorIs(t, <-ended, interrupted)
			require.Greater(t, len(first.Keys()), 1)
			require.NoError(t, s.close(ctx))
			assert.Equal(t, []string{"of somebody else"}, first.Keys())
			assert.Empty(t, second.Keys())
		})
	}
}

func TestAnErrorOfABuyerEndsTheSale(t *testing.T) {
	s := newShop(t)
	st := strategy{name: "locked", locker: onFirst(redlatch.NewSetNXPX)}
	require.NoError(t, s.nodes[0].Set(t.Context(), s.prefix+"locked:sales", "no list", 0).Err())
	_, err := s.sellOut(t.Context(), st, new(progress))
	require.ErrorContains(t, err, "buyer ")
	require.ErrorContains(t, err, "WRONGTYPE")
}

func TestBadFlagIsNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-buyers 0":              "-buyers",
		"-buyers many":           "-buyers",
		"-seats -1":              "-seats",
		"-work soon":             "-work",
		"-work -1ms":             "-work",
		"-redis localhost":       "-redis",
		"-redis 127.0.0.1:":      "-redis",
		"-redis a:1,b:2,a:1":     "-redis",
		"-redis 127.0.0.1:6379,": "-redis",
		"-colour red":            "-colour",
		"12":                     `"12"`,
	} {
		t.Run(args, func(t *testing.T) {
			var out bytes.Buffer
			require.ErrorContains(t, run(t.Context(), strings.Fields(args), &out, &out), want)
			assert.Empty(t, out.String(), "the caller prints the error")
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-h"}, &out, io.Discard))
	assert.Contains(t, out.String(), "-buyers")
}
