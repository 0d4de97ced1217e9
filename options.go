package redlatch

import (
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/wire"
)

// An Option changes how a lock is acquired and kept. An option of a constructor is a default of the
// Locker. An option of a call overrides that default, but [WithHooks] adds to it. Calls with other
// options than their Locker have their own lines, see [Locker]. For an invalid option, or nil, the
// error matches [ErrInvalid] and names the option and its value. redlatch has then sent nothing. A
// duration above 100 years counts as 100 years.
//
// A call takes back a default of [WithMaxHold], [WithMinHold], [WithMaxWait] or [WithGrace] with 0,
// and a default of [WithOwner] or [WithKeyPrefix] with an empty string. It cannot take back
// [WithoutRenewal], [WithoutQueue], [WithReplicas] or [WithHooks]: calls without these need another
// Locker.
type Option func(*config) error

// config is the outcome of all options of one call.
type config struct {
	settings
	hooks Hooks
	lead  bool // the call is one of Lead

	limited bool // by WithLimit

	// Of the wait. Calls that differ here share a line.
	maxWait   time.Duration // 0: ctx alone bounds it
	waitBegan time.Time     // of the call that this one is a part of; zero: with this one

	// From the settings.
	asked     time.Duration // the TTL of an acquire
	askedMS   any           // asked in ms, as a word: see words
	limitWord any           // limit as a word: see words
	lease     lease.Config
	line      line.Options // with the traits of the Locker
}

// settings are the part of a config that can be compared. Calls with equal settings may share a
// line.
type settings struct {
	ttl       time.Duration
	renew     bool
	maxHold   time.Duration // 0: no limit
	minHold   time.Duration // 0: none
	opTimeout time.Duration // 0: from the TTL
	shortest  time.Duration // of WithPollInterval
	longest   time.Duration
	noQueue   bool
	prefix    string
	owner     string        // see WithOwner
	grace     time.Duration // see WithGrace
	limit     int           // of a caller of a semaphore or read-write lock; 0: there is none

	replication
}

// replication has the arguments of WithReplicas.
type replication struct {
	replicas       int // 0: do not WAIT for any
	replicaTimeout time.Duration
}

func defaults() config {
	return config{settings: settings{
		ttl: 10 * time.Second, renew: true, shortest: 8 * time.Millisecond, longest: 128 * time.Millisecond,
		owner: wire.ProcessName(),
	}}
}

// apply changes cfg by opts.
func (cfg *config) apply(opts []Option) error {
	for i, opt := range opts {
		if opt == nil {
			return invalid("option %d is nil", i)
		}
		if err := opt(cfg); err != nil {
			return err
		}
	}
	if cfg.maxHold > 0 && min(cfg.minHold, clock.Longest) > cfg.maxHold {
		return invalid("WithMinHold(%v): longer than WithMaxHold(%v)", cfg.minHold, cfg.maxHold)
	}
	if cfg.lead {
		cfg.hooks.markLead()
	}
	return nil
}

// derive computes what follows from the settings.
func (cfg *config) derive() {
	minHold := min(cfg.minHold, clock.Longest)
	cfg.asked = max(cfg.ttl, (minHold + time.Millisecond - 1).Truncate(time.Millisecond))
	if cfg.maxHold > 0 {
		cfg.asked = min(cfg.asked, clock.TTLFor(cfg.maxHold, cfg.grace))
	}
	cfg.askedMS, cfg.limitWord = cfg.asked.Milliseconds(), cfg.limit
	cfg.lease = lease.Config{
		TTL: cfg.ttl, Asked: cfg.asked, MaxHold: cfg.maxHold, MinHold: minHold, Timeout: cfg.timeout(),
		Grace: cfg.grace, Renews: cfg.renew, Hooks: &cfg.hooks,
	}
}

// checkGrace refuses a grace that leaves nothing of the TTL, which the strategy may have rounded.
func (cfg *config) checkGrace() error {
	if clock.Validity(cfg.ttl, cfg.grace) <= 0 {
		return invalid("WithGrace(%v): leaves nothing of a TTL of %v", cfg.grace, cfg.ttl)
	}
	return nil
}

// refuseBoth returns an error for WithReplicas and WithLimit, for a strategy that supports neither.
func refuseBoth(strategy string, cfg *config) error {
	switch {
	case cfg.replicas > 0:
		return invalid("WithReplicas(%d, %v): %s does not support it", cfg.replicas, cfg.replicaTimeout, strategy)
	case cfg.limited:
		return refuseLimit(strategy, cfg)
	}
	return nil
}

// refuseLimit returns the error for WithLimit, for a strategy that does not support it.
func refuseLimit(strategy string, cfg *config) error {
	return invalid("WithLimit(%d): %s does not support it", cfg.limit, strategy)
}

// timeout returns how long one command on one node may take.
func (cfg *config) timeout() time.Duration {
	if cfg.opTimeout > 0 {
		return cfg.opTimeout
	}
	return min(max(cfg.ttl/10, 50*time.Millisecond), time.Second)
}

// WithTTL sets how long a lock lasts without renewal. A fraction of a millisecond is cut off. A short
// TTL frees the lock of a crashed process sooner. A long TTL survives a longer outage of Redis. A
// process that is busy or paused for longer than the TTL loses the lock: with a TTL of a second or
// less, expect that under load or garbage collection. A TTL below 10 s also shortens the default of
// [WithOpTimeout], which a busy machine may not meet. Default: 10 s. Minimum: 3 ms. Maximum: 100 years.
func WithTTL(d time.Duration) Option {
	return func(cfg *config) error {
		if d < shortestTTL {
			return invalid("WithTTL(%v): below %v", d, shortestTTL)
		}
		cfg.ttl = min(d, clock.Longest).Truncate(time.Millisecond)
		return nil
	}
}

// shortestTTL leaves something of the lease when the drift is taken off.
const shortestTTL = 3 * time.Millisecond

// WithoutRenewal makes the lock a fixed lease: it ends when its TTL has passed, unless
// [Lock.Extend] is called. By default a lock is renewed every TTL/3 until Unlock. A renewal that only
// checks the key is still sent if the Locker learns of another holder.
func WithoutRenewal() Option {
	return func(cfg *config) error { cfg.renew = false; return nil }
}

// WithMaxHold ends the lock, with [ErrMaxHold], once it has been held for d, despite renewals and
// [Lock.Extend]. Such a lock is not passed on within the process. Default: 0, which means no limit.
// Minimum: 1 ms.
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error {
		if d != 0 && d < time.Millisecond {
			return invalid("WithMaxHold(%v): below 1ms", d)
		}
		cfg.maxHold = d
		return nil
	}
}

// WithMinHold keeps others out for d after the grant, even if the lock is released sooner or its
// process crashes. Use it for a job that several processes start at the same time: if the job ends at
// once, the next process does not run it again. Unlock then works like [Lock.UnlockAfter] for the rest
// of d, which says when the next waiter gets the lock. If the TTL is shorter than d, the first lease
// lasts for d. If the lock is lost, others may get the key sooner. The min hold does not apply to a
// lock that never reached its caller, or that [Do] released without calling fn. d must not be longer
// than [WithMaxHold]. Such a lock is not passed on within the process. Default: 0, which means none.
// Minimum: 1 ms.
func WithMinHold(d time.Duration) Option {
	return func(cfg *config) error {
		if d != 0 && d < time.Millisecond {
			return invalid("WithMinHold(%v): below 1ms", d)
		}
		cfg.minHold = d
		return nil
	}
}

// WithOpTimeout bounds one command on one Redis node, including its retries, whatever the timeouts of
// the client are. If an Unlock gets no reply in that time, redlatch sends the release again in the
// background, for a minute.
//
// The first attempt to acquire on a node, and one each hour, needs two round trips, to learn the clock
// of Redis. It fails with [ErrUnavailable] if they do not fit into d, so d must be more than twice the
// round trip. Default: a tenth of the TTL, at least 50 ms and at most 1 s.
func WithOpTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		if d <= 0 {
			return invalid("WithOpTimeout(%v): not positive", d)
		}
		cfg.opTimeout = min(d, clock.Longest)
		return nil
	}
}

// WithMaxWait bounds the wait of [Locker.Lock], [Do] and [DoAll], and nothing else: fn of Do runs for
// as long as it likes, with a ctx that d does not end. When d has passed, the error matches
// [ErrNotAcquired] or [ErrUnavailable], as for a ctx that ended, but not [context.DeadlineExceeded].
// ctx also bounds the wait, and the error reports its end. Default: 0, which means no bound.
//
// The wait is for a holder, and not for the end of an outage. If no owner has refused a call yet,
// the call returns the error of its first failed attempt. So a call that begins while Redis is out
// of reach takes the time of [WithOpTimeout]. It takes twice that time if it joins other callers that
// wait, or if a Redis with a semaphore hangs.
//
// d counts from the call: for all keys of [DoAll], and for both sides of [NewMigration], which takes
// the shorter one of its two Lockers. If d has passed when a key is granted, [DoAll] makes one attempt
// for each key that is left. Calls with and without it share a line. [Locker.TryLock] and
// [Locker.Adopt] do not wait, so it has no effect on them. [Lead] refuses this option, because a
// follower waits until it leads, and ignores one that was given to its Locker.
func WithMaxWait(d time.Duration) Option {
	return func(cfg *config) error {
		if d < 0 {
			return invalid("WithMaxWait(%v): negative", d)
		}
		cfg.maxWait = d
		return nil
	}
}

// waitingSince lets the time of WithMaxWait count from the call that this one is a part of.
func waitingSince(began time.Time) Option {
	return func(cfg *config) error {
		if cfg.waitBegan.IsZero() {
			cfg.waitBegan = began
		}
		return nil
	}
}

// WithPollInterval sets the pauses of callers that poll: they double from shortest to longest, and half
// of each is random. Callers poll with [NewRedlock], [NewLegacySetNX], a [redis.Ring] or
// [WithoutQueue], if Redis refuses SUBSCRIBE or PUBLISH, if all of them have very little time left, and
// after an error. The first in a queue also polls if the holder is a client of another library. A pause
// is cut short if the holder's lease ends earlier, or if the key often changes hands. After releasing a
// key that others want, or for which more of its own callers wait, a polling Locker waits up to longest
// before it asks for that key again. Default: 8 ms and 128 ms. Minimum: 1 ms. Maximum: a day.
func WithPollInterval(shortest, longest time.Duration) Option {
	return func(cfg *config) error {
		if shortest < time.Millisecond || longest < shortest {
			return invalid("WithPollInterval(%v, %v): not 1ms <= shortest <= longest", shortest, longest)
		}
		cfg.shortest, cfg.longest = min(shortest, longestPoll), min(longest, longestPoll)
		return nil
	}
}

// longestPoll is the longest time that polls are apart, so that multiples of it do not overflow.
const longestPoll = 24 * time.Hour

// WithoutQueue makes a Locker poll at the intervals of [WithPollInterval] instead of queueing. Use it
// for keys that clients of other libraries also lock. They poll, and a lock with a queue is handed from
// one process to the next and never free in between.
//
// A key that is also locked without this option still has a queue, and Unlock hands the lock to the
// first in it. A Locker with the option also queues for a second after it was refused a key that a
// Locker without it held. So each process gets its share while you remove the option process by
// process. [NewSemaphore] and [NewReadWrite] refuse this option.
func WithoutQueue() Option {
	return func(cfg *config) error { cfg.noQueue = true; return nil }
}

// WithKeyPrefix puts prefix before every key in Redis. [Lock.Key], events and errors show the key
// without it. Exception: an error for a key that only its prefix makes invalid. Default: no prefix.
func WithKeyPrefix(prefix string) Option {
	return func(cfg *config) error { cfg.prefix = prefix; return nil }
}

// WithOwner names the owner of the lock for [Status], [HeldError], events and logs: for example a
// service and its host, or a job. The token is then name, a slash and a UUID, so anyone who can read
// the key sees the name. It must be printable, have at most 200 bytes, and not begin with a tilde or an
// exclamation mark. With an empty name the lock has no owner. Default: "<host>:<pid>", such as
// "api-7:4711".
func WithOwner(name string) Option {
	return func(cfg *config) error {
		cfg.owner = name
		if err := wire.CheckOwner(name); err != nil {
			return invalid("WithOwner(%q): %w", name, err)
		}
		return nil
	}
}

// WithGrace ends the lock d before its lease ends in Redis. If the lock is lost, its holder has d to
// stop before others may start. Use it for a leader that takes d to stop. The lock is trusted until
//
//	until = start + TTL − drift − d
//
// It survives outages that are shorter by d, so raise the TTL. If d is more than about a third of the
// TTL, the lock is renewed more often: each time half of the trusted time has passed. Unlock releases
// the key at once. d must leave something of the TTL. Default: 0.
func WithGrace(d time.Duration) Option {
	return func(cfg *config) error {
		if d < 0 {
			return invalid("WithGrace(%v): negative", d)
		}
		cfg.grace = d
		return nil
	}
}

// WithLimit gives a call of a [NewSemaphore] Locker its own limit, such as the limit of a tenant: the
// call gets a permit while fewer than n are held. Callers with equal limits wait in the same lines. n
// is from 1 to [math.MaxInt32]. [Locker.Adopt] asks for no permit, so it ignores n. Other Lockers
// refuse this option, and so do constructors.
//
// If calls have different limits for one key, give the Locker a limit above 1. With a limit of 1 it
// passes its permit on within the process, like a lock, and does not check the permits of others then.
func WithLimit(n int) Option {
	return func(cfg *config) error {
		if !validLimit(n) {
			return invalid("WithLimit(%d): not from 1 to %d", n, math.MaxInt32)
		}
		cfg.limit, cfg.limited = n, true
		return nil
	}
}

// WithReplicas grants a lock only when n replicas have confirmed it within timeout, with the command
// WAIT. A failover to one of them then keeps the lock. A failover to another replica may lose it, and
// so may any failover while a Cluster moves the slot of the key. The minimum is 1 for n and 1 ms for
// timeout. timeout must be less than the ReadTimeout of the client, and than the TTL less 1 %, 2 ms and
// the grace. It extends [WithOpTimeout], and shortens the lease.
//
// If too few confirm, the grant is released and the call fails with [ErrNotReplicated]. A Lock call
// that is already waiting for the key retries instead. Renewals, Extend and Unlock do not WAIT. The
// option works with [NewSetNXPX], [NewSemaphore] and [NewReadWrite] on a *[redis.Client] or a
// *[redis.ClusterClient]. Others refuse it. Such a lock is not passed on within the process.
//
// Calls that WAIT use up to half of the PoolSize of the client. With a PoolSize of 1, and go-redis
// before v9.23, other calls of the client wait for them.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(cfg *config) error {
		if n < 1 || timeout < time.Millisecond {
			return invalid("WithReplicas(%d, %v): below one replica or 1ms", n, timeout)
		}
		cfg.replicas, cfg.replicaTimeout = n, timeout
		return nil
	}
}

// WithHooks adds callbacks that report events of locks. If it is given more than once, all hooks are
// called, in order. The hooks of the Locker run before the hooks of a call.
func WithHooks(h Hooks) Option {
	return func(cfg *config) error { cfg.hooks.add(h); return nil }
}
