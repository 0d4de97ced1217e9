package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

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

// inspect looks at what is left when all workers have gone home.
func (e *episode) inspect() {
	for _, s := range e.world.servers {
		e.lookForEternal(s)
		for _, key := range s.admin.Keys(context.Background(), "*:queue:*").Val() {
			if strings.Contains(key, e.prefix) && s.admin.ZCard(context.Background(), key).Val() > 0 {
				e.complain(fmt.Sprintf("%q is still queued for", key))
			}
		}
	}
	if len(e.history) < e.ops {
		e.complain(fmt.Sprintf("%d operations in %v: too few to tell", len(e.history), e.limit))
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
	verdict := history.Check(e.history, history.Rules{Exclusion: e.keeping, Fences: e.world.strategy.fenced})
	if err := verdict.Err(); err != nil {
		files, drawErr := verdict.Draw(e.room())
		e.wrong = append(e.wrong, fmt.Sprintf("%v; see %q (%v)", err, files, drawErr))
	}
	if len(e.wrong) > 0 {
		return fmt.Errorf("%s, seed %d: %s", e.world.strategy.name, e.seed, strings.Join(e.wrong, "\n"))
	}
	return nil
}

// autopsy notes who has the locks that somebody still waits for, and where each goroutine stands.
func (e *episode) autopsy(keys []string) {
	for i, s := range e.world.servers {
		for _, key := range keys {
			token := s.admin.Get(context.Background(), key).Val()
			if token == "" {
				continue
			}
			e.complain(fmt.Sprintf("server %d: %q is held by %q for %v, of which is known:", i, key, token,
				s.admin.PTTL(context.Background(), key).Val()))
			for _, op := range e.known(token) {
				e.complain(fmt.Sprintf("  %v by worker %d, %v ago", op.Kind, op.Worker, time.Duration(now()-op.Call)))
			}
		}
	}
	file := filepath.Join(e.room(), "goroutines.txt")
	out := must1(os.Create(file))
	must(pprof.Lookup("goroutine").WriteTo(out, 2))
	must(out.Close())
	e.complain("goroutines: " + file)
}

// known is the history of a token so far.
func (e *episode) known(token string) (ops []history.Op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, op := range e.history {
		if op.Token == token {
			ops = append(ops, op)
		}
	}
	return ops
}

// room is a directory for what is to be looked at after a failure.
func (e *episode) room() string {
	if e.pictures == "" {
		e.pictures = must1(os.MkdirTemp("", "redlatch-history-"))
	}
	return e.pictures
}
