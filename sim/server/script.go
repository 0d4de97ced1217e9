package server

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // the name of a script
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// An interpreter runs the scripts of one server, one at a time.
//
// miniredis makes a Lua state for each run, which takes longer than the script. Here a server has one
// state, and a process compiles each script once.
type interpreter struct {
	state    *lua.LState
	scripts  map[string]*lua.LFunction // by SHA-1
	words    map[string]string         // the first one of each script
	used     func(word string, args []string) (done func())
	dispatch func(c *server.Peer, words []string)

	// The reply to the newest command of the script.
	reply bytes.Buffer
	to    *bufio.Writer
	from  *bufio.Reader
}

// programs has the compiled scripts of all servers, by SHA-1.
var programs sync.Map

func newInterpreter(
	dispatch func(c *server.Peer, words []string), used func(word string, args []string) (done func()),
) *interpreter {
	// The scripts need a small part of the default stacks.
	l := lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1024, CallStackSize: 64})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
		lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	i := &interpreter{state: l, scripts: make(map[string]*lua.LFunction), dispatch: dispatch}
	i.words, i.used = make(map[string]string), used
	i.to, i.from = bufio.NewWriter(&i.reply), bufio.NewReader(&i.reply)
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":        func(l *lua.LState) int { return i.call(func(failed *lua.LTable) { l.Error(failed, 0) }) },
		"pcall":       func(l *lua.LState) int { return i.call(func(failed *lua.LTable) { l.Push(failed) }) },
		"error_reply": func(l *lua.LState) int { l.Push(failure(l.CheckString(1))); return 1 },
	}))
	globals := l.NewTable()
	globals.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	l.SetMetatable(l.G.Global, globals)
	return i
}

// close frees the state.
func (i *interpreter) close() { i.state.Close() }

// eval carries out EVAL or EVALSHA, and writes the reply.
func (i *interpreter) eval(c *server.Peer, name string, args []string) {
	script, sha, err := i.script(name, args)
	if err != nil {
		c.WriteError(err.Error())
		return
	}
	l := i.state
	defer l.SetTop(0)
	defer i.used(i.words[sha], args)()
	count, _ := strconv.Atoi(args[1]) // clients count them
	l.G.Global.RawSetString("KEYS", table(args[2:2+count]))
	l.G.Global.RawSetString("ARGV", table(args[2+count:]))
	l.Push(script)
	if err := l.PCall(0, 1, nil); err != nil {
		c.WriteError(said(err) + " script: " + sha + ", on @user_script:1.")
		return
	}
	write(c, l.Get(1))
}

// script returns the script that args name.
func (i *interpreter) script(name string, args []string) (*lua.LFunction, string, error) {
	sha := args[0]
	if name == "EVAL" {
		sum := sha1.Sum([]byte(args[0])) //nolint:gosec // a name
		sha = hex.EncodeToString(sum[:])
	}
	f := i.scripts[sha]
	switch {
	case f != nil:
	case name != "EVAL":
		return nil, "", errors.New("NOSCRIPT No matching script")
	default:
		program, err := compiled(sha, args[0])
		if err != nil {
			return nil, "", fmt.Errorf("ERR Error compiling script (new function): %w", err)
		}
		f = i.state.NewFunctionFromProto(program)
		i.scripts[sha] = f
		i.words[sha] = firstWord(args[0])
	}
	return f, sha, nil
}

// firstWord returns the first word of the comment at the top of a script.
func firstWord(script string) string {
	words := strings.Fields(strings.TrimPrefix(script, "-- "))
	return words[0]
}

func compiled(sha, text string) (*lua.FunctionProto, error) {
	if program, known := programs.Load(sha); known {
		return program.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(text), "user_script")
	if err != nil {
		return nil, err
	}
	program, err := lua.Compile(chunk, "user_script")
	if err == nil {
		programs.Store(sha, program)
	}
	return program, err
}

// call carries out a command of the script. fail handles an error.
func (i *interpreter) call(fail func(*lua.LTable)) int {
	l := i.state
	words := make([]string, l.GetTop())
	for n := range words {
		words[n] = word(l.Get(n + 1))
	}
	i.dispatch(server.NewPeer(i.to), words)
	_ = i.to.Flush()
	value, err := server.ParseReply(i.from)
	if err != nil {
		text := err.Error()
		if strings.HasPrefix(text, "ERR unknown command") {
			text = "ERR Unknown Redis command called from script"
		}
		fail(failure(text))
		return 1
	}
	l.Push(toLua(value, scoresOf(words)))
	return 1
}

// word returns an argument of a command. Redis writes numbers with up to 17 digits.
func word(value lua.LValue) string {
	if n, is := value.(lua.LNumber); is {
		return number(float64(n))
	}
	return value.String()
}

// number returns a number as Redis 7 writes it, by printf with %.17g.
func number(n float64) string {
	const digits, most = 17, 1e17
	if n == float64(int64(n)) && n > -most && n < most {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n, 'g', digits, 64)
}

// scoresOf reports which parts of the reply to a command are scores: miniredis writes 9e+14, and Redis
// 900000000000000.
func scoresOf(words []string) func(i int) bool {
	switch {
	case words[0] == "ZSCORE":
		return func(int) bool { return true }
	case strings.EqualFold(words[len(words)-1], "WITHSCORES"):
		return func(i int) bool { return i%2 == 1 }
	}
	return func(int) bool { return false }
}

func toLua(value any, score func(i int) bool) lua.LValue {
	switch v := value.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(v)
	case server.Simple:
		t := &lua.LTable{}
		t.RawSetString("ok", lua.LString(v))
		return t
	case string:
		if n, err := strconv.ParseFloat(v, 64); score(0) && err == nil {
			v = number(n)
		}
		return lua.LString(v)
	}
	t := &lua.LTable{}
	for i, e := range value.([]any) {
		t.Append(toLua(e, func(int) bool { return score(i) }))
	}
	return t
}

// write writes what a script returns.
func write(c *server.Peer, value lua.LValue) {
	switch v := value.(type) {
	case lua.LNumber:
		c.WriteInt(int(v))
	case lua.LString:
		c.WriteBulk(string(v))
	case *lua.LTable:
		if failed := v.RawGetString("err"); failed != lua.LNil {
			c.WriteError(failed.String())
			return
		}
		if done := v.RawGetString("ok"); done != lua.LNil {
			c.WriteInline(done.String())
			return
		}
		n := 0 // up to the first that is nil
		for v.RawGetInt(n+1) != lua.LNil {
			n++
		}
		c.WriteLen(n)
		for i := range n {
			write(c, v.RawGetInt(i+1))
		}
	default:
		if value == lua.LTrue {
			c.WriteInt(1)
			return
		}
		c.WriteNull()
	}
}

func table(words []string) *lua.LTable {
	t := &lua.LTable{}
	for _, w := range words {
		t.Append(lua.LString(w))
	}
	return t
}

func failure(text string) *lua.LTable {
	t := &lua.LTable{}
	t.RawSetString("err", lua.LString(text))
	return t
}

// said returns the text of an error that a script has not caught.
func said(err error) string {
	var failed *lua.ApiError
	if !errors.As(err, &failed) {
		return "ERR " + err.Error()
	}
	if t, is := failed.Object.(*lua.LTable); is {
		return t.RawGetString("err").String()
	}
	return "ERR " + failed.Object.String()
}
