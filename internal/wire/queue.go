package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Claim returns how long a lock that was handed over lasts at most, unless its new owner extends
// it. It is shorter for an entry with a dash, since its process may be gone.
func Claim(dash bool) time.Duration {
	if dash {
		return time.Second
	}
	return 2 * time.Second
}

// Entry returns the queue entry of a line: the claim that it wants, the channel of its process, and
// its token. limit is the limit of its callers, who want a permit of a semaphore; else 0. dash says
// that PUBSUB NUMSUB does not say whether the process listens.
func Entry(claim time.Duration, limit int, dash bool, channel, token string) string {
	wants := strconv.FormatInt(claim.Milliseconds(), 10)
	if limit > 0 {
		wants += ":" + strconv.Itoa(limit)
	}
	if dash {
		channel = "-" + channel
	}
	return wants + " " + channel + " " + token
}

// TokenOf returns the token of an entry, or "" if it is none.
func TokenOf(entry string) string {
	fields := strings.SplitN(entry, " ", 3)
	if len(fields) != 3 {
		return ""
	}
	return fields[2]
}

// A HandOver is the message of a release that has handed the key to a waiter.
type HandOver struct {
	Token string
	Key   string
	Tick  uint64      // of its fences
	At    clock.Redis // of the release, by the clock of Redis
}

// ParseHandOver reads a message of a release, which announce.lua describes. ok is false for any
// other message.
func ParseHandOver(message string) (h HandOver, ok bool) {
	fields := strings.SplitN(message, " ", 5)
	if len(fields) != 5 {
		return h, false
	}
	var n [4]uint64 // seconds, µs, tick, length of the entry
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], 10, 53); err != nil {
			return h, false
		}
	}
	if n[0] > 1<<33 || n[1] > 999_999 || n[2] >= 1<<47 || n[3] > uint64(len(fields[4])) {
		return h, false
	}
	h.Token, h.Key = TokenOf(fields[4][:n[3]]), fields[4][n[3]:]
	h.Tick, h.At = n[2], clock.RedisAt(int64(n[0]), int64(n[1]))
	return h, h.Token != ""
}
