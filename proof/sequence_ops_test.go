package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
)

// forever is how long a renewed lock is held.
const forever = 1000 * time.Hour

// tryLock makes one attempt.
func (s *sequence) tryLock(t *rapid.T) {
	on, key := s.someKey(t)
	l, limit := s.someLocker(t)
	h := s.newHandle(t, on)
	h.renewed = rapid.Bool().Draw(t, "renewed")
	var err error
	h.lock, err = l.TryLock(context.Background(), on, append(h.options(), s.someMinHold(t, h)...)...)
	if key.isFull(limit) {
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "%q is held by %q", on, key.holders())
		return
	}
	require.NoError(t, err)
	s.granted(t, h)
}

// newHandle returns the model of a handle that is to be acquired, with a name of its own.
func (s *sequence) newHandle(t *rapid.T, on string) *handleModel {
	s.named++
	return &handleModel{
		key: s.keys[on], on: on, name: fmt.Sprintf("h%d", s.named), ttl: s.someTTL(t), looks: s.rules.wholeSeconds,
	}
}

// options returns the options that acquire or adopt a handle.
func (h *handleModel) options() []redlatch.Option {
	opts := []redlatch.Option{redlatch.WithTTL(h.ttl)}
	if !h.renewed {
		opts = append(opts, redlatch.WithoutRenewal())
	}
	if !h.shared {
		opts = append(opts, redlatch.WithOwner(h.name))
	}
	return opts
}

// someMinHold gives some handles a min hold.
func (s *sequence) someMinHold(t *rapid.T, h *handleModel) []redlatch.Option {
	if !s.rules.keeps || rapid.IntRange(0, 2).Draw(t, "keeps") != 0 {
		return nil
	}
	h.minHold = time.Duration(rapid.Int64Range(1, 6000).Draw(t, "min hold, ms")) * time.Millisecond
	return []redlatch.Option{redlatch.WithMinHold(h.minHold)}
}

// granted notes the handle of a new grant.
func (s *sequence) granted(t *rapid.T, h *handleModel) {
	key := h.key
	if s.rules.fenced {
		require.Greater(t, h.lock.Fence(), key.fence)
	} else {
		require.Zero(t, h.lock.Fence())
	}
	h.ttl, h.kept = max(h.ttl, h.minHold), time.Now().Add(h.minHold)
	s.took(h)
}

// took notes a new handle.
func (s *sequence) took(h *handleModel) {
	h.key.fence = h.lock.Fence()
	if s.rules.wholeSeconds {
		h.ttl = ceil(h.ttl)
	}
	h.extends(h.ttl, s.rules)
	s.handles = append(s.handles, h)
	for _, other := range s.handles {
		if other.name == h.name && other.key == h.key && other.renewed && other.alive() {
			h.key.keep(h.name, time.Now().Add(forever))
		}
	}
	s.settle()
}

// lock waits, and is served when the key is free.
func (s *sequence) lock(t *rapid.T) {
	on, key := s.someKey(t)
	l, limit := s.someLocker(t)
	h := s.newHandle(t, on)
	patience := time.Duration(rapid.Int64Range(1, 6000).Draw(t, "patience, ms")) * time.Millisecond
	mayBeGranted, mayGiveUp := key.waits(limit, patience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	var err error
	h.lock, err = l.Lock(ctx, on, append(h.options(), s.someMinHold(t, h)...)...)
	switch {
	case err != nil:
		require.True(t, gaveUp(err), err)
		require.True(t, mayGiveUp, "%q was free before the wait ended", on)
		require.Equal(t, patience, time.Since(begin))
		s.settle()
	default:
		require.True(t, mayBeGranted, "%q was not free", on)
		require.False(t, key.isFull(limit), "%q was granted before it was free, to %q beside %q", on, h.name, key.holders())
		waited := time.Since(begin)
		s.granted(t, h)
		// A lock that was handed over begins when Redis did that. By how much the clocks have drifted meanwhile is unknown.
		early := h.until.Sub(h.lock.Until())
		require.True(t, 0 <= early && early <= waited/50, "until is %v, not %v", h.lock.Until(), h.until)
		h.until = h.lock.Until()
		s.settle()
	}
}

func (s *sequence) unlock(t *rapid.T) {
	h := s.someHandle(t)
	want := h.unlock()
	requireSame(t, want, h.lock.Unlock(context.Background()))
}

func (s *sequence) extend(t *rapid.T) {
	h, ttl := s.someHandle(t), s.someTTL(t)
	want := h.extend(ttl, s.rules)
	requireSame(t, want, h.lock.Extend(context.Background(), ttl))
	s.settle()
}

// adopt takes over a lock by the token of one of its handles.
func (s *sequence) adopt(t *rapid.T) {
	from := s.someHandle(t)
	key := from.key
	l, _ := s.someLocker(t)
	h := &handleModel{key: key, on: from.on, name: from.name, ttl: s.someTTL(t), shared: true, looks: from.looks}
	var err error
	h.lock, err = l.Adopt(context.Background(), h.on, from.token(), h.options()...)
	switch {
	case !key.has(h.name):
		require.ErrorIs(t, err, redlatch.ErrLost, "%q is held by %q", h.on, key.holders())
	default:
		require.NoError(t, err)
		if s.rules.fenced {
			require.Greater(t, h.lock.Fence(), key.fence)
		} else {
			require.Zero(t, h.lock.Fence())
		}
		s.took(h)
	}
}

func (s *sequence) inspect(t *rapid.T) {
	on, key := s.someKey(t)
	l, _ := s.someLocker(t)
	st, err := l.Inspect(context.Background(), on)
	require.NoError(t, err)
	holders := key.holders()
	require.Len(t, holders, st.Holders)
	require.Equal(t, len(holders) > 0, st.Held)
	require.Zero(t, st.Waiters)
	name := st.Owner
	if st.Token == "" {
		require.Empty(t, st.Owner)
		if !st.Held {
			return
		}
		kept := slices.IndexFunc(holders, func(name string) bool { return strings.HasPrefix(name, nobody) })
		require.GreaterOrEqual(t, kept, 0, "%q is held by %q", on, holders)
		name = holders[kept]
	}
	require.Contains(t, holders, name)
	if time.Until(key.freeAt[name]) > forever/2 {
		return // when its lease ends is not modelled
	}
	if st.Token != "" { // a holder is named before a permit that is kept
		holders = slices.DeleteFunc(slices.Clone(holders), func(name string) bool { return strings.HasPrefix(name, nobody) })
	}
	first := key.freeAt[holders[0]]
	require.Equal(t, first, key.freeAt[name], "its lease does not end first")
	left := time.Until(first)
	if st.Token == "" {
		left += 100 * time.Millisecond // a release frees it before that
	}
	require.InDelta(t, left, st.TTL, float64(2*time.Millisecond))
}

// pass lets time pass.
func (s *sequence) pass(t *rapid.T) {
	time.Sleep(time.Duration(rapid.Int64Range(1, 4000).Draw(t, "ms")) * time.Millisecond)
	s.settle()
}

// remove has somebody delete a lock.
func (s *sequence) remove(t *rapid.T) {
	on, key := s.someKey(t)
	for _, m := range s.stores {
		m.Del(on)
	}
	for _, name := range key.holders() {
		key.drop(name)
	}
}
