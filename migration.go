package redlatch

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/node"
)

// NewMigration returns a Locker that holds every key under both from and to, so that a fleet can move from one to the
// other without downtime. A migration has three stages: first all processes use the old Locker (from), then
// NewMigration(from, to), then the new Locker (to). Processes of adjacent stages exclude each other.
//
//	lock    first from, then to; start over if from is lost meanwhile
//	unlock  to, then from
//
// A lock ends when either side does, and the other side is not renewed any more. Token and Fence are those of the lock
// on the side of to. If the key is held on both sides, Inspect reports the holder on the side of to. The fences of the
// two sides have no common order: a resource should not compare them while any process is still in the first stage.
// Options of a call go to both sides. A call with [WithKeyPrefix] is refused, since both sides would get the same
// prefix; give it to the constructors of from and to instead. Adopt fails with [errors.ErrUnsupported], since one token
// cannot prove two locks.
//
// The error is ErrInvalidOption if from or to is nil, or if they are the same. Two Lockers that keep a key in the same
// place would block each other. The first call checks for this with a key of its own. If it finds such a pair, it and
// all later calls fail with ErrInvalidOption: give one Locker a WithKeyPrefix. Do the same if one Locker is on a node
// of the other's quorum, since that is not always detected.
func NewMigration(from, to Locker) (Locker, error) {
	for name, l := range map[string]Locker{"from": from, "to": to} {
		if v := reflect.ValueOf(l); l == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, wrap("new migration", "", invalid("%s is nil", name))
		}
	}
	if reflect.ValueOf(from).Comparable() && from == to {
		return nil, wrap("new migration", "", invalid("from and to are the same Locker"))
	}
	return &migration{from: from, to: to}, nil
}

type migration struct {
	from, to Locker
	separate atomic.Bool // the sides are known to keep a key in two places
}

func (m *migration) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	if err := m.check(ctx, key, opts); err != nil {
		return nil, wrap("try lock", key, err)
	}
	old, err := m.from.TryLock(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	lock, err := m.to.TryLock(ctx, key, opts...)
	if err != nil {
		old.withdraw(ctx)
		return nil, err
	}
	if err := lock.joinTo(old); err != nil {
		_ = lock.Unlock(ctx)
		return nil, wrap("try lock", key, err)
	}
	return lock, nil
}

// Lock waits for from, and then for to while from is held.
func (m *migration) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	if err := m.check(ctx, key, slices.Concat(opts, []Option{waits})); err != nil {
		return nil, wrap("lock", key, err)
	}
	for {
		old, err := m.from.Lock(ctx, key, opts...)
		if err != nil {
			return nil, err
		}
		lock, err := m.to.Lock(old.Context(ctx), key, opts...)
		if err == nil {
			if lock.joinTo(old) == nil {
				return lock, nil
			}
			_ = lock.Unlock(ctx)
			continue // from was lost when to was granted
		}
		lost := old.Err() != nil
		_ = old.Unlock(ctx)
		switch {
		case !lost:
			return nil, err
		case ctx.Err() != nil: // err may match the loss
			var wait *gaveUp
			if !errors.As(err, &wait) {
				wait = &gaveUp{}
			}
			return nil, wrap("lock", key, &gaveUp{ctx: node.CtxError(ctx), last: wait.last})
		}
	}
}

func (m *migration) Adopt(_ context.Context, key, _ string, _ ...Option) (*Lock, error) {
	return nil, wrap("adopt", key, errors.ErrUnsupported)
}

// Inspect reports the holder on the side that is held; to if both are.
func (m *migration) Inspect(ctx context.Context, key string) (Status, error) {
	old, err := m.from.Inspect(ctx, key)
	if err != nil {
		return Status{}, err
	}
	st, err := m.to.Inspect(ctx, key)
	if err != nil {
		return Status{}, err
	}
	waiters := old.Waiters + st.Waiters
	if old.Held && !st.Held {
		st = old
	}
	st.Waiters = waiters
	return st, nil
}

// check refuses calls that cannot work on both sides, and finds out whether both keep a key in the same place.
func (m *migration) check(ctx context.Context, key string, opts []Option) error {
	if err := m.vet(ctx, key, opts); err != nil {
		return err
	}
	if ctx == nil || key == "" || m.separate.Load() {
		return nil // a side that is not an engine refuses them itself
	}
	return m.probe(ctx, key)
}

// vet has both sides check opts before anything is sent.
func (m *migration) vet(ctx context.Context, key string, opts []Option) error {
	const unset = "\x00"
	cfg, err := config{settings: settings{prefix: unset}}.with(opts)
	switch {
	case err != nil:
		return err
	case cfg.prefix != unset:
		return invalid("WithKeyPrefix(%q): a call would give both Lockers of a migration one prefix", cfg.prefix)
	}
	for _, side := range []Locker{m.from, m.to} {
		switch side := side.(type) {
		case *engine:
			_, err = side.request(ctx, key, opts)
		case *migration:
			err = side.vet(ctx, key, opts)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe locks a random key on both sides. If one side finds it held while the other holds it, both keep it in the
// same place.
func (m *migration) probe(ctx context.Context, key string) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	unknown := key + ":" + id.String() // behind key, so that the same access rights apply
	held, trouble := probe(ctx, unknown, m.from, m.to)
	if trouble != nil && !held {
		// One strategy may fail on a key of the other. Try the other order.
		held, err = probe(ctx, unknown, m.to, m.from)
		if err == nil {
			trouble = nil
		}
	}
	switch {
	case held:
		return invalid("NewMigration: both Lockers keep %q in the same place: give one of them a WithKeyPrefix", key)
	case trouble != nil:
		return trouble
	}
	m.separate.Store(true)
	return nil
}

// probe locks key on first, and meanwhile on second. held reports whether second found it held. The error is nil if
// both granted it at the same time.
func probe(ctx context.Context, key string, first, second Locker) (held bool, err error) {
	quietly := []Option{WithoutRenewal(), func(cfg *config) error { cfg.hooks = Hooks{}; return nil }}
	one, err := first.TryLock(ctx, key, quietly...)
	if err != nil {
		return false, err
	}
	two, err := second.TryLock(ctx, key, quietly...)
	if err == nil {
		err = one.Err() // if first has ended, a grant of second proves nothing
		_ = two.Unlock(ctx)
	}
	_ = one.Unlock(ctx)
	return errors.Is(err, ErrNotAcquired), err
}

// withdraw gives back a lock of one side, since the other side did not grant it. What the token of the caller held before
// stays.
func (k *Lock) withdraw(ctx context.Context) {
	for ; k != nil; k = k.from {
		if l := k.lease; l.params.callerToken && l.state.again.Load() {
			l.leave()
		} else {
			_ = l.release(ctx, k.number) // if it fails, the key ends with its TTL
		}
	}
}

// joinTo makes old a part of k: each ends when the other is lost, and k's Unlock unlocks both. It fails if one of
// them has already ended.
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
	ended := other.lease.context(context.Background(), other.number)
	l, number := k.lease, k.number    // without k, so that a dropped one ends
	context.AfterFunc(ended, func() { // it runs once, when other ends
		if err := context.Cause(ended); !errors.Is(err, ErrReleased) {
			l.end(number, err)
		}
	})
}
