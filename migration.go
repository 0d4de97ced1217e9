package redlatch

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/node"
)

// NewMigration returns a Locker that holds every key under both from and to, so that a fleet can
// move from one to the other while it works: processes use from, then NewMigration(from, to), then
// to. Generations that are next to each other exclude each other.
//
//	lock    from, then to while from is held; if from is lost meanwhile, start over
//	unlock  to, then from
//
// A lock ends when either side does, and the other side is renewed no more. Token and Fence are
// those of to, and so is what Inspect reports where both hold the key. The fences of the two have
// no common order: a resource should not compare them while some processes still use from alone.
// Options of a call go to both sides; [WithKeyPrefix] is refused there, since it would give them one
// prefix. Adopt is [errors.ErrUnsupported]: one token cannot prove two locks.
//
// The error is ErrInvalidOption where from or to is nil, or they are the same. Two Lockers that keep
// a key in one place would refuse each other for ever. That is looked for at the first call, with a
// key of its own, and every call is then refused with ErrInvalidOption: give one of them a
// WithKeyPrefix. Do so too where one is on a node of the other's quorum: that is not always found.
func NewMigration(from, to Locker) (Locker, error) {
	for name, l := range map[string]Locker{"from": from, "to": to} {
		if v := reflect.ValueOf(l); l == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, wrap("new migration", "", invalid("%s is nil", name))
		}
	}
	if reflect.ValueOf(from).Comparable() && from == to {
		return nil, wrap("new migration", "", invalid("from and to are one Locker"))
	}
	return &migration{from: from, to: to}, nil
}

// migration is two Lockers as one.
type migration struct {
	from, to Locker
	apart    atomic.Bool // they keep a key in two places
}

// TryLock attempts both sides once.
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
		_ = old.Unlock(ctx) // what cannot be reached ends with its TTL
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
	if err := m.check(ctx, key, opts); err != nil {
		if ctx != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.As(err, new(*node.CutShort)) {
			err = &gaveUp{ctx: node.CtxError(ctx)}
		}
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
			continue // from was lost as to was granted
		}
		lost := old.Err() != nil
		_ = old.Unlock(ctx)
		switch {
		case !lost:
			return nil, err
		case ctx.Err() != nil: // err may tell of the loss
			return nil, wrap("lock", key, &gaveUp{ctx: node.CtxError(ctx)})
		}
	}
}

// Adopt is not supported.
func (m *migration) Adopt(_ context.Context, key, _ string, _ ...Option) (*Lock, error) {
	return nil, wrap("adopt", key, errors.ErrUnsupported)
}

// Inspect reports the holder of both sides, or of the one that is held.
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

// check refuses what cannot work on both sides, and finds out whether they keep a key in one place.
func (m *migration) check(ctx context.Context, key string, opts []Option) error {
	if err := m.vet(ctx, key, opts); err != nil {
		return err
	}
	if ctx == nil || key == "" || m.apart.Load() {
		return nil // what is wrong with ctx and key a Locker says that is not ours
	}
	return m.probe(ctx, key)
}

// vet asks both sides about opts, before anything is sent to either.
func (m *migration) vet(ctx context.Context, key string, opts []Option) error {
	const unset = "\x00"
	cfg, err := config{prefix: unset}.with(opts)
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

// probe locks a key that nobody else knows on both sides. Where one of them refuses it while the other
// holds it, there is one place for it.
func (m *migration) probe(ctx context.Context, key string) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	unknown := key + ":" + id.String() // what may touch key may touch this
	held, trouble := probe(ctx, unknown, m.from, m.to)
	if trouble != nil && !held {
		// To one strategy the key of another is no lock but an error. That one takes it first now.
		held, err = probe(ctx, unknown, m.to, m.from)
		if err == nil {
			trouble = nil
		}
	}
	switch {
	case held:
		return invalid("NewMigration: both Lockers keep %q in one place; give one of them a WithKeyPrefix", key)
	case trouble != nil:
		return trouble
	}
	m.apart.Store(true)
	return nil
}

// probe locks key on first, and meanwhile on second. It reports whether second found it held. The
// error is nil where both had it at one time.
func probe(ctx context.Context, key string, first, second Locker) (held bool, err error) {
	quietly := []Option{WithoutRenewal(), func(cfg *config) error { cfg.hooks = Hooks{}; return nil }}
	one, err := first.TryLock(ctx, key, quietly...)
	if err != nil {
		return false, err
	}
	two, err := second.TryLock(ctx, key, quietly...)
	if err == nil {
		err = one.Err() // a grant of second says nothing if first has ended
		_ = two.Unlock(ctx)
	}
	_ = one.Unlock(ctx)
	return errors.Is(err, ErrNotAcquired), err
}

// joinTo makes old a part of k: either ends when the other is lost, and k's Unlock unlocks both. It
// fails where one of them has ended already.
func (k *Lock) joinTo(old *Lock) error {
	last := k
	for last.from != nil { // to is a migration itself
		last = last.from
	}
	last.from = old
	link(k.lease, old.lease)
	link(old.lease, k.lease)
	return k.Err()
}

// link ends l when other is lost.
func link(other, l *lease) {
	ended := other.context(context.Background())
	// Runs once, when other ends. It reaches no handle, so that a forgotten lock ends.
	context.AfterFunc(ended, func() {
		if err := context.Cause(ended); !errors.Is(err, ErrReleased) {
			l.end(err)
		}
	})
}
