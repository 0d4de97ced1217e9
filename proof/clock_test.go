package proof

import "time"

// began is read once a process.
var began = time.Now()

// stamp returns t in nanoseconds, as histories want it: by the monotonic clock, counted so that the
// stamps of several processes compare.
func stamp(t time.Time) int64 { return began.UnixNano() + t.Sub(began).Nanoseconds() }

// now is the stamp of this moment.
func now() int64 { return stamp(time.Now()) }
