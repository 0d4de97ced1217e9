package scripttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// newLua returns a miniredis whose scripts a Lua of its own runs: Redis, Valkey and miniredis have
// 5.1, others have 5.4.
func newLua(t *testing.T, program string) *backend {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(program + " is not installed: test skipped")
	}
	s := newMiniredis(t, nil)
	client := redis.NewClient(&redis.Options{Addr: s.client.Options().Addr, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	cmd := exec.Command(path, "testdata/engine.lua")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait()
	})
	e := &engine{client, bufio.NewWriter(in), bufio.NewReader(out)}
	made := make(map[string]string)
	for file := range scripts {
		made[file] = clockless + leaving + source(t, file, nil)
	}
	s.eval = func(ctx context.Context, file string, keys []string, args []any) (any, error) {
		return e.eval(ctx, made[file], keys, args)
	}
	return s
}

// An engine is a process that runs scripts. It sends their commands to a server.
type engine struct {
	client *redis.Client
	in     *bufio.Writer
	out    *bufio.Reader
}

// eval runs a script.
func (e *engine) eval(ctx context.Context, source string, keys []string, args []any) (any, error) {
	words := []any{source, fmt.Sprint(len(keys))}
	for _, key := range keys {
		words = append(words, key)
	}
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	write(e.in, words)
	for {
		if err := e.in.Flush(); err != nil {
			return nil, err
		}
		said, err := read(e.out)
		if err != nil {
			return nil, err
		}
		all := said.([]any)
		if all[0] == "done" {
			err, _ := all[1].(error)
			return all[1], err
		}
		reply, err := e.client.Do(ctx, all[1:]...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			reply = err
		}
		write(e.in, reply)
	}
}

// write writes RESP.
func write(w *bufio.Writer, value any) {
	switch v := value.(type) {
	case nil:
		fmt.Fprint(w, "$-1\r\n")
	case error:
		fmt.Fprintf(w, "-%s\r\n", v)
	case int64:
		fmt.Fprintf(w, ":%d\r\n", v)
	case string:
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(v), v)
	case []any:
		fmt.Fprintf(w, "*%d\r\n", len(v))
		for _, one := range v {
			write(w, one)
		}
	default:
		panic(fmt.Sprintf("RESP has no %T", value))
	}
}

// read reads RESP. A double is a text, as for clients that do not know RESP3.
func read(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the engine says no more: %w", err)
	}
	kind, rest := line[0], line[1:len(line)-2]
	n, _ := strconv.ParseInt(rest, 10, 64)
	switch {
	case kind == '-':
		return errors.New(rest), nil
	case kind == ',':
		return rest, nil
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return string(text[:n]), err
	}
	all := make([]any, n)
	for i := range all {
		if all[i], err = read(r); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// differs matches what versions of Lua do not do alike. Where numbers are integers or doubles, a
// quotient is a double, and to compare a number with a string is an error, also in math.max.
var (
	differs = regexp.MustCompile(strings.Join([]string{
		`\b(unpack|loadstring|[sg]etfenv|newproxy|module|goto|utf8)\b`, `//|[&|]|<<|>>|~([^=]|$)`,
		`table\.(getn|setn|maxn|unpack|pack|move)`, `string\.(gfind|pack|unpack)`,
		`math\.(mod|pow|log10|cosh|sinh|tanh|ldexp|frexp|type|tointeger|ult)`,
		`/`, `[<>]=?\s*ARGV`, `ARGV\[\d+\]\s*[<>]`, `math\.(max|min)\((.*,)?\s*ARGV\[\d+\]\s*[,)]`,
	}, "|"))
	alike = regexp.MustCompile(`--.*|'[^']*'|(math\.floor|math\.ceil|tonumber)\(([^()]|\(([^()]|\([^()]*\))*\))*\)`)
)

// unlike returns what versions of Lua do not do alike in a line, or "".
func unlike(line string) string { return differs.FindString(alike.ReplaceAllString(line, "")) }

// TestScriptsUseWhatAllVersionsOfLuaHave is what TestScriptsDoWhatTheModelDoes shows where Lua 5.4
// is installed, as far as a line shows it.
func TestScriptsUseWhatAllVersionsOfLuaHave(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"return unpack(all)", "return #all / 2", "if time[1] // 2 == 0 then", "math.max(redis.call('PTTL', KEYS[1]), ARGV[2])",
		"if held < ARGV[2] then", "if ARGV[2]>=held then", "return ~held", "goto done", "math.min(ARGV[2], 5)",
	} {
		require.NotEmpty(t, unlike(line), line)
	}
	for file, path := range paths(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			require.Empty(t, unlike(strings.TrimSpace(line)), "%s: %s", file, line)
		}
	}
}
