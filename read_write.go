package redlatch

import (
	"math"

	"github.com/redis/go-redis/v9"
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
// The readers of a process share a permit: those who wait for a key are granted it together, and
// for 5 ms, or a hundredth of the TTL if that is less, others join them without a command. A writer
// that waits is overtaken for that long at most. Calls with options of their own do not join.
//
// Readers that share a permit share its lease. It is renewed once for all, and a loss ends all of
// their locks. A reader that joins later shares the lease of the first, so its lock can end up to a
// hundredth of the TTL sooner. [Lock.Extend] of one reader extends the lease for all: if the process
// dies, writers wait until that time has passed, even if that reader has unlocked. The last Unlock
// gives the permit back. An earlier one sends nothing, unless it keeps writers out.
//
// A writer's fence is higher than every earlier fence of the key, those of readers too. A reader's
// fence is higher than that of every earlier writer. Readers that share a permit have the same
// fence. A resource that checks the fences of writes refuses late writers. If it also notes those
// of reads, it refuses a late writer as soon as a later reader has read.
//
// A lock cannot be upgraded. Lock with the ctx of a lock on the same key, of either Locker, would
// wait for itself and fails with [ErrInvalid]: also a reader in a reader, since a writer may
// wait in between. [Lock.UnlockAfter] and [WithMinHold] of a reader keep only writers out. Adopt of
// read acquires a permit of its own if the token still holds one, without waiting, and each of the
// two locks is unlocked by itself. Adopting a token of the other Locker fails with [ErrLost].
//
// [Status] names the holder whose lease ends first, and its Holding all of them. [HeldError] names
// that holder to readers, and to writers the one whose lease ends last. A reader that is refused
// because a writer waits learns of a reader.
//
// A key of a read-write lock is a semaphore, see [NewSemaphore], with its guarantees and limits. So
// the write Locker also excludes the permits that [NewSemaphore] has granted of a key, such as up to
// five workers or one maintenance. Other strategies fail on such a key with WRONGTYPE.
//
// client may be of any kind; on a [redis.Ring] waiters poll. opts are the defaults of both Lockers.
// [WithoutQueue] is refused. The error is [ErrInvalid] for a nil client, or an option that
// cannot work.
func NewReadWrite(client redis.UniversalClient, opts ...Option) (read, write Locker, err error) {
	const op = "new read-write"
	if err := checkClient(client); err != nil {
		return nil, nil, wrap(op, "", err)
	}
	side := func(h traits) (*engine, error) {
		s := newPermits(client, math.MaxInt32)
		h.clients, h.inbox, h.keeps = []redis.UniversalClient{client}, s.inbox, true
		l, err := newEngine(s, h, opts)
		if err != nil {
			return nil, wrap(op, "", err)
		}
		return l.(*engine), nil
	}
	readers, err := side(traits{name: "read", reads: true})
	if err != nil {
		return nil, nil, err
	}
	readers.open.byKey = make(map[string]*lease)
	writers, err := side(traits{name: "write", writes: true, pair: readers})
	if err != nil {
		return nil, nil, err
	}
	return readers, writers, nil
}
