package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/redlatch/redlatch"
)

const statusUsage = `usage: redlatch status [flags] KEY...

Prints a line for each KEY, with tabs between the columns: KEY, its state, the
owner, the time left, and the number of waiters. The state is held, free, or
kept: nobody holds KEY, but its min hold keeps others out. With -limit it is the
number of holders.

  -json          print a JSON object for each KEY
` + redisUsage

// status prints who holds keys.
func status(args []string) (int, error) {
	var f redisFlags
	set := flag.NewFlagSet("status", flag.ContinueOnError)
	f.addTo(set)
	asJSON := set.Bool("json", false, "")
	keys, err := parse(set, statusUsage, args)
	if err == nil && len(keys) == 0 {
		err = misuse("status", "at least one KEY is required")
	}
	if err != nil {
		return exitUsage, err
	}
	c, err := f.connect("status")
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
		case *asJSON:
			showJSON(os.Stdout, key, st)
		default:
			showLine(os.Stdout, key, st, f.limit)
		}
	}
	return code, nil
}

// showLine prints the columns of a key. limit is that of a semaphore. showLine never prints the token.
func showLine(w io.Writer, key string, st redlatch.Status, limit int) {
	state, owner, left := "free", "-", "-"
	if st.Held {
		state, left = "held", timeLeft(st)
		if isKept(st) {
			state = "kept"
		}
		if st.Owner != "" {
			owner = printable(st.Owner)
		}
	}
	if limit > 0 {
		state = fmt.Sprintf("%d of %d", st.Holders, limit)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", printable(key), state, owner, left, st.Waiters)
}

// showJSON prints a key as a JSON object. It does not encode st itself, which has the token.
func showJSON(w io.Writer, key string, st redlatch.Status) {
	_ = json.NewEncoder(w).Encode(struct {
		Key     string        `json:"key"`
		Held    bool          `json:"held"`
		Kept    bool          `json:"kept"`
		Owner   string        `json:"owner"`
		TTL     time.Duration `json:"ttl_ns"`
		Waiters int           `json:"waiters"`
		Holders int           `json:"holders"`
	}{key, st.Held, isKept(st), st.Owner, st.TTL, st.Waiters, st.Holders})
}

// isKept reports whether nobody holds the key, but its min hold keeps others out.
func isKept(st redlatch.Status) bool { return st.Held && st.Token == "" && st.TTL >= 0 }

// timeLeft returns the time that a lock has left, as text.
func timeLeft(st redlatch.Status) string {
	if st.TTL < 0 {
		return "never"
	}
	return st.TTL.String()
}

// printable quotes text with characters that would break the columns or control the terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
