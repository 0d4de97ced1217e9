package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// A sharing is a share at an instant, with others that use some connections and calls that wait.
type sharing struct {
	share
	now    clock.Mono
	others int
}

// trips has so many trips come back, each with calls that wait. Couriers use all that they may.
func (s *sharing) trips(n int) {
	for range n {
		s.now = s.now.Add(time.Millisecond)
		used := min(s.open, s.most+s.others)
		s.observe(use{open: s.open, used: used, pending: s.most + s.others - used, own: s.most}, s.now)
		s.waited(time.Millisecond, s.now)
	}
}

// full returns the share of a client whose connections are open, of which others use some.
func full(size, others int) *sharing {
	s := &sharing{share: shareOf(size), now: clock.Mono(time.Hour), others: others}
	s.open = size
	return s
}

// TestCouriersGrowBesideOthers: a third is theirs, and what others have not used for a minute. One is
// left unless nobody else has used any.
func TestCouriersGrowBesideOthers(t *testing.T) {
	t.Parallel()
	for others, want := range []int{20, 18, 17, 16} {
		s := full(20, others)
		s.trips(1)
		require.Equal(t, 7, s.most, "by one a trip")
		s.trips(100)
		require.Equal(t, want, s.most)
	}
	s := full(20, 18)
	s.trips(100)
	require.Equal(t, 6, s.most)
}

// TestCouriersRememberWhatOthersUse for a minute at least, and for two at most.
func TestCouriersRememberWhatOthersUse(t *testing.T) {
	t.Parallel()
	s := full(20, 0)
	s.trips(100)
	require.Equal(t, 20, s.most)
	s.others = 8 // they wait for connections first
	s.trips(1)
	require.Equal(t, 11, s.most)
	s.others = 0
	s.now = s.now.Add(othersLast - 10*time.Millisecond)
	s.trips(1)
	require.Equal(t, 11, s.most)
	s.now = s.now.Add(othersLast)
	s.trips(1)
	require.Equal(t, 12, s.most)
}

// TestCouriersUseConnectionsOnceFurtherOnesWereOpened: the server may admit no more.
func TestCouriersUseConnectionsOnceFurtherOnesWereOpened(t *testing.T) {
	t.Parallel()
	s := &sharing{share: shareOf(20), now: clock.Mono(time.Hour), others: 2}
	s.open = 10
	s.trips(10)
	require.Equal(t, 6, s.most)
	require.Zero(t, s.lacks(3, 3, s.now), "others may need the idle ones")
	require.Equal(t, 3, s.lacks(3, 2, s.now))
	require.Equal(t, 10, s.lacks(30, 2, s.now))

	s.tried(10, true, s.now)
	s.trips(10)
	require.Equal(t, 6, s.most)
	require.Zero(t, s.lacks(3, 2, s.now))
	s.now = s.now.Add(afterError)
	require.Equal(t, 3, s.lacks(3, 2, s.now))

	s.tried(13, false, s.now)
	s.trips(3)
	require.Equal(t, 9, s.most)
	require.Zero(t, s.lacks(3, 2, s.now), "they can grow")
	s.trips(10)
	require.Equal(t, 11, s.most)
	require.Equal(t, 3, s.lacks(3, 0, s.now))
	s.tried(13, false, s.now)
	require.Zero(t, s.lacks(3, 0, s.now), "it would open none again")
	require.Equal(t, 3, s.lacks(3, 0, s.now.Add(afterNone)))

	s.open = 12 // one has broken
	s.trips(1)
	require.Equal(t, 6, s.most)
}

// TestConnectionsAreLackingIfOthersHaveSomeAndNoneIsLeft, so that the error says to raise PoolSize. A connection that the
// node opens itself, and that takes long, is none of others.
func TestConnectionsAreLackingIfOthersHaveSomeAndNoneIsLeft(t *testing.T) {
	for _, c := range []struct {
		use  use
		want bool
	}{
		{use{open: 2, used: 2, own: 0}, true},
		{use{open: 2, used: 2, own: 1}, true},
		{use{open: 2, used: 2, own: 2}, false},
		{use{open: 2, used: 2, own: 2, pending: 1}, true}, // one of the own waits, too
		{use{open: 2, used: 1, own: 0}, false},            // one is idle
		{use{open: 2, used: 1, own: 0, pending: 1}, false},
		{use{open: 1, used: 1, own: 0}, false}, // another one can be opened
	} {
		require.Equal(t, c.want, c.use.lacks(2), "%+v", c.use)
	}
}
