package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch"
)

const statusUsage = `usage: redlatch status [flags] KEY...

Prints a line for each KEY, with tabs between the columns: KEY, its state, the
owner, the time left, the number of waiters, and how long ago the owner asked.
The state is held, free, or kept: nobody holds KEY, but its min hold keeps
others out. The state of a semaphore or a read-write lock is, for example,
"2 holders" or "1 writer". Lines that begin with a tab follow. Each of these
holders has a line: "holds", its owner, how long ago it asked, and the time left.
Each waiter has a line: "waits", its owner, and how long it has waited.

  -json          print a JSON object for each KEY
` + redisUsage

// status prints who holds keys.
func status(args []string) (int, error) {
	var f redisFlags
	set := flag.NewFlagSet("status", flag.ContinueOnError)
	f.addServersTo(set)
	asJSON := set.Bool("json", false, "")
	keys, err := parse(set, statusUsage, args)
	if err == nil && len(keys) == 0 {
		err = misuse("status", "at least one KEY is required")
	}
	if err != nil {
		return exitUsage, err
	}
	c, err := f.connect("status", redlatch.WithOpTimeout(replyTimeout))
	if err != nil {
		return exitUsage, err
	}
	code := 0
	for _, key := range keys {
		st, err := c.Inspect(context.Background(), key)
		switch {
		case errors.Is(err, redlatch.ErrUnavailable):
			return exitUnavailable, err
		case err != nil:
			complain(err)
			code = exitOf(err)
		case isPattern(key, st):
			complain(patternError("status", key))
			code = exitUsage
		case *asJSON:
			_ = json.NewEncoder(&stdout).Encode(recordOf(key, st))
		default:
			showLine(&stdout, key, st)
		}
	}
	return code, nil
}

// showLine prints the columns of a key, but never the token.
func showLine(w io.Writer, key string, st redlatch.Status) {
	state, owner, left := "free", "-", "-"
	if isTaken(st) {
		state, owner, left = "held", named(st.Owner), timeLeft(st)
	}
	switch {
	case st.Kept:
		state = "kept"
	case writes(st):
		state = "1 writer"
	case len(st.Holding) > 0:
		state = count(st.Holders, "holder")
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", printable(key), state, owner, left, st.Waiters, age(st.Since))
	for _, h := range st.Holding {
		fmt.Fprintf(w, "\tholds\t%s\t%s\t%s\n", named(h.Owner), age(h.Since), rounded(h.TTL))
	}
	for _, waiter := range st.Queue {
		fmt.Fprintf(w, "\twaits\t%s\t%s\n", named(waiter.Owner), rounded(waiter.Waited))
	}
}

// writes reports whether the holder of a key is the writer of a read-write lock.
func writes(st redlatch.Status) bool { return len(st.Holding) > 0 && st.Holding[0].Writes }

// named returns the name of an owner, or a dash.
func named(owner string) string {
	if owner == "" {
		return "-"
	}
	return printable(owner)
}

// age returns how long ago something was, by the clock of this machine.
func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return rounded(max(time.Since(since), 0))
}

// rounded returns a duration as people read it.
func rounded(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// A waiting is a waiter in JSON.
type waiting struct {
	Owner  string        `json:"owner"`
	Waited time.Duration `json:"waited_ns"`
}

// A holding is a holder in JSON. It has no token.
type holding struct {
	Owner  string        `json:"owner"`
	Since  time.Time     `json:"since,omitzero"`
	TTL    time.Duration `json:"ttl_ns"`
	Writes bool          `json:"writes,omitempty"`
}

// A record is a key in JSON. It has no token.
type record struct {
	Key       string        `json:"key"`
	KeyBase64 []byte        `json:"key_base64,omitempty"` // if JSON has no form for Key
	Kind      string        `json:"kind,omitempty"`       // of list
	Held      bool          `json:"held"`
	Kept      bool          `json:"kept"`
	Owner     string        `json:"owner"`
	Since     time.Time     `json:"since,omitzero"`
	TTL       time.Duration `json:"ttl_ns"`
	Waiters   int           `json:"waiters"`
	Queue     []waiting     `json:"queue"`
	Holders   int           `json:"holders"`
	Holding   []holding     `json:"holding,omitempty"` // of a semaphore or a read-write lock
	Votes     int           `json:"votes,omitempty"`   // of list
	Servers   int           `json:"servers,omitempty"` // of list
}

func recordOf(key string, st redlatch.Status) record {
	r := record{
		Key: key, Held: st.Held, Kept: st.Kept, Owner: st.Owner, Since: st.Since, TTL: st.TTL,
		Waiters: st.Waiters, Queue: make([]waiting, len(st.Queue)), Holders: st.Holders,
	}
	if !utf8.ValidString(key) {
		r.KeyBase64 = []byte(key)
	}
	for i, w := range st.Queue {
		r.Queue[i] = waiting(w)
	}
	for _, h := range st.Holding {
		r.Holding = append(r.Holding, holding{h.Owner, h.Since, h.TTL, h.Writes})
	}
	return r
}

// isTaken reports whether somebody holds a key, or a min hold keeps others out.
func isTaken(st redlatch.Status) bool { return st.Held || st.Kept }

// isPattern reports whether a key that is free looks like a pattern.
func isPattern(key string, st redlatch.Status) bool {
	return !isTaken(st) && st.Waiters == 0 && strings.ContainsAny(key, "*?")
}

// patternError says what to do with a pattern.
func patternError(command, key string) error {
	return fmt.Errorf("%s: no key is named %q: to find keys by a pattern, use redlatch list -match", command, key)
}

// timeLeft returns the time that a lock has left, as text.
func timeLeft(st redlatch.Status) string {
	if st.TTL < 0 {
		return "never"
	}
	return st.TTL.String()
}

// printable quotes text that a terminal does not show as it is. Shells such as bash and zsh read the
// form $'…', and give all bytes back.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		char := rest[:size]
		rest = rest[size:]
		switch {
		case r == '\'', r == '\\':
			b.WriteString(`\` + char)
		case r == utf8.RuneError && size == 1, !unicode.IsPrint(r):
			for _, c := range []byte(char) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			b.WriteString(char)
		}
	}
	return "$'" + b.String() + "'"
}
