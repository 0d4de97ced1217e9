package internal_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const internal = "github.com/redlatch/redlatch/internal/"

// doors has how many exported names of a package others may use: functions, types, constants, variables, methods and
// fields. Whoever changes the package must know these uses. A change that needs fewer lowers the number.
var doors = map[string]int{
	"line": 70, "lease": 55, "node": 33, "rediserr": 27, "quorum": 43, "inbox": 16, "wire": 37,
}

// TestOthersUseFewNamesOfAPackage: otherwise the wall between the packages is only on paper.
func TestOthersUseFewNamesOfAPackage(t *testing.T) {
	t.Parallel()
	used := usedNames(t)
	for name, most := range doors {
		require.Len(t, used[internal+name], most, name)
	}
}

// usedNames returns which exported names of each package others of this module use, without their tests.
func usedNames(t *testing.T) map[string]map[string]bool {
	t.Helper()
	used := make(map[string]map[string]bool)
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export", "./...")
	list.Dir = ".."
	out, err := list.Output()
	require.NoError(t, err)
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	var packages []listed
	exports := make(map[string]string)
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages, exports[p.ImportPath] = append(packages, p), p.Export
	}
	set := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(set, "gc", open)}
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath+"/", strings.TrimSuffix(internal, "internal/")) {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
		_, err := config.Check(p.ImportPath, set, files, &info)
		require.NoError(t, err)
		for _, o := range info.Uses {
			if o.Pkg() == nil || o.Pkg().Path() == p.ImportPath || !o.Exported() {
				continue
			}
			of := o.Pkg().Path()
			if used[of] == nil {
				used[of] = make(map[string]bool)
			}
			used[of][nameOf(o)] = true
		}
	}
	return used
}

// nameOf returns the name of an object, with its receiver if it is a method, and a dot before that of a field.
func nameOf(o types.Object) string {
	switch o := o.(type) {
	case *types.Var:
		if o.IsField() {
			return "." + o.Name()
		}
	case *types.Func:
		return o.Origin().FullName()
	}
	return o.Name()
}
