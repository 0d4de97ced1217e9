package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

const listUsage = `usage: redlatch list [flags]

Shows all locks and semaphores of a Redis: who holds each since when, how much
time is left, and who waits. It reads every key once, by SCAN.

  -match PATTERN  only keys that match, such as 'import:*'
  -long           a line for each waiter too
  -json           print a JSON object for each key
  -watch          show it again each second
  -redis URL      a Redis server; repeat it for the servers of a quorum
  -prefix TEXT    only keys that begin with TEXT, which is not shown

Without -redis, the environment variable REDIS_URL names the server, or several
separated by spaces. Use it for URLs with passwords.
`

// listFlags are the flags of list.
type listFlags struct {
	redisFlags
	match                string
	long, asJSON, always bool
}

// list shows all locks.
func list(args []string) (int, error) {
	f := &listFlags{}
	set := flag.NewFlagSet("list", flag.ContinueOnError)
	f.addServersTo(set)
	set.StringVar(&f.match, "match", "*", "")
	set.BoolVar(&f.long, "long", false, "")
	set.BoolVar(&f.asJSON, "json", false, "")
	set.BoolVar(&f.always, "watch", false, "")
	rest, err := parse(set, listUsage, args)
	if err == nil && len(rest) > 0 {
		err = misuse("list", "it has no arguments: use -match")
	}
	if err != nil {
		return exitUsage, err
	}
	clients, err := f.clients("list")
	if err != nil {
		return exitUsage, err
	}
	for {
		begin := time.Now()
		err := f.show(context.Background(), clients)
		switch {
		case f.always && err == nil:
		case f.always:
			complain(err)
		case err != nil:
			return exitUnavailable, err
		default:
			return 0, nil
		}
		time.Sleep(time.Until(begin.Add(time.Second)))
	}
}

// A listed key is held.
type listed struct {
	key   string // without the prefix
	kind  *kind
	votes int // of servers that have the same holder
	redlatch.Status
}

// show prints what is held now. It fails if no server can be read.
func (f *listFlags) show(ctx context.Context, clients []redis.UniversalClient) error {
	begin := time.Now()
	s := f.scanner(begin)
	var all []listed
	var failed error
	dead := 0
	for _, client := range clients {
		s.found = make(map[string]*kind)
		err := s.all(ctx, client)
		if err == nil {
			var here []listed
			here, err = f.inspect(ctx, client, s.found)
			all = merge(all, here)
		}
		if err != nil {
			dead, failed = dead+1, cmp.Or(failed, fmt.Errorf("list: server %d: %w", dead+1, err))
		}
	}
	if dead == len(clients) {
		return failed
	}
	slices.SortFunc(all, func(a, b listed) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.kind.name, b.kind.name))
	})
	var out bytes.Buffer
	if f.always && isTerminal(os.Stdout) {
		out.WriteString("\x1b[H\x1b[2J") // to the top of an empty screen
	}
	f.print(&out, all, len(clients))
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\x1b[K") // in place of the progress
	}
	_, _ = os.Stdout.Write(out.Bytes())
	fmt.Fprintln(os.Stderr, summary(all, s.read, time.Since(begin)))
	if s.hidden > 0 {
		complain(fmt.Errorf("list: %s keys could not be read: %w", thousands(s.hidden), s.why))
	}
	if failed != nil {
		complain(failed)
	}
	return nil
}

// scanner returns one that reports its progress on a terminal, when it has taken for a second.
func (f *listFlags) scanner(begin time.Time) *scanner {
	pattern := glob.Replace(f.prefix) + f.match
	last, shown := begin.Add(time.Second), isTerminal(os.Stderr) && !f.always
	return &scanner{pattern: pattern, tell: func(read, found int) {
		if now := time.Now(); shown && now.Sub(last) > 0 {
			last = now.Add(time.Second / 5)
			fmt.Fprintf(os.Stderr, "\r%s keys read, %s found ", thousands(read), thousands(found))
		}
	}}
}

// glob escapes what has a meaning in a pattern of SCAN.
var glob = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, `\`, `\\`)

const (
	inspectors = 32              // how many keys are inspected at a time
	patience   = 4 * time.Second // for a reply, also of status: the machine may be busy
)

// inspect asks who holds the keys that a scan of client has found.
func (f *listFlags) inspect(
	ctx context.Context, client redis.UniversalClient, found map[string]*kind,
) (all []listed, err error) {
	lockers := make(map[*kind]redlatch.Locker)
	for _, k := range []*kind{plainKind, legacyKind, semaphoreKind} {
		if lockers[k], err = k.locker(client, redlatch.WithOpTimeout(patience)); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex // guards all and err
	var asked sync.WaitGroup
	free := make(chan struct{}, inspectors)
	for key, k := range found {
		free <- struct{}{}
		asked.Go(func() {
			defer func() { <-free }()
			st, failed := lockers[k].Inspect(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(failed, redlatch.ErrUnavailable):
				err = failed
			case failed == nil && isOurs(st):
				all = append(all, listed{strings.TrimPrefix(key, f.prefix), k, 1, st})
			}
		})
	}
	asked.Wait()
	return all, err
}

// isOurs reports whether a key is held by a client of redlatch, or kept by one. A key without a
// TTL, or with the token of another library, only looked like that.
func isOurs(st redlatch.Status) bool {
	return st.Held && st.TTL >= 0 && (!st.Since.IsZero() || isKept(st))
}

// merge adds what another server of a quorum has.
func merge(all, more []listed) []listed {
	for _, m := range more {
		i := slices.IndexFunc(all, func(l listed) bool {
			return l.key == m.key && l.kind == m.kind && l.Token == m.Token
		})
		if i < 0 {
			all = append(all, m)
			continue
		}
		all[i].votes++
		all[i].TTL = max(all[i].TTL, m.TTL)
	}
	return all
}

// print prints a table, or JSON. servers is how many there are.
func (f *listFlags) print(out io.Writer, all []listed, servers int) {
	if f.asJSON {
		for _, l := range all {
			r := recordOf(l.key, l.Status)
			r.Kind, r.Servers = l.kindName(), servers
			r.Votes = l.votes
			_ = json.NewEncoder(out).Encode(r)
		}
		return
	}
	if len(all) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "KEY\tKIND\tOWNER\tSINCE\tLEFT\tWAITERS\tLONGEST")
	if servers > 1 {
		fmt.Fprint(w, "\tVOTES")
	}
	fmt.Fprintln(w)
	for _, l := range all {
		longest := "-"
		if len(l.Queue) > 0 {
			longest = rounded(l.Queue[0].Waited)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s",
			printable(l.key), l.kindName(), l.owners(), age(l.Since), rounded(l.TTL), l.Waiters, longest)
		if servers > 1 {
			fmt.Fprintf(w, "\t%d of %d", l.votes, servers)
		}
		fmt.Fprintln(w)
		for _, waiter := range l.Queue {
			if f.long {
				fmt.Fprintf(w, "\twaits\t%s\t%s\n", named(waiter.Owner), rounded(waiter.Waited))
			}
		}
	}
	_ = w.Flush()
}

// kindName tells a writer from a semaphore. Readers look like the holders of one.
func (l *listed) kindName() string {
	if l.Writer {
		return "writer"
	}
	return l.kind.name
}

// owners names the holder, and counts the others of a semaphore.
func (l *listed) owners() string {
	switch {
	case isKept(l.Status):
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
