package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/rediserr"
)

const listUsage = `usage: redlatch list [flags]

Prints a table of all keys that are locked, or kept by a min hold. KIND is lock,
legacy, shared (a semaphore or readers) or writer. SINCE is the time since OWNER
asked for the lock, and LEFT is what is left of its lease. WAITERS is how many
wait, and LONGEST the longest wait. Keys with the longest waits come first. It
reads every key of the servers once, with SCAN. It exits with 69 if a server
cannot be read.

  -match PATTERN  only keys that match, such as 'import:*'
  -waiting        only keys for which somebody waits
  -long           a line for each holder of a shared key, and for each waiter
  -json           print a JSON object for each key
  -watch          show it again each second, until it is interrupted
  -redis URL      the Redis server to read; with a redis+cluster URL, all masters;
                  repeat it for all servers of a quorum: VOTES then says how many
                  of them have the same holder
  -prefix TEXT    only keys that begin with TEXT, which is not shown
  -cert FILE      a certificate for TLS, if the servers ask for one
  -cert-key FILE  its private key, if that is not in the same file

Without -redis, the environment variable REDIS_URL names the server, or several
separated by spaces. Use it for URLs with passwords.
`

// listFlags are the flags of list.
type listFlags struct {
	redisFlags
	match                         string
	waiting, long, asJSON, always bool
}

// list shows all locks.
func list(args []string) (int, error) {
	f := &listFlags{}
	set := flag.NewFlagSet("list", flag.ContinueOnError)
	f.addServersTo(set)
	set.StringVar(&f.match, "match", "*", "")
	set.BoolVar(&f.waiting, "waiting", false, "")
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
		failed := f.show(context.Background(), clients)
		switch {
		case f.always && stdout.err == nil:
			time.Sleep(time.Until(begin.Add(time.Second)))
		case len(failed) > 0:
			return exitUnavailable, nil
		default:
			return 0, nil
		}
	}
}

// show prints what is held now, and returns what could not be read, which it also prints.
func (f *listFlags) show(ctx context.Context, clients []redis.UniversalClient) (failed []error) {
	begin := time.Now()
	s := f.scanner(begin)
	all, failed := f.read(ctx, s, clients)
	if f.waiting {
		all = slices.DeleteFunc(all, func(l listed) bool { return l.Waiters == 0 })
	}
	slices.SortFunc(all, byWait)
	var notes bytes.Buffer // on stderr
	if s.servers > 0 {
		fmt.Fprintln(&notes, summary(all, s.read, time.Since(begin)))
	}
	if s.hidden > 0 {
		note(&notes, fmt.Errorf("list: %s keys could not be read: %w", thousands(s.hidden), rediserr.Explain(s.why)))
	}
	for _, err := range failed {
		note(&notes, fmt.Errorf("list: %w", err))
	}
	var out bytes.Buffer
	columns, rows := 0, 0
	if f.always && isTerminal(os.Stdout) {
		out.WriteString("\x1b[H\x1b[2J") // to the top of an empty screen
		if columns, rows = sizeOf(os.Stdout); rows > 0 {
			rows = max(rows-screenRows(notes.String(), columns)-1, leastRows)
		}
	}
	if f.asJSON {
		printJSON(&out, all, len(clients))
	} else {
		f.table(all, len(clients)).writeTo(&out, columns, rows)
	}
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\x1b[K") // in place of the progress
	}
	_, _ = stdout.Write(out.Bytes())
	_, _ = os.Stderr.Write(notes.Bytes())
	return failed
}

// read returns what is held on each server, or on the masters of a Cluster, and why some of these
// could not be read.
func (f *listFlags) read(
	ctx context.Context, s *scanner, clients []redis.UniversalClient,
) (all []listed, failed []error) {
	here, errs := make([][]listed, len(clients)), make([][]error, len(clients))
	var reads sync.WaitGroup
	for i, client := range clients {
		reads.Go(func() {
			found, failed := s.all(ctx, client)
			held, err := f.inspect(ctx, client, found)
			if err != nil {
				failed = append(failed, err)
			}
			here[i], errs[i] = held, failed
		})
	}
	reads.Wait()
	for i := range clients {
		all = merge(all, here[i])
		for _, err := range errs[i] {
			if len(clients) > 1 {
				err = fmt.Errorf("server %d: %w", i+1, err)
			}
			failed = append(failed, err)
		}
	}
	return all, failed
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
	inspectors   = 32              // how many keys are inspected at a time
	replyTimeout = 4 * time.Second // for a reply, also of status: the machine may be busy
)

// inspect asks who holds the keys that a scan of client has found.
func (f *listFlags) inspect(
	ctx context.Context, client redis.UniversalClient, found map[string]*kind,
) (all []listed, err error) {
	lockers := make(map[*kind]redlatch.Locker)
	for _, k := range []*kind{plainKind, legacyKind, sharedKind} {
		if lockers[k], err = k.locker(client, redlatch.WithOpTimeout(replyTimeout)); err != nil {
			return nil, err
		}
	}
	lost := 0
	var mu sync.Mutex // guards all, lost and err
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
			case failed == nil && isOurs(st):
				all = append(all, listed{strings.TrimPrefix(key, f.prefix), k, 1, st})
			case failed == nil, errors.Is(failed, rediserr.ErrOtherData), errors.Is(failed, redlatch.ErrInvalid):
				// It is not ours, or not any more.
			default:
				lost, err = lost+1, failed
			}
		})
	}
	asked.Wait()
	if err != nil {
		err = fmt.Errorf("%s could not be read: %w", count(lost, "key"), err)
	}
	return all, err
}

// isOurs reports whether a key is held by a client of redlatch, or kept by one. A key without a
// TTL, or with the token of another library, only looked like that.
func isOurs(st redlatch.Status) bool {
	return isTaken(st) && st.TTL >= 0 && (!st.Since.IsZero() || st.Kept)
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
