package behavior_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestNothingExportedPrintsAToken: no value of an exported type has a token as packages fmt, slog
// and json print it. The values come from use, and each Token that they have room for is filled.
func TestNothingExportedPrintsAToken(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		values := make(map[string][]any)
		add := func(all ...any) {
			for _, v := range all {
				of := reflect.TypeOf(v)
				if of.Kind() == reflect.Pointer {
					of = of.Elem()
				}
				values[of.Name()] = append(values[of.Name()], v)
			}
		}
		var secrets []string
		var events heard
		hooks := redlatch.Hooks{Waiting: events.add, Released: events.add}
		for name, kind := range everyLocker() {
			of := func() redlatch.Locker {
				return made(kind(s.Client(t), redlatch.WithKeyPrefix(name), redlatch.WithOwner("api-7")))
			}
			l := of()
			lock := mustLock(t, of(), "k", redlatch.WithHooks(hooks))
			secrets = append(secrets, string(lock.Token()), strings.TrimPrefix(string(lock.Token()), "api-7/"))
			var next <-chan *redlatch.Lock
			if _, has := queues[name]; has {
				next = waitInLine(t, l, "k", redlatch.WithHooks(hooks))
			}
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err, name)
			_, refused := l.TryLock(t.Context(), "k")
			_, invalid := l.TryLock(t.Context(), "")
			values["Locker"] = append(values["Locker"], l)
			add(lock, *lock, lock.Token(), st)
			for _, w := range st.Queue {
				add(w)
			}
			for _, h := range st.Holding {
				add(h)
			}
			for _, err := range []error{refused, invalid} {
				values["error"] = append(values["error"], err)
				add(err, &redlatch.FuncError{Err: err})
			}
			for queued := range queuedTokens(t, s) {
				secrets = append(secrets, queued)
			}
			require.NoError(t, lock.Unlock(t.Context()))
			if next != nil {
				require.NoError(t, await(t, next, "its turn").Unlock(t.Context()))
			}
		}
		for _, e := range events.all() {
			add(e)
		}
		secret := redlatch.Token(secrets[0])
		add(redlatch.StrategyRead, redlatch.CauseFunc, electing(t, newLocker(t, s.Client(t))))
		add(hooks, redlatch.WithTTL(time.Second), &redlatch.HeldError{Owner: "api-7"}, &redlatch.QuorumError{Key: "k", Nodes: make([]error, 1)})
		for name, all := range values {
			for _, v := range all {
				v = planted(v, secret)
				for what, text := range printed(v) {
					for _, secret := range secrets {
						for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("%d", []byte(secret))} {
							require.NotContains(t, text, form, "%s by %s", name, what)
						}
					}
				}
			}
		}
		require.Subset(t, slices.Collect(maps.Keys(values)), exportedTypes(t, "../../.."), "add what is missing")
		require.Equal(t, redlatch.Token(""), planted(redlatch.Status{}, "").(redlatch.Status).Token)
		require.Equal(t, []string{"…", `"…"`, "…", "", `""`}, []string{
			fmt.Sprint(secret), fmt.Sprintf("%#v", secret), secret.String(), fmt.Sprint(redlatch.Token("")), fmt.Sprintf("%q", redlatch.Token("")),
		})
		require.Equal(t, secrets[0], string(secret))
	})
}

// queuedTokens yields the tokens that wait in a queue of Redis.
func queuedTokens(t *testing.T, s *locktest.Site) map[string]bool {
	tokens := make(map[string]bool)
	for _, key := range s.Direct.Keys(t.Context(), "*").Val() {
		for _, entry := range s.Direct.ZRange(t.Context(), key, 0, -1).Val() {
			if fields := strings.SplitN(entry, " ", 3); len(fields) == 3 {
				tokens[strings.TrimPrefix(fields[2], "api-7/")] = true
			}
		}
	}
	return tokens
}

// planted returns v with each exported Token in it set to a secret, and with an element in each
// slice of structs.
func planted(v any, secret redlatch.Token) any {
	of := reflect.ValueOf(v)
	if of.Kind() == reflect.Pointer {
		if of.Elem().Kind() == reflect.Struct {
			plant(of.Elem(), secret)
		}
		return v
	}
	settable := reflect.New(of.Type()).Elem()
	settable.Set(of)
	plant(settable, secret)
	return settable.Interface()
}

func plant(v reflect.Value, secret redlatch.Token) {
	switch {
	case !v.CanSet():
	case v.Type() == reflect.TypeFor[redlatch.Token]():
		v.SetString(string(secret))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			plant(v.Field(i), secret)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), secret)
	}
}

// printed returns how packages print v.
func printed(v any) map[string]string {
	texts := make(map[string]string)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%20.30s", "% x"} {
		texts[verb] = fmt.Sprintf(verb, v)
		texts[verb+" in a slice"] = fmt.Sprintf(verb, []any{v})
		texts[verb+" in an error"] = fmt.Errorf(verb, v).Error()
	}
	text, _ := json.Marshal(v) // Hooks have no form in JSON
	texts["json"] = string(text)
	text, _ = xml.Marshal(v)
	texts["xml"] = string(text)
	var text1, text2 strings.Builder
	slog.New(slog.NewTextHandler(&text1, nil)).Error("text", "v", v, "group", slog.GroupValue(slog.Any("v", v)))
	slog.New(slog.NewJSONHandler(&text2, nil)).Error("json", "v", v)
	texts["slog text"], texts["slog json"] = text1.String(), text2.String()
	return texts
}

// exportedTypes returns the names of the exported types of the package in dir.
func exportedTypes(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, fs.ErrNotExist)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			of, ok := decl.(*ast.GenDecl)
			if !ok || of.Tok != token.TYPE {
				continue
			}
			for _, spec := range of.Specs {
				if name := spec.(*ast.TypeSpec).Name; name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}
