package redlatch

import (
	"time"
)

// An Option changes how a lock is taken and kept. Given to a constructor it is a default of the
// Locker, given to a call it overrides that default. An option that cannot work is reported as
// ErrInvalidOption, with its name and value, before anything is sent.
type Option func(*config) error

// config is what the options of one call come to.
type config struct {
	ttl       time.Duration
	renew     bool
	maxHold   time.Duration // 0: no limit
	minHold   time.Duration // 0: none
	opTimeout time.Duration // 0: from the TTL
	backoff   func(attempt int) time.Duration
	noQueue   bool
	prefix    string
	token     string // empty: a fresh one
	owner     string // what a fresh token begins with; empty: nothing
	drift     float64
	hooks     Hooks

	serverTime bool
	ridingOut  bool // the caller tries again whatever Lock fails with, so Hooks.Trouble reports it

	replicas       int           // 0: none are asked
	replicaTimeout time.Duration // with them
}

func defaults() config {
	return config{ttl: 10 * time.Second, renew: true, drift: 0.01}
}

// with returns cfg changed by opts.
func (cfg config) with(opts []Option) (config, error) {
	for i, opt := range opts {
		if opt == nil {
			return cfg, invalid("option %d is nil", i)
		}
		if err := opt(&cfg); err != nil {
			return cfg, err
		}
	}
	if cfg.maxHold > 0 && cfg.minHold > cfg.maxHold {
		return cfg, invalid("WithMinHold(%v): longer than WithMaxHold(%v)", cfg.minHold, cfg.maxHold)
	}
	return cfg, nil
}

// refuseServerTime returns the error of a strategy that has no use for WithServerTime.
func refuseServerTime(s strategy) error {
	return invalid("WithServerTime: %s keeps no timestamps", s.name())
}

// refuseReplicas refuses WithReplicas for a strategy that has no use for it.
func refuseReplicas(s strategy, cfg *config) error {
	if cfg.replicas > 0 {
		return invalid("WithReplicas(%d, %v): %s asks no replicas", cfg.replicas, cfg.replicaTimeout, s.name())
	}
	return nil
}

// timeout returns how long one command on one node may take.
func (cfg *config) timeout() time.Duration {
	if cfg.opTimeout > 0 {
		return cfg.opTimeout
	}
	return min(max(cfg.ttl/10, 50*time.Millisecond), time.Second)
}

// WithTTL sets how long a lock lasts when nothing renews it: the default is 10 s, the least 1 ms,
// the most a century, and a fraction of a millisecond is cut off. A short TTL frees the lock of a crashed process
// sooner; a long one rides out a longer outage of Redis. One of 2 ms or less is used up by [WithDrift]:
// such a lock is never granted, and the error is ErrLost.
func WithTTL(d time.Duration) Option {
	return func(cfg *config) error {
		if d < time.Millisecond {
			return invalid("WithTTL(%v): below 1ms", d)
		}
		cfg.ttl = min(d, longest).Truncate(time.Millisecond)
		return nil
	}
}

// WithoutRenewal makes the lock a fixed lease: it ends when its TTL has passed, unless
// [Lock.Extend] is called. The default is a renewal every TTL/3 until Unlock.
func WithoutRenewal() Option {
	return func(cfg *config) error {
		cfg.renew = false
		return nil
	}
}

// WithMaxHold ends the lock, with ErrMaxHold, when it was held for d, whatever renews it. The
// default is no limit; the least is 1 ms.
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error {
		if d < time.Millisecond {
			return invalid("WithMaxHold(%v): below 1ms", d)
		}
		cfg.maxHold = d
		return nil
	}
}

// WithMinHold keeps others out for d after the grant, even if the lock is released sooner or its process crashes.
// Use it for a job that several processes start at the same time: one that ends at once is not run again by the
// next. The TTL is at least d. Unlock lets the key last until d has passed, and then a waiter gets the lock. For
// the caller the lock has ended when Unlock returns. A lock that is lost is not kept. The default is 0; the least
// is 1 ms. LegacySetNX refuses it.
func WithMinHold(d time.Duration) Option {
	return func(cfg *config) error {
		if d < time.Millisecond {
			return invalid("WithMinHold(%v): below 1ms", d)
		}
		cfg.minHold = min(d, longest)
		return nil
	}
}

// WithOpTimeout bounds one command on one Redis node, its retries included, whatever the timeouts of the
// client are. The default is a tenth of the TTL, but at least 50 ms and at most 1 s. A release that got no
// reply in that time is sent for as long again, without its caller.
func WithOpTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		if d <= 0 {
			return invalid("WithOpTimeout(%v): not positive", d)
		}
		cfg.opTimeout = min(d, longest)
		return nil
	}
}

// WithBackoff sets the pause after a waiter's attempt-th failed attempt, counted from 1, where it polls: on
// Redlock, LegacySetNX and a Ring, [WithoutQueue], where Redis refuses the channels, and after an error. The
// first waiter of a queue polls too, once the key has changed hands past it, and counts from then on. Other
// waiters in a queue do not call f. A pause is at least 1 ms, and cut short when the holder's lease runs out
// earlier. f may be called from many goroutines.
//
// The default is 4 to 8 ms at random, doubling up to 64 to 128 ms. On Redlock, where nobody hands on, waiters
// that have seen the key change hands more often ask sooner by default, and a Lock of a key that this Locker has
// just released, and that others want, pauses for 64 to 128 ms first, but not for more than a quarter of ctx.
func WithBackoff(f func(attempt int) time.Duration) Option {
	return func(cfg *config) error {
		if f == nil {
			return invalid("WithBackoff(nil)")
		}
		cfg.backoff = f
		return nil
	}
}

// WithoutQueue makes waiters poll at the intervals of [WithBackoff] instead of queueing. Use it for keys that
// clients of other libraries lock too: a lock that redlatch's waiters queue for is handed from one to the next
// and is never free in between, so that clients that poll get it late. Waiters that poll are served in no
// order. Unlock still hands the lock on to whoever queues. Redlock and LegacySetNX never queue. A
// semaphore refuses it, with ErrInvalidOption.
func WithoutQueue() Option {
	return func(cfg *config) error {
		cfg.noQueue = true
		return nil
	}
}

// WithKeyPrefix puts prefix before every key as Redis sees it. [Lock.Key], events and errors show
// the key without it, but for the Key of [QuorumError]. The default is no prefix.
func WithKeyPrefix(prefix string) Option {
	return func(cfg *config) error {
		cfg.prefix = prefix
		return nil
	}
}

// WithToken makes token, instead of a fresh UUID, the proof of ownership of one lock; do not use a token
// again after an Unlock that Redis did not confirm, since that may be carried out later and delete the
// token's next lock. It is for a call, not for a constructor. A process that restarts with the token it
// kept enters its old lock again.
//
// Two owners with one token are one owner to Redis: never share it between contenders. A release with such
// a token is sent once where it may have been carried out, so a connection that breaks can make Unlock
// fail. A failed attempt deletes nothing that the token may have had before, and neither does Unlock of a
// lock that was lost: what they may have left ends with its TTL.
func WithToken(token string) Option {
	return func(cfg *config) error {
		if token == "" {
			return invalid("WithToken(%q): empty", token)
		}
		cfg.token = token
		return nil
	}
}

// WithOwner says who holds the lock, for [Status], [HeldError], events and logs: for example a service and its host, or
// a job. It stands before the UUID of a fresh token, with a slash between, so whoever can read the key sees it.
// name is printable and has 1 to 200 bytes. The default is none. A token of [WithToken] stays as it is.
func WithOwner(name string) Option {
	return func(cfg *config) error {
		cfg.owner = name
		return checkOwner(name)
	}
}

// WithDrift sets the share of the TTL, at least 0 and below 1, that is held back because the
// clocks of this machine and of Redis may not run at one rate. 2 ms are added to it. The default
// is 0.01.
func WithDrift(factor float64) Option {
	return func(cfg *config) error {
		if !(factor >= 0 && factor < 1) {
			return invalid("WithDrift(%v): not in 0 <= factor < 1", factor)
		}
		cfg.drift = factor
		return nil
	}
}

// WithServerTime makes LegacySetNX judge timestamps by the clock of Redis instead of this
// machine's: for fleets whose clocks are not kept together. Other strategies have no use for it
// and refuse it.
func WithServerTime() Option {
	return func(cfg *config) error {
		cfg.serverTime = true
		return nil
	}
}

// WithReplicas has SetNXPX grant a lock only when n replicas of its Redis have confirmed, within
// timeout, that they have it too: Redis is asked to WAIT. A fail-over to one of them then keeps the
// lock; one to another replica may still forget it. n is 1 or more. timeout is 1 ms or more, less
// than the TTL, from which it is taken, and less than the ReadTimeout of the client; [WithOpTimeout]
// does not count it.
//
// Where too few confirm, the grant is given back and the call fails with ErrNotReplicated; one that
// waits already tries again. Renewals, Extend and Unlock ask no replicas. It needs a *[redis.Client] or a
// *[redis.ClusterClient]; with another client and in other strategies it is refused.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(cfg *config) error {
		if n < 1 || timeout < time.Millisecond {
			return invalid("WithReplicas(%d, %v): less than one replica, or than 1ms", n, timeout)
		}
		cfg.replicas, cfg.replicaTimeout = n, timeout
		return nil
	}
}

// WithHooks adds callbacks that report what happens to locks. Those of a call are called after the Locker's.
func WithHooks(h Hooks) Option {
	return func(cfg *config) error {
		cfg.hooks = JoinHooks(cfg.hooks, h)
		return nil
	}
}
