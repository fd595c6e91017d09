package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// source is one parsed file that is neither a test nor generated.
type source struct {
	pkg  pkg
	name string // path below the module
	fset *token.FileSet
	file *ast.File
}

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func parseAll(t *testing.T) []source {
	t.Helper()
	var out []source
	fset := token.NewFileSet()
	for _, p := range listPackages(t) {
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Errorf("parse: %v", err)
				continue
			}
			if !ast.IsGenerated(f) {
				out = append(out, source{pkg: p, name: filepath.Join(p.path(), name), fset: fset, file: f})
			}
		}
	}
	return out
}

func TestSizes(t *testing.T) {
	for _, s := range parseAll(t) {
		if n := s.line(s.file.FileEnd); n > maxFileLines && longFiles[s.name] == "" {
			t.Errorf("%s has %d lines, the limit is %d", s.name, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFuncLines && longFuncs[s.name+":"+f.Name.Name] == "" {
				t.Errorf("%s:%d: %s has %d lines, the limit is %d", s.name, s.line(f.Pos()), f.Name.Name, n,
					maxFuncLines)
			}
		}
	}
}

func TestNoHiddenState(t *testing.T) {
	for _, s := range parseAll(t) {
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s:%d: init function", s.name, s.line(d.Pos()))
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					checkVars(t, s, d)
				}
			}
		}
	}
}

// TestExceptionsAreNeeded: every exception names a file or function that exists.
func TestExceptionsAreNeeded(t *testing.T) {
	needed := map[string]bool{}
	for _, s := range parseAll(t) {
		needed[s.name] = true
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				needed[s.name+":"+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
						for _, name := range v.Names {
							needed[s.pkg.path()+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
	for room, names := range tables {
		for _, name := range names {
			if !needed[room+"."+name] {
				t.Errorf("the table of package variables names %s.%s, which is not there", room, name)
			}
		}
	}
	for _, exceptions := range []map[string]string{longFiles, longFuncs} {
		for name, why := range exceptions {
			if !needed[name] || why == "" {
				t.Errorf("the exception for %s has no reason or no object", name)
			}
		}
	}
}

func checkVars(t *testing.T, s source, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			var value ast.Expr
			if i < len(v.Values) {
				value = v.Values[i]
			}
			if name.Name == "_" || constantByNature(name.Name, value) || isEmbedded(d.Doc) || isEmbedded(v.Doc) ||
				slices.Contains(tables[s.pkg.path()], name.Name) {
				continue
			}
			t.Errorf("%s:%d: package variable %s", s.name, s.line(name.Pos()), name.Name)
		}
	}
}

// constantByNature reports whether a variable is a sentinel error or a compiled expression.
func constantByNature(name string, value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	if !ok {
		return false
	}
	switch from.Name + "." + f.Sel.Name {
	case "errors.New", "fmt.Errorf":
		return strings.HasPrefix(name, "Err") || strings.HasPrefix(name, "err")
	case "regexp.MustCompile":
		return true
	}
	return false
}

func isEmbedded(doc *ast.CommentGroup) bool {
	return doc != nil &&
		slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// TestGoStatements prints the places of go statements and bounds their number. A reader must check that each one stands
// beside the code that waits for its goroutine.
func TestGoStatements(t *testing.T) {
	lines, found := 0, 0
	for _, s := range parseAll(t) {
		lines += s.line(s.file.FileEnd)
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				found++
				t.Logf("%s:%d", s.name, s.line(g.Pos()))
			}
			return true
		})
	}
	t.Logf("%d go statements in %d lines", found, lines)
	if found*500 > lines {
		t.Errorf("%d go statements in %d lines: more than one in 500", found, lines)
	}
}
