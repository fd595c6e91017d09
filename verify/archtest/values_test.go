package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// values are packages whose types are values after they were made: only these packages write to their fields.
var values = []string{"app/config/..."}

// makers are tools that make settings of their own, field by field, and read no mixture file.
var makers = []string{"verify/...", "bench/..."}

// TestNobodyWritesToTheConfiguration: the identity of a run and the division of its resources follow from the mixture
// file alone if no package changes what config.Parse returned.
func TestNobodyWritesToTheConfiguration(t *testing.T) {
	byPackage := map[string][]source{}
	for _, s := range parseAll(t) {
		byPackage[s.pkg.ImportPath] = append(byPackage[s.pkg.ImportPath], s)
	}
	imports := typesOfPackages(t)
	for path, files := range byPackage {
		isReader := slices.ContainsFunc(files, func(s source) bool {
			return slices.ContainsFunc(s.pkg.Imports, func(i string) bool { return matches(below(i), values) })
		})
		if !isReader || matches(below(path), slices.Concat(values, makers)) {
			continue
		}
		info := check(path, files, imports)
		for _, s := range files {
			for _, at := range writes(s.file, info) {
				t.Errorf("%s:%d writes to a value of %s: make another value of it there", s.name, s.line(at), values[0])
			}
		}
	}
}

// typesOfPackages returns the types of all packages that the module needs.
func typesOfPackages(t *testing.T) types.Importer {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
				return os.Open(files[path])
			})
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
}

// check returns the types of the expressions of a package.
func check(path string, files []source, imports types.Importer) *types.Info {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	var parsed []*ast.File
	for _, s := range files {
		parsed = append(parsed, s.file)
	}
	c := types.Config{Importer: imports, Error: func(error) {}}
	_, _ = c.Check(path, files[0].fset, parsed, info) // the build has found every error
	return info
}

// writes returns the places at which a file assigns to a field, an item or the whole of a value.
func writes(file *ast.File, info *types.Info) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		var left []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			left = n.Lhs
		case *ast.IncDecStmt:
			left = []ast.Expr{n.X}
		}
		for _, e := range left {
			if isOfValue(info, e) {
				found = append(found, e.Pos())
			}
		}
		return true
	})
	return found
}

// isOfValue reports whether the target of an assignment is a part of a value.
func isOfValue(info *types.Info, e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return isOfValue(info, x.X)
	case *ast.SelectorExpr:
		return isValue(info.TypeOf(x.X)) || isOfValue(info, x.X)
	case *ast.IndexExpr:
		return isValue(info.TypeOf(x.X)) || isOfValue(info, x.X)
	case *ast.StarExpr:
		return isValue(info.TypeOf(x.X)) || isOfValue(info, x.X)
	}
	return false
}

func isValue(of types.Type) bool {
	if p, ok := of.(*types.Pointer); ok {
		of = p.Elem()
	}
	named, ok := of.(*types.Named)
	return ok && named.Obj().Pkg() != nil && matches(below(named.Obj().Pkg().Path()), values)
}
