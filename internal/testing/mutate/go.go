package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// swaps has what an operator is replaced by. A comparison is negated, and its bound is moved.
var swaps = map[string][]string{
	"==": {"!="}, "!=": {"=="},
	"<": {">=", "<="}, ">=": {"<", ">"}, ">": {"<=", ">="}, "<=": {">", "<"},
	"+": {"-"}, "-": {"+"}, "*": {"/"}, "/": {"*"}, "<<": {">>"}, ">>": {"<<"},
}

// A goFile finds the mutants of a file in Go.
type goFile struct {
	mutant // of the function that is walked
	set    *token.FileSet
	found  []mutant
}

// goMutants returns the mutants of a file in Go. Each negates a condition, moves a bound, swaps an operator,
// doubles a number, or drops a statement. Locks and unlocks of a mutex stay: no test without the race detector
// can tell.
func goMutants(file, source string) ([]mutant, error) {
	g := &goFile{mutant: mutant{file: file, source: source}, set: token.NewFileSet()}
	parsed, err := parser.ParseFile(g.set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		g.function = ""
		if f, is := d.(*ast.FuncDecl); is {
			g.function = nameOf(f)
		} else if d.(*ast.GenDecl).Tok == token.IMPORT {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool { return n == nil || g.visit(n) })
	}
	return g.found, nil
}

// nameOf returns the name of a function, with its receiver.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// replace adds a mutant that has a text from a position to another.
func (g *goFile) replace(from, to token.Pos, with string) {
	m := g.mutant
	m.from, m.to, m.with = g.set.Position(from).Offset, g.set.Position(to).Offset, with
	m.line = g.set.Position(from).Line
	g.found = append(g.found, m)
}

// visit adds the mutants of a node, apart from those of the nodes in it, and reports whether to visit these.
func (g *goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		for _, other := range swaps[n.Op.String()] {
			g.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other)
		}
		if n.Op == token.LAND || n.Op == token.LOR {
			g.negate(n.X)
			g.negate(n.Y)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.replace(n.Pos(), n.X.Pos(), "")
		}
	case *ast.IfStmt:
		g.negate(n.Cond)
	case *ast.ForStmt:
		g.negate(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, condition := range clause.(*ast.CaseClause).List {
					g.negate(condition)
				}
			}
		}
	case *ast.BasicLit:
		if n.Kind == token.INT || n.Kind == token.FLOAT {
			g.replace(n.Pos(), n.End(), doubled(n.Value))
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			g.replace(n.Pos(), n.End(), other)
		}
	case *ast.BlockStmt:
		g.drop(n.List)
	case *ast.CaseClause:
		g.drop(n.Body)
	case *ast.CommClause:
		g.drop(n.Body)
	case *ast.IndexExpr: // another index fails at once
		ast.Inspect(n.X, func(n ast.Node) bool { return n == nil || g.visit(n) })
		return false
	case *ast.Field: // of a struct or a signature: there is nothing to run
		return false
	}
	return true
}

// negate adds a mutant that negates a condition which has no operator of its own.
func (g *goFile) negate(condition ast.Expr) {
	switch condition.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr, *ast.IndexExpr:
		g.replace(condition.Pos(), condition.Pos(), "!")
	}
}

// drop adds a mutant for each statement that can be left out.
func (g *goFile) drop(statements []ast.Stmt) {
	for _, s := range statements {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if locks(s.X) {
				continue
			}
		case *ast.DeferStmt:
			if locks(s.Call) {
				continue
			}
		case *ast.AssignStmt:
			if to, is := s.Lhs[0].(*ast.Ident); s.Tok == token.DEFINE || is && to.Name == "_" {
				continue
			}
		case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		default:
			continue
		}
		g.replace(s.Pos(), s.End(), "")
	}
}

// locks reports whether a call locks or unlocks a mutex.
func locks(e ast.Expr) bool {
	call, is := e.(*ast.CallExpr)
	if !is {
		return false
	}
	method, is := call.Fun.(*ast.SelectorExpr)
	return is && (method.Sel.Name == "Lock" || method.Sel.Name == "Unlock") && len(call.Args) == 0
}

// doubled returns another number: 1 for 0, or else twice as much.
func doubled(number string) string {
	if number == "0" {
		return "1"
	}
	if n, err := strconv.ParseInt(number, 0, 64); err == nil {
		return strconv.FormatInt(2*n, 10)
	}
	return "2*" + number
}
