package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// A listed key is held.
type listed struct {
	key   string // without the prefix
	kind  *kind
	votes int // of servers that have the same holder
	redlatch.Status
}

// longest returns for how long somebody has waited for the key.
func (l *listed) longest() time.Duration {
	if len(l.Queue) == 0 {
		return 0
	}
	return l.Queue[0].Waited
}

// byWait orders keys by their longest waits, and those with the same wait by name.
func byWait(a, b listed) int {
	return cmp.Or(cmp.Compare(b.longest(), a.longest()), strings.Compare(a.key, b.key),
		strings.Compare(a.kind.name, b.kind.name))
}

// printJSON prints an object for each key. servers is how many there are.
func printJSON(out io.Writer, all []listed, servers int) {
	for _, l := range all {
		r := recordOf(l.key, l.Status)
		r.Kind, r.Votes, r.Servers = l.kindName(), l.votes, servers
		_ = json.NewEncoder(out).Encode(r)
	}
}

// table returns a row for each key, and with -long for each holder of a semaphore and each waiter,
// under a row of names. servers is how many there are.
func (f *listFlags) table(all []listed, servers int) (t table) {
	if len(all) == 0 {
		return nil
	}
	t = table{{"KEY", "KIND", "OWNER", "SINCE", "LEFT", "WAITERS", "LONGEST"}}
	if servers > 1 {
		t[0] = append(t[0], "VOTES")
	}
	for _, l := range all {
		longest := "-"
		if len(l.Queue) > 0 {
			longest = rounded(l.longest())
		}
		row := []string{
			printable(l.key), l.kindName(), l.owners(), age(l.Since), rounded(l.TTL), strconv.Itoa(l.Waiters), longest,
		}
		if servers > 1 {
			row = append(row, fmt.Sprintf("%d of %d", l.votes, servers))
		}
		t = append(t, row)
		if !f.long {
			continue
		}
		for _, h := range l.Holding {
			t = append(t, []string{"", "holds", named(h.Owner), age(h.Since), rounded(h.TTL)})
		}
		for _, waiter := range l.Queue {
			t = append(t, []string{"", "waits", named(waiter.Owner), rounded(waiter.Waited)})
		}
	}
	return t
}

// kindName names the kind, or a writer.
func (l *listed) kindName() string {
	if writes(l.Status) {
		return "writer"
	}
	return l.kind.name
}

// owners names the holder, and counts the others of a semaphore.
func (l *listed) owners() string {
	switch {
	case l.Kept:
		return "(kept)"
	case l.Holders > 1:
		return fmt.Sprintf("%s and %d more", named(l.Owner), l.Holders-1)
	}
	return named(l.Owner)
}

// summary says how much was found and read.
func summary(all []listed, read int, took time.Duration) string {
	waiters := 0
	for _, l := range all {
		waiters += l.Waiters
	}
	return fmt.Sprintf("%s, %s; %s read in %s",
		count(len(all), "lock"), count(waiters, "waiter"), count(read, "key"), rounded(took))
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

// thousands prints n with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
