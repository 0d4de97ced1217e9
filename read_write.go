package redlatch

import (
	"context"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
)

// NewReadWrite returns two Lockers over the same keys, on one Redis: a key has any number of
// readers, or one writer.
//
//	read   acquire a permit of a semaphore without a limit, unless a writer has one
//	write  acquire a permit if nobody else has one; the token begins with an exclamation mark
//
// Each [Lock] has its own lease, renewal, loss and Unlock. Both sides are served in the order of
// arrival: a waiting writer keeps later readers back, and a waiting reader later writers. So
// neither side starves. A writer whose process is frozen or cut off keeps readers back for 3 s at
// most.
//
// The readers of a process share a permit: the waiting readers of a key are granted it together. For 5
// ms, or a hundredth of the TTL if that is less, others join them without a command. They overtake a
// waiting writer for at most that time. Calls with other options than their Locker do not join.
//
// Readers that share a permit share its lease. It is renewed once for all, and a loss ends all of
// their locks. A reader that joins later shares the lease of the first, so its lock can end up to a
// hundredth of the TTL sooner. [Lock.Extend] of one reader extends the lease for all: if the process
// dies, writers wait until that time has passed, even if that reader has unlocked. The last Unlock
// gives the permit back. An earlier one sends nothing, unless it keeps writers out for longer than the
// lease lasts: then it extends the lease for all.
//
// A writer's fence is higher than every earlier fence of the key, including readers' fences. A reader's
// fence is higher than the fence of every earlier writer. Readers that share a permit have the same
// fence. A resource that checks the fences of writes refuses late writers. If it also stores the fences
// of reads, it refuses a late writer as soon as a later reader has read.
//
// A lock cannot be upgraded. Lock with the ctx of a lock on the same key, of either Locker, would wait
// for itself and fails with [ErrInvalid]. This includes a reader in a reader, because a writer may wait
// in between. [Lock.UnlockAfter] and [WithMinHold] of a reader keep only writers out. Adopt of read
// acquires its own permit if the token still holds one, without waiting. Each of the two locks needs
// its own Unlock. Adopting a token of the other Locker fails with [ErrLost].
//
// [Status] names the holder whose lease ends first, and its Holding all of them. [HeldError] names
// that holder to readers, and to writers the one whose lease ends last. A reader that is refused
// because a writer waits learns of a reader.
//
// A key of a read-write lock is a semaphore, see [NewSemaphore], with its guarantees and limits. So
// the write Locker also excludes the permits that [NewSemaphore] has granted of a key, such as up to
// five workers or one maintenance. Other strategies fail on such a key with WRONGTYPE.
//
// client may be of any kind; on a [redis.Ring] waiters poll. opts are the defaults of both Lockers. The
// error is [ErrInvalid] for a nil client, for [WithoutQueue], or for another option that cannot work.
func NewReadWrite(client redis.UniversalClient, opts ...Option) (read, write Locker, err error) {
	const op = "new read-write"
	if err := checkClient(client); err != nil {
		return nil, nil, wrap(op, "", err)
	}
	side := func(h traits) (*engine, error) {
		s := newPermits(client, math.MaxInt32)
		h.clients, h.inbox, h.keeps, h.limit = []redis.UniversalClient{client}, s.inbox, true, s.limit
		l, err := newEngine(s, h, opts)
		if err != nil {
			return nil, wrap(op, "", err)
		}
		return l.(*engine), nil
	}
	readers, err := side(traits{name: StrategyRead, reads: true})
	if err != nil {
		return nil, nil, err
	}
	writers, err := side(traits{name: StrategyWrite, writes: true, pair: readers})
	if err != nil {
		return nil, nil, err
	}
	readers.twin, writers.twin = writers, readers
	return readers, writers, nil
}

// The readers of a process share a lease, and so a permit: those who were in line when Redis granted
// it, and those who come soon after, see lease.Lease.Join. All have the fence of the grant. It is
// higher than the fence of any earlier writer, since the permit is held until the last reader has
// left.

// joinReaders returns a lock that a reader of this process shares with r, without a command, or
// nil.
func (e *engine) joinReaders(ctx context.Context, r *request) *Lock {
	if !e.reads || r.cfg.settings != e.cfg.settings {
		return nil
	}
	a := e.newest.of(r.names.lock)
	if a == nil {
		return nil
	}
	k := new(Lock)
	if !a.lease.Join(ctx, &k.handle, &r.cfg.lease, clock.Now()) {
		return nil
	}
	return k
}

// adoptReader acquires a permit for r if token holds one. So no reader ends the lock of another.
func (e *engine) adoptReader(ctx context.Context, r *request, token string) (*Lock, error) {
	a := e.newAttempt(r, false)
	a.acquire.beside = token
	lock, _, err := a.make(ctx)
	r.attempts = 0 // as of any other adoption
	return lock, err
}
