package lease

import "github.com/redlatch/redlatch/internal/clock"

// doubt says that a command which was sent at asked has shown that the token does not hold the key. It reports whether
// a renewal is due at once. Only Redis can compare, so the answer to the renewal decides. If one is in flight that
// was sent before, another one follows it. What was asked before this process learned of the grant may be older than
// the grant, and is no reason to doubt it.
func (l *core) doubt(asked clock.Mono) (due bool) {
	if l.phase != held || asked.Before(l.opened.Mono) {
		return false
	}
	l.doubted = max(l.doubted, asked)
	return l.inDoubt() && !l.flight
}

// inDoubt reports whether no renewal was sent since the lease was doubted.
func (l *core) inDoubt() bool { return l.renewed.Mono.Before(l.doubted) }

// due reports whether it is time for a renewal.
func (l *core) due(now clock.Instant) bool {
	return l.inDoubt() || l.renewAt != 0 && now.Since(l.renewed) >= l.renewAt
}
