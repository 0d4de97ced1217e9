package redlatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewMigration returns a Locker that holds every key under both from and to, so that a fleet can
// move from one to the other without downtime. A migration has three stages: first all processes
// use the old Locker (from), then NewMigration(from, to), then the new Locker (to). Processes of
// adjacent stages exclude each other.
//
//	lock    first from, then to; start over if from is lost meanwhile
//	unlock  to, then from
//
// A lock ends when either side does, and the other side is not renewed any more. If the key is held on
// both sides, Token, Fence and the answer of Inspect come from to. The fences of the two sides have no
// common order: a resource should not compare them while any process is still in the first stage.
// Options of a call go to both sides, so a call with [WithKeyPrefix] fails with [ErrInvalid]. Adopt
// fails with [errors.ErrUnsupported], because one token cannot prove two locks. The time of
// [WithMaxHold] begins when from is granted, and includes the wait for to.
//
// Two Lockers that keep a key in the same place, or one on a node of the other's quorum, would refuse
// each other forever: give one of them a [WithKeyPrefix]. The error is [ErrInvalid] if they have a
// client in common and the same prefix, if they are the same, or if one is nil. NewMigration does not
// notice two clients of one server. A Locker that wraps another one, and leaves its keys as they are,
// should have a method Unwrap() Locker, which returns the wrapped one. [Forget] also needs it.
func NewMigration(from, to Locker) (Locker, error) {
	for name, l := range map[string]Locker{"from": from, "to": to} {
		if isNil(l) {
			return nil, wrap("new migration", "", invalid("%s is nil", name))
		}
	}
	if same(from, to) {
		return nil, wrap("new migration", "", invalid("from and to are the same Locker"))
	}
	for _, old := range enginesOf(from) {
		if slices.ContainsFunc(enginesOf(to), old.sharesKeys) {
			return nil, wrap("new migration", "",
				invalid("from and to keep a key in the same place: give one of them a WithKeyPrefix"))
		}
	}
	m := &migration{from: from, to: to}
	for _, side := range enginesOf(m) {
		if d := side.cfg.maxWait; d > 0 && (m.maxWait == 0 || d < m.maxWait) {
			m.maxWait = d
		}
	}
	return m, nil
}

// enginesOf returns the Lockers that l consists of or wraps, as far as this package made them.
func enginesOf(l Locker) []*engine {
	switch l := l.(type) {
	case *engine:
		return []*engine{l}
	case *migration:
		return slices.Concat(enginesOf(l.from), enginesOf(l.to))
	case interface{ Unwrap() Locker }:
		return enginesOf(l.Unwrap())
	}
	return nil
}

// sharesKeys reports whether a key is in the same place for both Lockers, on at least one client.
func (e *engine) sharesKeys(other *engine) bool {
	return e.cfg.prefix == other.cfg.prefix && e.sharesClient(other)
}

// sharesClient reports whether both Lockers have a client in common.
func (e *engine) sharesClient(other *engine) bool {
	return slices.ContainsFunc(e.clients, func(client redis.UniversalClient) bool {
		return slices.ContainsFunc(other.clients, func(c redis.UniversalClient) bool { return same(client, c) })
	})
}

type migration struct {
	from, to Locker
	maxWait  time.Duration // the shorter one of those of from and to; 0: they have none
}

func (m *migration) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	if err := m.check(ctx, key, opts); err != nil {
		return nil, wrap("try lock", key, err)
	}
	old, err := granted(m.from.TryLock(ctx, key, opts...))
	if err != nil {
		return nil, wrap("try lock", key, err)
	}
	lock, err := old.join(ctx, m.to.TryLock, key, opts)
	if err != nil {
		old.discard(ctx) // if it fails, the key ends with its TTL
		return nil, wrap("try lock", key, err)
	}
	if err := lock.joinTo(old); err != nil {
		_ = lock.Unlock(ctx)
		return nil, wrap("try lock", key, err)
	}
	return lock, nil
}

// Lock waits for from, and then for to while from is held.
func (m *migration) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	if err := m.check(ctx, key, opts); err != nil {
		return nil, wrap("lock", key, err)
	}
	if m.maxWait > 0 {
		opts = append([]Option{WithMaxWait(m.maxWait)}, opts...)
	}
	opts = append(slices.Clip(opts), waitingSince(time.Now()))
	var b loan // old would know a child of ctx for longer than the call lasts
	defer b.over()
	waiting, stop := context.WithCancel(b.lend(ctx))
	defer stop()
	for {
		old, err := granted(m.from.Lock(ctx, key, opts...))
		if err != nil {
			return nil, wrap("lock", key, err)
		}
		lock, err := old.join(old.Context(waiting), m.to.Lock, key, opts)
		if err == nil {
			if lock.joinTo(old) == nil {
				return lock, nil
			}
			_ = lock.Unlock(ctx)
			continue // from was lost when to was granted
		}
		lost := old.Err() != nil
		old.discard(ctx)
		switch {
		case !lost:
			return nil, wrap("lock", key, err)
		case ctx.Err() != nil: // err may match the loss
			var wait *gaveUp
			if !errors.As(err, &wait) {
				wait = &gaveUp{}
			}
			return nil, wrap("lock", key, &gaveUp{ctx: ctxError(ctx), last: wait.last})
		}
	}
}

// join acquires the other side of k. If a hook panics, k is discarded.
func (k *Lock) join(
	ctx context.Context, acquire func(context.Context, string, ...Option) (*Lock, error), key string, opts []Option,
) (lock *Lock, err error) {
	guarded(func() { lock, err = granted(acquire(ctx, key, opts...)) }, func() { k.discard(ctx) })
	return lock, err
}

func (m *migration) Adopt(_ context.Context, key string, _ Token, _ ...Option) (*Lock, error) {
	return nil, wrap("adopt", key, errors.ErrUnsupported)
}

// Inspect reports the holder on the side that somebody holds; to if both are held, or both kept. Its
// waiters are those of both sides.
func (m *migration) Inspect(ctx context.Context, key string) (Status, error) {
	old, err := m.from.Inspect(ctx, key)
	if err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	st, err := m.to.Inspect(ctx, key)
	if err != nil {
		return Status{}, wrap("inspect", key, err)
	}
	waiters, queue := old.Waiters+st.Waiters, slices.Concat(old.Queue, st.Queue)
	slices.SortStableFunc(queue, func(a, b Waiter) int { return cmp.Compare(b.Waited, a.Waited) })
	if old.Held && !st.Held || old.Kept && !st.Held && !st.Kept {
		st = old
	}
	st.Waiters, st.Queue = waiters, queue[:min(len(queue), longestQueue)]
	return st, nil
}

// check has both sides check a call before anything is sent.
func (m *migration) check(ctx context.Context, key string, opts []Option) error {
	const unset = "\x00"
	cfg := config{settings: settings{prefix: unset}}
	err := cfg.apply(opts)
	switch {
	case err != nil:
		return err
	case cfg.prefix != unset:
		return invalid("WithKeyPrefix(%q): a call would give both Lockers of a migration one prefix", cfg.prefix)
	}
	for _, side := range enginesOf(m) { // a side that hides its engines refuses a call itself
		if err := side.check(ctx, new(request), key, opts); err != nil {
			return err
		}
	}
	return nil
}

// joinTo makes old a part of k: each ends when the other is lost, and k's Unlock unlocks both. It
// fails if one of them has already ended.
func (k *Lock) joinTo(old *Lock) error {
	last := k
	for last.from != nil { // to is a migration itself
		last = last.from
	}
	last.from = old
	link(k, old)
	link(old, k)
	return k.Err()
}

// link ends k when other is lost.
func link(other, k *Lock) {
	ended := other.current().Ended()
	h := k.current()                  // without k, so that a dropped one ends
	context.AfterFunc(ended, func() { // it runs once, when other ends
		if err := context.Cause(ended); !errors.Is(err, ErrReleased) {
			h.End(err)
		}
	})
}
