package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

var update = flag.Bool("update", false, "write the vectors anew, as a server replies")

// version is the number of the protocol. README.md says what it promises.
const version = 1

// vectorsOf is a file of vectors. The names in JSON are explained in README.md.
type vectorsOf struct {
	Protocol  int      `json:"protocol"`
	Script    string   `json:"script"`
	Listening string   `json:"listening"`
	Vectors   []vector `json:"vectors"`
}

type vector struct {
	Name     string      `json:"name"`
	Before   state       `json:"before"`
	Keys     []string    `json:"keys"`
	Argv     []string    `json:"argv"`
	Reply    any         `json:"reply"`
	After    state       `json:"after"`
	Messages [][2]string `json:"messages,omitempty"`
}

type state map[string]value

type value struct {
	String *string     `json:"string,omitempty"`
	ZSet   [][2]string `json:"zset,omitempty"` // members with their scores, in order
	PTTL   int64       `json:"pttl"`           // -1: none
}

// A player plays vectors on a server.
type player struct {
	client   *redis.Client
	messages *redis.PubSub
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	p := &player{client: redistest.Start(t).Client(t)}
	p.messages = p.client.Subscribe(t.Context(), there)
	t.Cleanup(func() { _ = p.messages.Close() })
	_, err := p.messages.Receive(t.Context())
	require.NoError(t, err)
	return p
}

func (p *player) now(t *testing.T) int64 {
	t.Helper()
	now, err := p.client.Time(t.Context()).Result()
	require.NoError(t, err)
	return now.UnixMicro()
}

// A played vector has what a server has replied.
type played struct {
	window
	reply    any
	after    map[string]read
	messages [][2]string
}

// read is what a key holds.
type read struct {
	text string
	set  []redis.Z
	pttl int64
}

func (p *player) play(t *testing.T, script string, v vector) (got played) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got.from = p.now(t)
	pipe := p.client.Pipeline()
	pipe.FlushDB(ctx)
	for key, v := range v.Before {
		if v.String != nil {
			pipe.Set(ctx, key, got.fill(*v.String), 0)
		}
		for _, m := range v.ZSet {
			pipe.Do(ctx, "zadd", key, got.fill(m[1]), m[0])
		}
		if v.PTTL > 0 {
			pipe.Do(ctx, "pexpire", key, v.PTTL)
		}
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err, v.Name)
	argv := make([]any, len(v.Argv))
	for i, arg := range v.Argv {
		argv[i] = got.fill(arg)
	}
	got.reply, err = p.client.Eval(ctx, script, v.Keys, argv...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		got.reply = err
	}
	got.after = map[string]read{}
	for _, key := range p.client.Keys(ctx, "*").Val() {
		r := read{pttl: p.client.Do(ctx, "pttl", key).Val().(int64)}
		if p.client.Type(ctx, key).Val() == "zset" {
			r.set = p.client.ZRangeWithScores(ctx, key, 0, -1).Val()
		} else {
			r.text = p.client.Get(ctx, key).Val()
		}
		got.after[key] = r
	}
	got.to = p.now(t)
	require.NoError(t, p.client.Publish(ctx, there, "end").Err())
	for {
		message, err := p.messages.ReceiveMessage(ctx)
		require.NoError(t, err)
		if message.Payload == "end" {
			return got
		}
		got.messages = append(got.messages, [2]string{message.Channel, message.Payload})
	}
}

// differs returns what of a reply and a state is not as a vector says, or "".
func (got played) differs(v vector) string {
	if !got.replied(v.Reply, got.reply) {
		return fmt.Sprintf("the reply is %v", got.reply)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(v.After)), slices.Sorted(maps.Keys(got.after))) {
		return fmt.Sprintf("the keys are %v", got.after)
	}
	for key, want := range v.After {
		r := got.after[key]
		ok := len(r.set) == len(want.ZSet) && (want.String == nil || got.matches(*want.String, r.text))
		for i := range want.ZSet {
			ok = ok && want.ZSet[i][0] == r.set[i].Member && got.matches(want.ZSet[i][1], plain(r.set[i].Score))
		}
		if least, most := got.bounds("left", want.PTTL); !ok || r.pttl > most || r.pttl < least {
			return fmt.Sprintf("%s is %v", key, r)
		}
	}
	same := len(got.messages) == len(v.Messages)
	for i := range v.Messages {
		same = same && got.messages[i][0] == v.Messages[i][0] && got.matches(v.Messages[i][1], got.messages[i][1])
	}
	if !same {
		return fmt.Sprintf("the messages are %v", got.messages)
	}
	return ""
}

func plain(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

// replied compares a reply with its JSON.
func (got played) replied(want, reply any) bool {
	switch want := want.(type) {
	case []any:
		all, ok := reply.([]any)
		ok = ok && len(all) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = got.replied(want[i], all[i])
		}
		return ok
	case map[string]any:
		err, failed := reply.(error)
		return failed && strings.Contains(err.Error(), want["error"].(string))
	case float64:
		return reply == int64(want)
	case string:
		if n, ok := reply.(int64); ok {
			return placeholder.MatchString(want) && got.matches(want, strconv.FormatInt(n, 10))
		}
		return reply == want
	}
	return want == reply
}

// file returns the path of the vectors of a script.
func file(script string) string {
	return filepath.Join("vectors", strings.TrimSuffix(script, ".lua")+".json")
}

func readVectors(t *testing.T, script string) (all vectorsOf) {
	t.Helper()
	text, err := os.ReadFile(file(script))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	require.Equal(t, version, all.Protocol)
	require.Equal(t, script, all.Script)
	require.Equal(t, there, all.Listening)
	return all
}

func scriptText(t *testing.T, script string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("scripts", script))
	require.NoError(t, err)
	return string(text)
}

// TestVectorsAreWhatRedisReplies: each call of each script gives the reply, the keys and the messages that its
// vector says. The vectors are the calls of cases_test.go.
func TestVectorsAreWhatRedisReplies(t *testing.T) {
	t.Parallel()
	p := newPlayer(t)
	count := 0
	for script, cases := range allCases() {
		text := scriptText(t, script)
		if *update {
			record(t, p, script, text, cases)
		}
		all := readVectors(t, script)
		require.Len(t, all.Vectors, len(cases), "%s: -update writes it anew", script)
		for i, v := range all.Vectors {
			asked := cases[i]
			asked.Reply, asked.After, asked.Messages = v.Reply, v.After, v.Messages
			require.Equal(t, asked, v, "%s: -update writes it anew", script)
			if how := p.play(t, text, v).differs(v); how != "" {
				t.Errorf("%s: %s: %s", script, v.Name, how)
			}
			count++
		}
	}
	t.Logf("%d vectors", count)
	require.GreaterOrEqual(t, count, 150)
}

// record writes the vectors of a script anew.
func record(t *testing.T, p *player, script, text string, cases []vector) {
	t.Helper()
	out := bytes.NewBufferString(fmt.Sprintf("{\"protocol\": %d, \"script\": %q, \"listening\": %q, \"vectors\": [",
		version, script, there))
	for i, v := range cases {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n")
		line := bytes.Buffer{}
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(p.play(t, text, v).recorded(script, v)))
		out.Write(bytes.TrimSpace(line.Bytes()))
	}
	out.WriteString("\n]}\n")
	require.NoError(t, os.MkdirAll("vectors", 0o755))
	require.NoError(t, os.WriteFile(file(script), out.Bytes(), 0o644))
}

// TestPlayerNoticesWhatDiffers: a vector with another reply, state or message fails.
func TestPlayerNoticesWhatDiffers(t *testing.T) {
	t.Parallel()
	p := newPlayer(t)
	script := scriptText(t, "release.lua")
	for _, v := range readVectors(t, "release.lua").Vectors {
		if v.Name != "mine, I wait second, released" {
			continue
		}
		got := p.play(t, script, v)
		require.Empty(t, got.differs(v))
		for name, change := range map[string]func(*vector){
			"reply": func(v *vector) { v.Reply = float64(0) }, "type": func(v *vector) { v.Reply = "1" },
			"time":     func(v *vector) { v.After[register] = text("{tick-5000000000}", 86400000) },
			"TTL":      func(v *vector) { v.After[register] = text("{tick}", 1000) },
			"missing":  func(v *vector) { delete(v.After, register) },
			"member":   func(v *vector) { v.After[waiting] = set(60000, entry("", there, third), "{now-3000000}") },
			"score":    func(v *vector) { v.After[waiting] = set(60000, entry("", there, me), "{now-9000000000}") },
			"messages": func(v *vector) { v.Messages = nil },
			"message":  func(v *vector) { v.Messages = [][2]string{{there, "{s} {us} {tick} 1 x"}} },
		} {
			changed := v
			changed.After = maps.Clone(v.After)
			change(&changed)
			require.NotEmpty(t, got.differs(changed), name)
		}
		return
	}
	t.Fatal("no such vector")
}

// TestPythonPlaysTheVectors: the same, with redis-py.
func TestPythonPlaysTheVectors(t *testing.T) {
	t.Parallel()
	program := mustHavePython(t)
	s := redistest.Start(t)
	out, err := exec.CommandContext(t.Context(), program, "python/redlatch_test.py", "unix://"+s.Addr()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
