package scripttest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A backend is a server that carries out steps.
type backend struct {
	client   *redis.Client // suffers from faults
	direct   *redis.Client // does not
	messages *redis.PubSub
	eval     func(ctx context.Context, file string, keys []string, args []any) (any, error)
	keys     []string            // that steps use
	scale    int64               // how many ms of its TTLs are one ms of a step
	pass     func(ms, now int64) // lets ms pass; TIME becomes now
	suffer   func(f fault)
}

// newBackend returns a server whose scripts begin with a preamble. It takes the last three
// arguments, which are TIME and the fault.
func newBackend(t *testing.T, client, direct *redis.Client, preamble string, scale int64, b *branches) *backend {
	t.Helper()
	s := &backend{client: client, direct: direct, scale: scale}
	made := make(map[string]*redis.Script)
	for file := range scripts {
		made[file] = redis.NewScript(preamble + source(t, file, b))
	}
	s.eval = func(ctx context.Context, file string, keys []string, args []any) (any, error) {
		return made[file].Run(ctx, s.client, keys, args...).Result()
	}
	s.messages = direct.PSubscribe(t.Context(), "*") // PUBSUB NUMSUB does not count patterns
	t.Cleanup(func() { _ = s.messages.Close() })
	_, err := s.messages.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.messages.Subscribe(t.Context(), listening...))
	for range listening {
		_, err = s.messages.Receive(t.Context())
		require.NoError(t, err)
	}
	return s
}

// leaving is a part of a preamble, for the fault of a slot that moves away.
const leaving = `
local exists = function(key) return redis.call('EXISTS', key) == 1 end
for _, key in ipairs(fault == 'moving' and KEYS or {}) do
  if not exists(key) then return redis.error_reply('TRYAGAIN') end
end
local keyless = {TIME = true, PUBLISH = true, PUBSUB = true, REACHED = true}
local function staying(call, fail)
  if fault ~= 'moving' then return call end
  return function(name, ...)
    for i, key in ipairs({...}) do
      if keyless[name] or i > 1 and name ~= 'DEL' then break end
      if not exists(key) then return fail({err = 'ERR Script attempted to access a non local key in a cluster node'}) end
    end
    return call(name, ...)
  end
end
local redis = {
  call = staying(redis.call, function(e) error(e.err) end),
  pcall = staying(redis.pcall, function(e) return e end),
  error_reply = redis.error_reply,
}
`

// clockless is a preamble for a server whose TIME can be set.
const clockless = `
local fault = table.remove(ARGV)
for _ = 1, 2 do table.remove(ARGV) end
`

// newMiniredis returns a miniredis whose clocks stand still, and which counts branches.
func newMiniredis(t *testing.T, b *branches) *backend {
	m := miniredis.RunT(t)
	var mu sync.Mutex // guards f
	var f faults
	m.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		mu.Lock()
		defer mu.Unlock()
		why := f.refuses(strings.ToLower(cmd))
		if f.fault == unreadable && cmd == "GET" && args[0] == counterKey {
			why = forbidden
		}
		if why != "" {
			p.WriteError(string(why) + " refused")
		}
		return why != ""
	})
	require.NoError(t, m.Server().Register("REACHED", func(p *server.Peer, _ string, args []string) {
		n, _ := strconv.Atoi(args[0])
		b.reach(n)
		p.WriteInt(1)
	}))
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s := newBackend(t, client, client, clockless+leaving+`
local function reached(n) return redis.call('REACHED', n) == 1 end
`, 1, b)
	s.pass = func(ms, now int64) {
		m.FastForward(time.Duration(ms) * time.Millisecond)
		m.SetTime(time.UnixMicro(now))
	}
	s.suffer = func(fault fault) {
		mu.Lock()
		defer mu.Unlock()
		f = faults{fault: fault}
	}
	return s
}

// newRedis returns a redis-server. Its scripts read TIME from their arguments. One ms is 100 s
// there, so that no TTL ends by itself or is a fraction of a ms shorter when it is read.
func newRedis(t *testing.T) *backend {
	srv := redistest.Start(t)
	user := srv.User(t, "~*", "&*", "+@all")
	user.MaxRetries = -1 // it would send again what a replica refuses
	client, direct := redis.NewClient(user), srv.Client(t)
	t.Cleanup(func() { _ = client.Close() })
	const preamble = `
local fault, micros, seconds = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
` + leaving + `
local scale = '00000'
local function wrapped(call)
  return function(name, ...)
    local words = {...}
    if name == 'TIME' then return {seconds, micros} end
    if name == 'GET' and words[1] == 'counter' and fault == 'unreadable' then name = 'UNREADABLE' end
    for i, word in ipairs(words) do
      if name == 'PEXPIRE' and i == 2 or name == 'SET' and words[i - 1] == 'PX' then words[i] = word .. scale end
    end
    local reply = call(name, unpack(words))
    if name == 'PTTL' and reply > 0 then return math.ceil(reply / ('1' .. scale)) end
    return reply
  end
end
local redis = {call = wrapped(redis.call), pcall = wrapped(redis.pcall), error_reply = redis.error_reply}
`
	s := newBackend(t, client, direct, preamble, 100_000, nil)
	do := func(words ...any) { require.NoError(t, direct.Do(t.Context(), words...).Err()) }
	pass := redis.NewScript(preamble + `
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left > 0 and left <= tonumber(ARGV[1]) then
    redis.call('DEL', key)
  elseif left > 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', left - ARGV[1]))
  end
end
`)
	s.pass = func(ms, _ int64) {
		if ms > 0 {
			require.ErrorIs(t, pass.Run(t.Context(), direct, nil, ms, 0, 0, "").Err(), redis.Nil)
		}
	}
	var last fault
	s.suffer = func(f fault) {
		switch max(f, last) {
		case replica:
			if f == replica {
				do("replicaof", "127.0.0.1", 1)
			} else {
				do("replicaof", "no", "one")
			}
		case full:
			do("config", "set", "maxmemory", one(f == full))
		case noPublish, noPubSub, noIncr, noZAdd:
			right := string(max(f, last))
			if f == healthy {
				right = "+" + right[1:]
			}
			do("acl", "setuser", "locks", right)
		}
		last = f
	}
	return s
}

// begin removes all keys.
func (s *backend) begin(t *testing.T) { require.NoError(t, s.direct.FlushAll(t.Context()).Err()) }

// run carries out a step at the time of m, which has not carried it out yet.
func (s *backend) run(t *testing.T, st step, m *model) any {
	s.pass(st.after, m.now)
	w := st.at(m)
	if w[0] == retype {
		require.NoError(t, s.direct.Del(t.Context(), w[1]).Err())
		w = words{"zadd", w[1], "1", "a"}
	}
	if w[0] == crowd {
		set := words{"zadd", w[1]}
		for _, member := range crowded(w) {
			set = append(set, w[2], member)
		}
		w = set
	}
	if !st.isScript() {
		_ = s.direct.Do(t.Context(), asAny(w)...).Err() // a key of another type stays as it is
		return nil
	}
	suffered := st.suffers(m)
	if suffered != healthy {
		s.suffer(suffered)
		defer s.suffer(healthy)
	}
	args := append(asAny(w[1+st.keys:]), m.seconds(), m.micros(), string(suffered))
	reply, err := s.eval(t.Context(), w[0], w[1:1+st.keys], args)
	if err != nil && !errors.Is(err, redis.Nil) {
		return kindOf(err)
	}
	return reply
}

// kindOf returns the failure that an error is.
func kindOf(err error) failure {
	for _, text := range []string{"can't run this command", "no permissions", "nknown"} { // by the version
		if strings.Contains(err.Error(), text) {
			return forbidden
		}
	}
	for _, kind := range []failure{noRegister, noCounter, noTimestamp, noSemaphore, readOnly, outOfMemory, forbidden, wrongType, notAnInteger, tryAgain} {
		if strings.Contains(err.Error(), string(kind)) {
			return kind
		}
	}
	return failure(err.Error())
}

// after returns the keys, as the state of a model does, and the messages since the step before.
func (s *backend) after(t *testing.T) (state string, messages []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pipe := s.direct.Pipeline()
	size := pipe.DBSize(ctx)
	var lines []func() string
	for _, key := range s.keys {
		left, text, set := pipe.PTTL(ctx, key), pipe.Get(ctx, key), pipe.ZRangeWithScores(ctx, key, 0, -1)
		lines = append(lines, func() string {
			v := &value{text: text.Val()}
			for _, z := range set.Val() {
				if v.set == nil {
					v.set = make(map[string]float64)
				}
				v.set[z.Member.(string)] = z.Score
			}
			pttl := int64(left.Val()) // -2: there is no key, -1: it has no TTL
			if pttl > 0 {
				pttl = (left.Val().Milliseconds() + s.scale - 1) / s.scale
			}
			return v.line(key, pttl)
		})
	}
	pipe.Publish(ctx, "end", "")
	_, _ = pipe.Exec(ctx) // half of the commands are for another type of key
	state = fmt.Sprintf("%d keys\n", size.Val())
	for _, line := range lines {
		state += line()
	}
	for {
		message, err := s.messages.ReceiveMessage(ctx)
		require.NoError(t, err)
		switch {
		case message.Channel == "end":
			return state, messages
		case message.Pattern != "":
			messages = append(messages, message.Channel+": "+message.Payload)
		}
	}
}

func asAny(w words) (all []any) {
	for _, word := range w {
		all = append(all, word)
	}
	return all
}
