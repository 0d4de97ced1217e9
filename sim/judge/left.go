package judge

import (
	"strings"
	"time"
)

// left: "Every key has a TTL, except a lock of `NewLegacySetNX`. These keys outlive the locks:" [...]
// "the *fence register*, for up to 24 hours after the last grant" and "one counter for each key on
// each node, for an hour after the last use". "Once the client is closed, all goroutines of redlatch
// end within a minute of the last `Unlock`."
//
// Keys are looked at two minutes after the last call, and after 25 hours.
func left(h *History, broken func(time.Duration, string, ...any)) {
	var last time.Duration
	whole := make(map[string]bool)
	for _, c := range h.calls {
		last = max(last, c.Begun)
		for _, place := range c.Places {
			whole[place] = whole[place] || c.Whole
		}
	}
	for _, e := range h.Events {
		fence := strings.HasSuffix(e.Text, "redlatch:fence") || strings.Contains(e.Text, ":fence:")
		if e.Kind != Left || whole[e.Text] || fence && e.At < last+24*time.Hour && e.For > 0 {
			continue
		}
		broken(e.At, "%q is left, for %v", e.Text, e.For)
	}
}
