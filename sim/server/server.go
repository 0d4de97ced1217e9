// Package server has the servers of a simulated world: miniredis with a clock that can be stepped,
// and with the answers of servers in trouble.
package server

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	redis "github.com/alicebob/miniredis/v2/server"

	"github.com/redlatch/redlatch/internal/wire"
)

// ahead is how far the clock of a server is ahead of a bubble of testing/synctest, which begins in
// 2000: fences count from 2026.
const ahead = 27 * 365 * 24 * time.Hour

// A Server is one Redis. It carries out one script at a time.
type Server struct {
	redis *miniredis.Miniredis

	mu      sync.Mutex // held while a script runs, guards the fields below
	clock   clock
	writes  bool // the script has written
	answers []*answer
	mutes   int
	alone   int // faults without a replica
	scripts int
	asking  *redis.Peer // who has sent ASKING last, and no script since
	uses    map[of]*Use
	lua     *interpreter
}

// New returns a server without data. The caller must Close it.
func New() *Server {
	s := &Server{redis: miniredis.NewMiniRedis(), uses: make(map[of]*Use)}
	s.clock = clock{bubble: time.Now(), server: time.Now().Add(ahead), rate: 1}
	conn, err := s.redis.Dial() // which starts it
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
	s.redis.SetTime(s.clock.now())
	s.redis.ClockTTL(true)
	s.redis.Server().SetPreHook(s.before)
	s.lua = newInterpreter(s.redis.Server().Dispatch, s.usedLocked)
	return s
}

// Accept serves a connection.
func (s *Server) Accept(conn net.Conn) error {
	s.redis.Server().ServeConn(conn)
	return nil
}

// Close ends the server.
func (s *Server) Close() {
	s.redis.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lua.close()
}

// Scripts returns how many scripts were carried out.
func (s *Server) Scripts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scripts
}

// before runs before each command, also of a script.
func (s *Server) before(c *redis.Peer, name string, args ...string) (done bool) {
	switch name {
	case "EVAL", "EVALSHA":
		s.script(c, name, args)
		return true
	case "HELLO", "CLIENT":
		return false
	case "ASKING":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = c
		c.WriteOK()
		return true
	case "SUBSCRIBE", "PING":
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.refuses(c, name)
	case "WAIT":
		s.mu.Lock()
		defer s.mu.Unlock()
		c.WriteInt(max(1-s.alone, 0))
		return true
	}
	return s.refuses(c, name) || s.muted(c, name) // a command of a script
}

// script carries out a script while no other one runs.
func (s *Server) script(c *redis.Peer, name string, args []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := s.refuses(c, "EVAL")
	if s.asking == c {
		s.asking = nil
	}
	if refused {
		return
	}
	s.tickLocked()
	s.writes = false
	s.scripts++
	s.lua.eval(c, name, args)
}

// tickLocked gives the time to miniredis, which has a clock that stands still.
func (s *Server) tickLocked() { s.redis.SetTime(s.clock.now()) }

// muted drops a message if PUBLISH is mute.
func (s *Server) muted(c *redis.Peer, name string) bool {
	if name != "PUBLISH" || s.mutes == 0 {
		return false
	}
	c.WriteInt(1)
	return true
}

// Mute has PUBLISH reach nobody, and answer that it has.
func (s *Server) Mute() (heal func()) { return s.count(&s.mutes) }

// Alone has no replica confirm what WAIT asks for. There is one otherwise.
func (s *Server) Alone() (heal func()) { return s.count(&s.alone) }

func (s *Server) count(n *int) (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*n--
	}
}

// ForgetScripts is what a restart does to a server that keeps its data.
func (s *Server) ForgetScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.lua.scripts)
}

// Flush loses all data.
func (s *Server) Flush() { s.redis.FlushAll() }

// Save returns a function that has the server return to the data that it has now.
func (s *Server) Save() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked()
	var then []func()
	for _, key := range s.redis.Keys() {
		left := s.redis.TTL(key)
		if s.redis.DB(0).Type(key) == "zset" {
			scores, _ := s.redis.SortedSet(key) // it is there
			then = append(then, func() {
				for member, score := range scores {
					_, _ = s.redis.ZAdd(key, score, member)
				}
			})
		} else if value, err := s.redis.Get(key); err == nil {
			then = append(then, func() { _ = s.redis.Set(key, value) })
		}
		if left > 0 {
			then = append(then, func() { s.redis.SetTTL(key, left) })
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tickLocked()
		s.redis.FlushAll()
		for _, do := range then {
			do()
		}
	}
}

// Delete deletes a key.
func (s *Server) Delete(key string) { s.redis.Del(key) }

// A Key is what is left under a key.
type Key struct {
	Name string
	TTL  time.Duration // 0: it has none
}

// Keys returns all keys.
func (s *Server) Keys() (keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked()
	for _, name := range s.redis.Keys() {
		keys = append(keys, Key{name, s.redis.TTL(name)})
	}
	return keys
}

// Holders returns the tokens that hold a key: its value, or the members of a sorted set whose time
// has not passed. The scores of those that are kept after their release are 9e15 less.
func (s *Server) Holders(key string) (tokens []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked()
	if s.redis.DB(0).Type(key) != "zset" {
		return s.value(key)
	}
	scores, _ := s.redis.SortedSet(key) // it is there
	for member, score := range scores {
		if score < 0 {
			score += 9e15
		}
		if score > float64(s.clock.now().UnixMicro()) {
			tokens = append(tokens, member)
		}
	}
	return tokens
}

// Entries returns the tokens of the lines that queue in a sorted set. A member that begins with an exclamation mark is
// none.
func (s *Server) Entries(queue string) (tokens []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked()
	members, _ := s.redis.SortedSet(queue) // without a queue there are none
	for member := range members {
		if !strings.HasPrefix(member, "!") {
			tokens = append(tokens, wire.TokenOf(member))
		}
	}
	return tokens
}

// Owner returns the token that holds a key of LegacySetNX, whose value is the time of its end.
func (s *Server) Owner(key string) (tokens []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickLocked()
	tag := key
	if _, rest, found := strings.Cut(key, "{"); found {
		if inner, _, closed := strings.Cut(rest, "}"); closed && inner != "" {
			tag = inner
		}
	}
	for _, end := range s.value(key) {
		if seconds, err := strconv.ParseInt(end, 10, 64); err == nil && s.clock.now().Unix() <= seconds {
			tokens = s.value("{" + tag + "}:owner:" + key)
		}
	}
	return tokens
}

// value returns the value of a key, if it is there.
func (s *Server) value(key string) []string {
	if value, err := s.redis.Get(key); err == nil {
		return []string{value}
	}
	return nil
}
