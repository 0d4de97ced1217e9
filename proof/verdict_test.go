package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/proof/history"
)

// watch looks for keys without a TTL, until it is calm.
func (e *episode) watch(calm context.Context) {
	for calm.Err() == nil {
		for _, s := range e.world.servers {
			if s.busy.TryLock() {
				e.lookForEternal(s)
				s.busy.Unlock()
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (e *episode) lookForEternal(s *server) {
	// A server that is being paused answers later.
	if found, err := e.world.eternal(context.Background(), s); err == nil && len(found) > 0 {
		e.complain(fmt.Sprintf("without a TTL: %q", found))
	}
}

// refill acquires every key as often as it admits holders, and no more often, once all workers have
// ended. Locks that they left expire within the longest TTL. A key may then be held once more, by a
// process that was killed while it also waited.
func (e *episode) refill(keys []string) {
	var clients []redis.UniversalClient
	for _, s := range e.world.servers {
		clients = append(clients, s.admin)
	}
	l := must1(e.world.strategy.make(clients, e.world.strategy.defaults()))
	longest := e.world.strategy.longest()
	ctx, cancel := context.WithTimeout(context.Background(), 2*longest+3*time.Second) // on a busy machine
	defer cancel()
	var crew sync.WaitGroup
	for _, key := range keys {
		crew.Go(func() {
			limit, ask := max(e.world.strategy.holders, 1), wish{ttl: time.Minute, renew: true}
			for i := range limit {
				lock, err := l.lock(ctx, key, ask)
				if err != nil {
					e.complain(fmt.Sprintf("%q was granted %d of %d times at the end: %v", key, i, limit, err))
					return
				}
				defer lock.Unlock(context.Background()) //nolint:errcheck // inspect looks at what is left
			}
			if lock, err := l.tryLock(ctx, key, ask); err == nil {
				e.complain(fmt.Sprintf("%q was granted more than %d times at the end", key, limit))
				_ = lock.Unlock(context.Background()) // as above
			}
		})
	}
	crew.Wait()
}

// inspect checks what is left once all workers have ended.
func (e *episode) inspect() {
	for _, s := range e.world.servers {
		e.lookForEternal(s)
		for _, key := range s.admin.Keys(context.Background(), "*"+e.prefix+"*").Val() {
			queue := strings.Contains(key, ":queue:") || strings.Contains(key, ":permits:")
			if queue && s.admin.ZCard(context.Background(), key).Val() > 0 {
				e.complain(fmt.Sprintf("%q is still queued for", key))
			}
		}
	}
	if e.known < e.ops {
		e.complain(fmt.Sprintf("%d operations with a known outcome in %v: too few to tell", e.known, e.limit))
	}
	if e.world.strategy.passes && e.world.strategy.holders < 2 && !e.steady && e.summary().passes == 0 {
		e.complain("no lock was passed on")
	}
	for _, f := range e.faults {
		if e.struck[f.name] == 0 {
			e.complain("never struck: " + f.name)
		}
	}
}

// judge returns what is wrong, and writes a picture of a history that broke the rules.
func (e *episode) judge() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	verdict := history.Check(e.history, history.Rules{
		Exclusion: e.keeping, Holders: e.world.strategy.holders, Fences: e.world.strategy.fenced,
	})
	if err := verdict.Err(); err != nil {
		files, drawErr := verdict.Draw(e.room())
		e.wrong = append(e.wrong, fmt.Sprintf("%v; see %q (%v)", err, files, drawErr))
	}
	if len(e.wrong) > 0 {
		return fmt.Errorf("%s, seed %d: %s", e.world.strategy.name, e.seed, strings.Join(e.wrong, "\n"))
	}
	return nil
}

// autopsy notes who has the locks that somebody still waits for, and the stack of each goroutine.
func (e *episode) autopsy(keys []string) {
	ctx := context.Background()
	for i, s := range e.world.servers {
		for _, key := range keys {
			tokens := s.admin.ZRange(ctx, key, 0, -1).Val() // of a semaphore
			if token := s.admin.Get(ctx, key).Val(); token != "" {
				tokens = append(tokens, token)
			}
			for _, token := range tokens {
				e.complain(fmt.Sprintf("server %d: %q is held by %q for %v, of which is known:", i, key, token,
					s.admin.PTTL(ctx, key).Val()))
				for _, op := range e.past(token) {
					e.complain(fmt.Sprintf("  %v by worker %d, %v ago", op.Kind, op.Worker, time.Duration(now()-op.Call)))
				}
			}
		}
	}
	file := filepath.Join(e.room(), "goroutines.txt")
	out := must1(os.Create(file))
	must(pprof.Lookup("goroutine").WriteTo(out, 2))
	must(out.Close())
	e.complain("goroutines: " + file)
}

// past is the history of a token so far.
func (e *episode) past(token string) (ops []history.Op) {
	name, _, _ := strings.Cut(token, "/")
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, op := range e.history {
		if op.Token == name {
			ops = append(ops, op)
		}
	}
	return ops
}

// room returns the directory for files that explain a failure.
func (e *episode) room() string {
	if e.pictures == "" {
		e.pictures = must1(os.MkdirTemp("", "redlatch-history-"))
	}
	return e.pictures
}
