package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/wire"
)

const watchUsage = `usage: redlatch watch [flags]

Prints a line for each lock that is handed from one process to another, until it
is interrupted, with tabs between the columns: the time, the key, the old owner,
the new owner, the fence, and how long the new owner has waited. It does not see
grants of free keys, or locks that are passed on within a process: these send no
message.

  -match PATTERN  only keys that match, such as 'import:*'
  -redis URL      the Redis server to watch, or its Sentinels or Cluster; locks of
                  a quorum are not handed over
  -prefix TEXT    only keys that begin with TEXT, which is not shown
  -cert FILE      a certificate for TLS, if the servers ask for one
  -cert-key FILE  its private key, if that is not in the same file

Without -redis, the environment variable REDIS_URL names the server.
`

// watchMessages prints hand-overs.
func watchMessages(args []string) (int, error) {
	var f redisFlags
	set := flag.NewFlagSet("watch", flag.ContinueOnError)
	f.addServersTo(set)
	match := set.String("match", "*", "")
	rest, err := parse(set, watchUsage, args)
	if err == nil && len(rest) > 0 {
		err = misuse("watch", "it has no arguments: use -match")
	}
	if err != nil {
		return exitUsage, err
	}
	clients, err := f.clients("watch")
	if err == nil && len(clients) > 1 {
		err = misuse("watch", "it needs one Redis server: locks of a quorum are not handed over")
	}
	if err != nil {
		return exitUsage, err
	}
	w := &watcher{out: &stdout, prefix: f.prefix, match: globbed(*match), owners: make(map[string]string)}
	if client, ok := clients[0].(*redis.Client); ok {
		w.database = client.Options().DB
	}
	return exitUnavailable, w.follow(context.Background(), clients[0].PSubscribe(context.Background(), inbox.Channels))
}

const (
	silenceOf = 5 * time.Second // a subscription that is silent is asked whether it lives
	mostNames = 100_000         // of keys whose owner a watcher remembers
)

// A watcher prints the messages of releases.
type watcher struct {
	out      io.Writer
	database int
	prefix   string
	match    func(key string) bool
	owners   map[string]string // the newest of each key
}

// follow prints what a subscription receives. It returns only if there was never a connection, or if
// a line could not be written.
func (w *watcher) follow(ctx context.Context, sub *redis.PubSub) error {
	connected, broken, asked := false, false, false
	for {
		received, err := sub.ReceiveTimeout(ctx, silenceOf)
		var slow net.Error
		switch got := received.(type) {
		case *redis.Subscription:
			if broken {
				fmt.Fprintln(os.Stderr, "connected again: hand-overs in between were not seen")
			} else if !connected {
				fmt.Fprintln(os.Stderr,
					"watching hand-overs: grants of free keys, and locks passed on within a process, are not seen")
			}
			connected, broken = true, false
		case *redis.Message:
			if inbox.Database(got.Channel) == w.database {
				if err := w.print(got.Payload); err != nil {
					return err
				}
			}
		}
		switch {
		case err == nil:
			asked = false
		case !connected:
			return fmt.Errorf("watch: %w", explained(err))
		case errors.As(err, &slow) && slow.Timeout() && !asked:
			asked = sub.Ping(ctx) == nil
		default:
			if !broken {
				complain(fmt.Errorf("watch: continuing despite an error: %w", explained(err)))
			}
			broken, asked = true, false
			time.Sleep(time.Second)
			_ = sub.Ping(ctx) // on a new connection, if the old one is silent
		}
	}
}

// print prints a line for a message, if it is one of a release of a key that matches.
func (w *watcher) print(message string) error {
	h, ok := wire.ParseHandOver(message)
	key, ours := strings.CutPrefix(h.Key, w.prefix)
	if !ok || !wire.IsValue(h.Token) || !ours || !w.match(key) {
		return nil
	}
	next := wire.Parse(h.Token)
	if len(w.owners) > mostNames {
		clear(w.owners)
	}
	old, at := w.owners[h.Key], h.At.Time()
	w.owners[h.Key] = next.Owner
	_, err := fmt.Fprintf(w.out, "%s\t%s\t%s\t%s\t%d\t%s\n",
		at.Format("15:04:05.000"), printable(key), named(old), named(next.Owner), wire.Fence(h.Tick, 0),
		rounded(max(at.Sub(next.MadeAt), 0)))
	return err
}

// globbed reports whether a key matches a pattern of Redis. Both are bytes, and need not be UTF-8.
func globbed(pattern string) func(key string) bool {
	expression := globExpression(inRunes(pattern))
	return func(key string) bool { return expression.MatchString(inRunes(key)) }
}

// inRunes returns text with a character for each byte.
func inRunes(text string) string {
	runes := make([]rune, len(text))
	for i := range len(text) {
		runes[i] = rune(text[i])
	}
	return string(runes)
}

func globExpression(pattern string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?s)^")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*':
			b.WriteString(".*")
		case c == '?':
			b.WriteString(".")
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		case c == '[' && strings.Contains(pattern[i+1:], "]"):
			set, _, _ := strings.Cut(pattern[i+1:], "]")
			i += len(set) + 1
			negated, set := "", set
			if rest, found := strings.CutPrefix(set, "^"); found {
				negated, set = "^", rest
			}
			b.WriteString("[" + negated + strings.ReplaceAll(regexp.QuoteMeta(set), `\-`, "-") + "]")
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	expression, err := regexp.Compile(b.String() + "$")
	if err != nil { // a set such as [z-a]
		return regexp.MustCompile("^" + regexp.QuoteMeta(pattern) + "$")
	}
	return expression
}
