package redlatch

// A Strategy says in an [Event] of which kind the Locker is.
type Strategy string

// The strategies. The Locker of [NewMigration] reports the strategies of its
// two Lockers.
const (
	StrategySetNXPX     Strategy = "setnxpx"
	StrategyRedlock     Strategy = "redlock"
	StrategyLegacySetNX Strategy = "legacysetnx"
	StrategySemaphore   Strategy = "semaphore"
	StrategyRead        Strategy = "read"  // of readers, see [NewReadWrite]
	StrategyWrite       Strategy = "write" // of writers, see [NewReadWrite]
)

// A Cause says in one word why [Hooks.Trouble] is called. It is one of these constants, or the first
// word of an error that Redis answered, such as "LOADING" or "ERR". There are few, so a metric can
// have it as an attribute.
type Cause string

// The causes that are no words of Redis.
const (
	CauseFunc       Cause = "fn"         // fn of [Lead] returned an error
	CauseTimeout    Cause = "timeout"    // no reply in time
	CauseConnection Cause = "connection" // no connection, or it broke
	CauseQuorum     Cause = "quorum"     // too few nodes answered
	CauseReplicas   Cause = "replicas"   // too few replicas confirmed the grant, see [WithReplicas]
	CauseSlow       Cause = "slow"       // the grant took longer than the lease lasts
	CausePanic      Cause = "panic"      // a hook, Limiter or OnConnect of the client panicked
	CauseError      Cause = "error"      // an answer of a proxy, which does not begin with a word of Redis
)
