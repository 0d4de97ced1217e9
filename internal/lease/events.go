package lease

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Config has what does not change while a lease lasts. Leases may share one.
type Config struct {
	TTL     time.Duration // to which renewals extend the key
	Asked   time.Duration // the TTL of the acquire
	MaxHold time.Duration // the lease ends then, counted from the grant; 0: it has no limit
	MinHold time.Duration // Unlock keeps others out until then
	Timeout time.Duration // of an extension, at most
	Grace   time.Duration // see clock.Validity
	Renews  bool
	Hooks   any // of the call, for Home.Report
}

const (
	claimLasts   = 20 * time.Millisecond // a claim is extended then. Shorter holds save the command
	leastTimeout = 50 * time.Millisecond // the shortest timeout of an extension
	passLasts    = time.Millisecond      // a tick between two handles comes again then

	joinLasts = 5 * time.Millisecond // other handles may join a lease for this time
	joinShare = 100                  // and for this part of the TTL
)

// A phase is what the package comment shows.
type phase uint8

const (
	held phase = iota
	passing
	lost
	released
)

// A seatCore is the place of a handle in a lease. Its zero value is that of the first handle. A handle
// that passes the lock on leaves its seat to the next one, which has the next number.
type seatCore struct {
	dropsMinHold bool // Unlock does not wait for MinHold

	state  seatState
	handle int32 // small, since an attempt just fits into a size class
}

type seatState uint8

const (
	taken    seatState = iota
	left               // Unlock was called while others shared the lease
	unlocked           // Unlock was called, and the lease has ended
)

// holds reports whether a handle has not left the lease to others. It may have ended with the
// lease.
func (s *seatCore) holds(handle int) bool { return int(s.handle) == handle && s.state != left }

// hasLeft reports whether the newest handle of the seat has left the lease to others.
func (s *seatCore) hasLeft() bool { return s.state == left }

// number returns the number of the newest handle of the seat.
func (s *seatCore) number() int { return int(s.handle) }

// A stage says who relies on a lease. It only grows.
type stage uint8

const (
	young   stage = iota // the handle alone
	settled              // also who has extended the lease, or may have to renew it
	shared               // also others, who may know the token
)

// ending is the reason for the end of a lease.
type ending uint8

// Why a lease ended.
const (
	endNone     ending = iota // It has not.
	endUnlocked               // Unlock ended it.
	endMaxHold                // It lasted as long as it may.
	endFixed                  // It was not to be renewed.
	endFailing                // Extensions failed.
	endSilent                 // A renewal had no answer.
	endDropped                // Nobody had a handle any more.
	endLate                   // The process did not renew it in time.
	endGone                   // Redis, or the other side of a migration, said so.
)

// An Extension is one command that extends the key.
type Extension struct {
	Renewal bool          // else a caller asked for it
	Again   bool          // the extension whose outcome came before failed, too
	Number  int           // of the newest handle of the first seat
	Start   clock.Instant // when it is sent
	TTL     time.Duration // from then on
	Timeout time.Duration
	Restore time.Duration // a node that has lost the lock restores it for this time; 0: it does not

	by caller // nobody: it is a renewal
}

// release is how an Unlock goes on.
type release uint8

// How an Unlock goes on.
const (
	refuse      release = iota // The handle had ended by Unlock.
	passOn                     // Let the line pass the lock on, or give it back.
	giveBack                   // Release the key.
	giveIfThere                // Release the key if it is still there. The lease was lost.
	giveNothing                // Send nothing. After a loss, another handle has given the key back, or may hold it.
	stay                       // Send nothing. Other handles share the lease.
	keepOut                    // Others share the lease. Extend it to keep others out, see send. Then call leave.
)
