package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestMethodsAreMethods: a function whose first parameter is a pointer to a type of its package with methods is a
// method of that type. Otherwise the type is larger than its method list shows. Four kinds of functions are exempt:
// constructors of another type (New…, new…), values in a table, functions of two values of the type, such as
// comparisons, and functions in assembly.
func TestMethodsAreMethods(t *testing.T) {
	for path, files := range byPackage(parseAll(t)) {
		for _, f := range disguised(files) {
			t.Errorf("%s: %s takes a *%s first: make it a method", path, f.Name.Name, firstPointer(f))
		}
	}
}

func disguised(files []source) (found []*ast.FuncDecl) {
	hasMethods, values := map[string]bool{}, map[string]bool{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				hasMethods[receiver(f)] = true
			}
		}
		for name := range usedAsValues(s.file) {
			values[name] = true
		}
	}
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Body == nil || f.Type.TypeParams != nil || values[f.Name.Name] ||
				strings.HasPrefix(strings.ToLower(f.Name.Name), "new") {
				continue
			}
			if first := firstPointer(f); hasMethods[first] && !takesTwo(f, first) {
				found = append(found, f)
			}
		}
	}
	return found
}

// firstPointer returns the name T if the first parameter is a *T, else "".
func firstPointer(f *ast.FuncDecl) string {
	if len(f.Type.Params.List) == 0 {
		return ""
	}
	return pointerTo(f.Type.Params.List[0].Type)
}

func pointerTo(x ast.Expr) string {
	if star, ok := x.(*ast.StarExpr); ok {
		if id, ok := star.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

func takesTwo(f *ast.FuncDecl, name string) bool {
	n := 0
	for _, p := range f.Type.Params.List {
		if pointerTo(p.Type) == name {
			n += len(p.Names)
		}
	}
	return n > 1
}

// usedAsValues returns the names that stand anywhere but in front of the parentheses of a call, and that the file does
// not declare in a smaller scope.
func usedAsValues(f *ast.File) map[string]bool {
	called := map[*ast.Ident]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok {
				called[id] = true
			}
		}
		return true
	})
	used := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			called[n.Name] = true // the declaration itself
		case *ast.SelectorExpr:
			called[n.Sel] = true // a name of another package or type
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok {
				called[id] = true // a field
			}
		case *ast.Field:
			for _, id := range n.Names {
				called[id] = true
			}
		case *ast.Ident:
			if !called[n] && (n.Obj == nil || n.Obj.Kind == ast.Fun) {
				used[n.Name] = true
			}
		}
		return true
	})
	return used
}

func TestDisguisedMethodsAreFound(t *testing.T) {
	const text = `package x
type T struct{}
func (t *T) A() {}
func hidden(t *T) {}
func newOther(t *T) int { return 0 }
func less(a, b *T) bool { return inTable != nil }
func inTable(t *T) {}
func assembly(t *T)
func plain(n int) { hidden(nil) }
var table = []func(*T){inTable}
`
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := disguised([]source{{pkg: pkg{ImportPath: module + "/x"}, file: f}})
	if len(found) != 1 || found[0].Name.Name != "hidden" {
		t.Errorf("found %v", found)
	}
}
