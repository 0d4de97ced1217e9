package docs_test

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesInDocCommentsAreLinks: in the comments that document what users import, each mention of an exported name is
// a link, and each link has a target. A word is a mention if it has a capital inside, as HeldError, or a qualifier, as
// Lock.Fence or redlatch.Lock: Lock and Do alone are also words of English. The name that a comment documents needs no
// link, nor do other members of its type, and code, where a parenthesis or a brace follows.
func TestNamesInDocCommentsAreLinks(t *testing.T) {
	all := library{t, map[string]*documented{}}
	for _, dir := range reference {
		p := all.load(dir)
		require.NotNil(t, p, dir)
		require.NotEmpty(t, p.remarks)
		for _, r := range p.remarks {
			all.check(p, r)
		}
	}
}

// A documented package has exported names, and remarks about them.
type documented struct {
	files   *token.FileSet
	parser  *comment.Parser
	names   map[string]bool // of members with their type, as Lock.Fence, and alone
	remarks []remark
}

// A remark is a comment on some names.
type remark struct {
	text  *ast.CommentGroup
	names []string
	of    string // the type that has these, or that is this name
}

// A library has the packages that were loaded.
type library struct {
	t      *testing.T
	loaded map[string]*documented // by path
}

// load parses a package. It returns nil for one that this module does not need: only a nested module does.
func (all library) load(path string) *documented {
	if p, done := all.loaded[path]; done {
		return p
	}
	all.loaded[path] = nil
	found, err := build.Import(path, ".", 0)
	if err != nil {
		return nil
	}
	p := &documented{files: token.NewFileSet(), names: map[string]bool{}}
	all.loaded[path] = p
	parse := func() (files []*ast.File) {
		for _, name := range found.GoFiles {
			file, err := parser.ParseFile(p.files, filepath.Join(found.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(all.t, err)
			files = append(files, file)
		}
		return files
	}
	d, err := doc.NewFromFiles(p.files, parse(), found.ImportPath) // keeps these files
	require.NoError(all.t, err)
	p.parser = d.Parser()
	for _, file := range parse() {
		p.note(remark{text: file.Doc})
		ast.FileExports(file)
		for _, decl := range file.Decls {
			p.declared(decl)
		}
	}
	return p
}

func (p *documented) note(r remark) {
	for _, name := range r.names {
		p.names[name] = true
		if r.of != "" && r.of != name {
			p.names[r.of+"."+name] = true
		}
	}
	if r.text != nil {
		p.remarks = append(p.remarks, r)
	}
}

func (p *documented) declared(decl ast.Decl) {
	fn, ok := decl.(*ast.FuncDecl)
	if ok {
		of := ""
		if fn.Recv != nil {
			of = strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*")
		}
		if of == "" || token.IsExported(of) {
			p.note(remark{fn.Doc, []string{fn.Name.Name}, of})
		}
		return
	}
	all, of := remark{text: decl.(*ast.GenDecl).Doc}, ""
	ast.Inspect(decl, func(node ast.Node) bool {
		var names []*ast.Ident
		var texts []*ast.CommentGroup
		switch node := node.(type) {
		case *ast.TypeSpec:
			of = node.Name.Name
			names, texts = []*ast.Ident{node.Name}, []*ast.CommentGroup{node.Doc, node.Comment}
			all.of = of
		case *ast.ValueSpec:
			names, texts = node.Names, []*ast.CommentGroup{node.Doc, node.Comment}
		case *ast.Field:
			names, texts = node.Names, []*ast.CommentGroup{node.Doc, node.Comment}
		case *ast.FuncType: // its parameters are no members
			return false
		}
		r := remark{of: of}
		for _, name := range names {
			r.names = append(r.names, name.Name)
			if _, member := node.(*ast.Field); !member {
				all.names = append(all.names, name.Name)
			}
		}
		for _, r.text = range texts {
			p.note(r)
		}
		return true
	})
	p.note(all)
}

var (
	words = regexp.MustCompile(`\w+(?:\.\w+)*[({]?`)
	inner = regexp.MustCompile(`[a-z][A-Z]`)
	dead  = regexp.MustCompile(`\[\*?(?:\w+\.)*[A-Z]\w*\]`)
)

// check reports the mentions that are no links, and the links without a target.
func (all library) check(p *documented, r remark) {
	fault := func(word, what string) {
		line := slices.IndexFunc(r.text.List, func(line *ast.Comment) bool { return strings.Contains(line.Text, word) })
		all.t.Errorf("%s: %s %s", p.files.Position(r.text.List[max(line, 0)].Pos()), word, what)
	}
	parts := func(list []comment.Text) {
		for _, part := range list {
			switch part := part.(type) {
			case comment.Plain:
				for _, link := range dead.FindAllString(string(part), -1) {
					fault(link, "has no target")
				}
				for _, word := range words.FindAllString(dead.ReplaceAllString(string(part), ""), -1) {
					if all.mentions(p, r, word) {
						fault(word, "is no link")
					}
				}
			case *comment.DocLink:
				name := strings.TrimPrefix(part.Recv+"."+part.Name, ".")
				if part.ImportPath == "" || name == "" { // the parser knows these
					continue
				}
				if target := all.load(part.ImportPath); target != nil && !target.names[name] {
					fault(name, "has no target in "+part.ImportPath)
				}
			}
		}
	}
	var blocks func(list []comment.Block)
	blocks = func(list []comment.Block) {
		for _, block := range list {
			switch block := block.(type) {
			case *comment.Paragraph:
				parts(block.Text)
			case *comment.Heading:
				parts(block.Text)
			case *comment.List:
				for _, item := range block.Items {
					blocks(item.Content)
				}
			}
		}
	}
	blocks(p.parser.Parse(r.text.Text()).Content)
}

// mentions reports whether a word mentions a name that r is not about.
func (all library) mentions(p *documented, r remark, word string) bool {
	first, rest, qualified := strings.Cut(word, ".")
	if !qualified {
		return p.names[word] && inner.MatchString(word) && !slices.Contains(r.names, word) && !p.names[r.of+"."+word]
	}
	if path, imported := p.parser.LookupPackage(first); imported {
		p, word = all.load(path), rest
	}
	return p != nil && p.names[word]
}

// TestExamplesOfCommonTasksAreWholeFiles: the reference shows these with their imports and types, ready to be copied.
func TestExamplesOfCommonTasksAreWholeFiles(t *testing.T) {
	paths, err := filepath.Glob("example_*_test.go")
	require.NoError(t, err)
	paths = append(paths, "redlatchtest/example_file_test.go")
	var whole []string
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, example := range doc.Examples(file) {
			if _, is := example.Code.(*ast.File); is {
				require.NotEmpty(t, example.Output, path)
				whole = append(whole, cmp.Or(strings.TrimPrefix(example.Name, "_"), file.Name.Name))
			}
		}
	}
	require.Subset(t, whole, []string{"httpHandler", "job", "leader", "redlatchtest_test", "transfer", "workers"})
}
