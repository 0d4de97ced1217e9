package proof

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redlatch/redlatch"
)

// forever is how long a renewed lock is held.
const forever = 1000 * time.Hour

// tryLock makes one attempt, with a new token or with that of a handle on any key.
func (s *sequence) tryLock(t *rapid.T) {
	name, key := s.someKey(t)
	ttl, renewed := s.someTTL(t), rapid.Bool().Draw(t, "renewed")
	opts := []redlatch.Option{redlatch.WithTTL(ttl)}
	if !renewed {
		opts = append(opts, redlatch.WithoutRenewal())
	}
	token := ""
	if len(s.handles) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		token = s.someHandle(t).token
		for _, h := range s.handles {
			if _, unsure := h.err(); unsure && h.token == token && h.key == key {
				t.Skip("whether its renewal or the new end comes first is not modelled")
			}
		}
		opts = append(opts, redlatch.WithToken(token))
	}
	lock, err := s.someLocker(t).TryLock(context.Background(), name, opts...)
	if !key.has(token) && key.isFull() {
		require.ErrorIs(t, err, redlatch.ErrNotAcquired, "%q is held by %s", name, key.holders())
		return
	}
	require.NoError(t, err)
	s.granted(t, lock, name, ttl, renewed)
}

// granted notes the handle of a new grant.
func (s *sequence) granted(t *rapid.T, lock *redlatch.Lock, name string, ttl time.Duration, renewed bool) {
	key := s.keys[name]
	if s.rules.fenced {
		require.Greater(t, lock.Fence(), key.fence)
	} else {
		require.Zero(t, lock.Fence())
	}
	if !key.has(lock.Token()) {
		delete(key.freeAt, lock.Token())
	}
	key.fence = lock.Fence()
	s.took(lock, name, ttl, renewed)
}

// took notes a new handle.
func (s *sequence) took(lock *redlatch.Lock, name string, ttl time.Duration, renewed bool) {
	if s.rules.wholeSeconds {
		ttl = ceil(ttl)
	}
	h := &handleModel{lock: lock, key: s.keys[name], name: name, token: lock.Token(), ttl: ttl, renewed: renewed, looks: s.rules.wholeSeconds}
	for _, other := range s.handles {
		h.chosen = h.chosen || other.token == h.token
	}
	h.extends(ttl, s.rules)
	s.handles = append(s.handles, h)
	for _, other := range s.handles {
		if other.token == h.token && other.key == h.key && other.renewed && other.alive() {
			h.key.keep(h.token, time.Now().Add(forever))
		}
	}
	s.settle()
}

// lock waits, and is served when the key is free.
func (s *sequence) lock(t *rapid.T) {
	name, key := s.someKey(t)
	ttl, patience := s.someTTL(t), time.Duration(rapid.Int64Range(1, 6000).Draw(t, "patience, ms"))*time.Millisecond
	mayBeGranted, mayGiveUp := key.waits(patience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	lock, err := s.someLocker(t).Lock(ctx, name, redlatch.WithTTL(ttl), redlatch.WithoutRenewal())
	if err != nil {
		require.True(t, gaveUp(err), err)
		require.True(t, mayGiveUp, "%q was free before the wait ended", name)
		require.Equal(t, patience, time.Since(begin))
		s.settle()
		return
	}
	require.True(t, mayBeGranted, "%q was not free", name)
	require.False(t, key.isFull(), "%q was granted before it was free", name)
	s.granted(t, lock, name, ttl, false)
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
	h, ttl := s.someHandle(t), s.someTTL(t)
	lock, err := s.someLocker(t).Adopt(context.Background(), h.name, h.token, redlatch.WithTTL(ttl), redlatch.WithoutRenewal())
	if !h.key.has(h.token) {
		require.ErrorIs(t, err, redlatch.ErrLost)
		return
	}
	require.NoError(t, err)
	if s.rules.fenced {
		require.Greater(t, lock.Fence(), h.key.fence)
	} else {
		require.Zero(t, lock.Fence())
	}
	h.key.fence = lock.Fence()
	s.took(lock, h.name, ttl, false)
}

func (s *sequence) inspect(t *rapid.T) {
	name, key := s.someKey(t)
	st, err := s.someLocker(t).Inspect(context.Background(), name)
	require.NoError(t, err)
	holders := key.holders()
	require.Len(t, holders, st.Holders)
	require.Equal(t, len(holders) > 0, st.Held)
	require.Zero(t, st.Waiters)
	if !st.Held {
		require.Empty(t, st.Token)
		return
	}
	require.Contains(t, holders, st.Token)
	if time.Until(key.freeAt[st.Token]) > forever/2 {
		return // when its lease ends is not modelled
	}
	first := key.freeAt[holders[0]]
	require.Equal(t, first, key.freeAt[st.Token], "its lease does not end first")
	require.InDelta(t, time.Until(first), st.TTL, float64(2*time.Millisecond))
}

// pass lets time pass.
func (s *sequence) pass(t *rapid.T) {
	time.Sleep(time.Duration(rapid.Int64Range(1, 4000).Draw(t, "ms")) * time.Millisecond)
	s.settle()
}

// remove has somebody delete a lock.
func (s *sequence) remove(t *rapid.T) {
	name, key := s.someKey(t)
	for _, m := range s.stores {
		m.Del(name)
	}
	for _, token := range key.holders() {
		key.drop(token)
	}
}
