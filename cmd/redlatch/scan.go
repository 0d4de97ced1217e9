package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// A scanner finds keys that have the form of locks of this library. What it reads of other keys is
// bounded, whatever they hold.
type scanner struct {
	pattern string
	tell    func(read, found int) // after each page, under mu

	mu      sync.Mutex // guards the fields below
	servers int        // that were read to the end
	read    int        // keys
	found   int        // that may be locks
	hidden  int        // keys that could not be read
	why     error      // the first of them
}

// all scans a server, or each master of a Cluster. It returns what it has found on those that it
// could read to the end, and why it could not read others.
func (s *scanner) all(ctx context.Context, client redis.UniversalClient) (found map[string]*kind, failed []error) {
	servers, err := serversOf(ctx, client)
	if err != nil {
		return nil, []error{explained(err)}
	}
	found = make(map[string]*kind)
	var mu sync.Mutex // guards found and failed
	var scans sync.WaitGroup
	for _, c := range servers {
		scans.Go(func() {
			here, err := s.server(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, of(c, explained(err)))
				return
			}
			maps.Copy(found, here)
		})
	}
	scans.Wait()
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return found, failed
}

// serversOf returns the server of client, or the masters of a Cluster, dead or alive.
func serversOf(ctx context.Context, client redis.UniversalClient) (all []*redis.Client, err error) {
	switch c := client.(type) {
	case *redis.Client:
		return []*redis.Client{c}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex // guards all
		err := c.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master)
			return nil
		})
		return all, err
	}
	return nil, errors.ErrUnsupported
}

// of adds to err which server it is of, unless its text says so.
func of(c *redis.Client, err error) error {
	addr := c.Options().Addr
	switch {
	case addr == "FailoverClient":
		addr = "the primary"
	case strings.Contains(err.Error(), addr):
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}

// explained returns an error of a client as the library words it, with a hint where it has one.
func explained(err error) error {
	err = rediserr.Explain(err)
	if rediserr.Silence(err) {
		err = fmt.Errorf("no reply: %w", err)
	}
	return err
}

const (
	mostOfPage = 200     // keys
	pageSize   = 100_000 // bytes of names, or nearly: long names make smaller pages
)

// server returns what it has found on a server.
func (s *scanner) server(ctx context.Context, c *redis.Client) (map[string]*kind, error) {
	found := make(map[string]*kind)
	cursor, count := uint64(0), int64(100)
	for {
		keys, next, err := c.Scan(ctx, cursor, s.pattern, count).Result()
		if err == nil {
			err = s.page(ctx, c, keys, found)
		}
		switch {
		case err != nil:
			return nil, err
		case next == 0:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.servers++
			return found, nil
		}
		if cursor = next; len(strings.Join(keys, "")) > pageSize {
			count = max(count/2, 10)
		} else {
			count = min(count*2, mostOfPage)
		}
	}
}

// page looks at the keys of a page of SCAN, and adds those of locks to all.
func (s *scanner) page(ctx context.Context, c *redis.Client, keys []string, all map[string]*kind) error {
	read := slices.DeleteFunc(slices.Clone(keys), isCompanion)
	args := []any{wire.LongestValue}
	for _, key := range read {
		args = append(args, key)
	}
	likely, err := c.Eval(ctx, likelyKeys, nil, args...).Slice()
	if err != nil {
		return err
	}
	found, hidden, first := make(map[string]*kind), 0, error(nil)
	owners, asked := c.Pipeline(), map[string]*redis.IntCmd{}
	for _, l := range likely {
		fields, _ := l.([]any)
		number, value, ok := likelyKey(fields)
		if !ok || number > len(read) {
			return fmt.Errorf("unexpected reply: %v fields", len(fields))
		}
		switch key := read[number-1]; {
		case len(fields) > 3:
			hidden, first = hidden+1, cmp.Or(first, error(answer(value)))
		case len(fields) == 3 && isPermit(value, fields[2]):
			found[key] = sharedKind
		case len(fields) == 2 && wire.IsValue(value):
			found[key] = plainKind
		case len(fields) == 2 && timestamp.MatchString(value):
			asked[key] = owners.Exists(ctx, wire.Companion("owner", key))
		}
	}
	if len(asked) > 0 {
		if _, err := owners.Exec(ctx); err != nil && !errors.As(err, new(redis.Error)) {
			return err
		}
	}
	for key, owner := range asked {
		if owner.Val() > 0 {
			found[key] = legacyKind
		}
	}
	maps.Copy(all, found)
	s.add(len(keys), len(found), hidden, first)
	return nil
}

// answer is an error that Redis has answered inside a script.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// likelyKey returns the number of a key, and what likelyKeys read of it.
func likelyKey(fields []any) (number int, value string, ok bool) {
	if len(fields) < 2 {
		return 0, "", false
	}
	n, isNumber := fields[0].(int64)
	value, isText := fields[1].(string)
	return int(n), value, isNumber && isText && n > 0
}

func (s *scanner) add(read, found, hidden int, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.found, s.hidden = s.read+read, s.found+found, s.hidden+hidden
	s.why = cmp.Or(s.why, why)
	s.tell(s.read, s.found)
}

// The forms of what redlatch writes.
var (
	timestamp   = regexp.MustCompile(`^[1-9]\d{9,10}(\.\d+)?$`) // the value of a lock of LegacySetNX
	companionOf = regexp.MustCompile(`(?s)^\{.+\}:(owner|stamp|queue|permits|fence|wanted):(.*)$`)
)

const (
	leastScore = 9e14 // of a permit: the end of its lease, in µs
	zeroOfKept = 9e15 // less this, if the permit is kept after its release
)

// likelyKeys looks at the keys in ARGV, from the second on. It returns those that may be locks: the
// number of the key and its value, or its first member and the score of that, or an error and two
// fields more. Nothing in it is longer than the first of ARGV. The keys are no KEYS, which on a
// Cluster would have to be in one slot.
const likelyKeys = `
local longest, likely, find = tonumber(ARGV[1]), {}, string.find
for i = 2, #ARGV do
  local value, score = redis.pcall('GETRANGE', ARGV[i], '0', ARGV[1]), nil
  if type(value) == 'table' and find(value.err, 'WRONGTYPE') and redis.call('TYPE', ARGV[i]).ok == 'zset' then
    local first = redis.call('ZRANGE', ARGV[i], 0, 0, 'WITHSCORES')
    value, score = first[1] or '', first[2] or ''
  end
  if type(value) == 'table' then
    if not find(value.err, 'WRONGTYPE') then
      table.insert(likely, {i - 1, string.sub(value.err, 1, longest), '', ''})
    end
  elseif #value > 9 and #value <= longest
    and (find(value, '%-[78]%x%x%x%-%x%x%x%x%-%x+$') or find(value, '^%d+%.?%d*$')) then
    table.insert(likely, {i - 1, value, score})
  end
end
return likely`

func isPermit(token string, score any) bool {
	text, _ := score.(string)
	ends, err := strconv.ParseFloat(text, 64)
	if ends < 0 {
		ends += zeroOfKept
	}
	return err == nil && ends >= leastScore && wire.IsValue(token)
}

// isCompanion reports whether a key stands beside a lock.
func isCompanion(key string) bool {
	parts := companionOf.FindStringSubmatch(key)
	return parts != nil && wire.Companion(parts[1], parts[2]) == key
}
