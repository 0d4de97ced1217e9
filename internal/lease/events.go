package lease

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Config is what does not change while a lease lasts. Leases may share one.
type Config struct {
	TTL     time.Duration // to which renewals extend the key
	Asked   time.Duration // the TTL of the acquire
	MaxHold time.Duration // the lease ends then, counted from the grant; 0: it has no limit
	MinHold time.Duration // Unlock keeps others out until then
	Timeout time.Duration // of an extension, at most
	Drift   float64       // see clock.Validity
	Renews  bool
}

const (
	claimLasts = 20 * time.Millisecond // a claim is extended then. Shorter holds save the command
	patience   = 50 * time.Millisecond // the shortest timeout of an extension
	passLasts  = time.Millisecond      // a Tick between two handles comes again then
)

// A phase is what the package comment shows.
type phase uint8

const (
	held phase = iota
	passing
	lost
	released
)

// A stage says who relies on a lease. It only grows.
type stage uint8

const (
	young   stage = iota // the handle alone
	settled              // also who has extended the lease, or may have to renew it
	shared               // also others, who may know the token
)

// Why is the reason for the end of a lease.
type Why uint8

// Why a lease ended.
const (
	None     Why = iota // It has not.
	Unlocked            // Unlock ended it.
	MaxHold             // It lasted as long as it may.
	Fixed               // It was not to be renewed.
	Failing             // Extensions failed.
	Silent              // A renewal had no answer.
	Late                // The process did not renew it in time.
	Gone                // Redis, or the other side of a migration, said so.
)

// An Extension is one command that extends the key.
type Extension struct {
	Renewal bool          // else a caller asked for it
	Start   clock.Instant // when it is sent
	TTL     time.Duration // from then on
	Timeout time.Duration
	Restore time.Duration // a node that has lost the lock restores it for this time; 0: it does not
}

// Release is how an Unlock goes on.
type Release uint8

// How an Unlock goes on.
const (
	Refuse      Release = iota // The handle had ended by Unlock.
	Pass                       // Let the line pass the lock on, or give it back.
	Give                       // Release the key.
	GiveIfThere                // Release the key if it is still there. The lease was lost.
	GiveNothing                // Send nothing. The lease was lost, and another handle may hold the key by the token.
)
