package planner

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forEyes names the files that may compute in floating point: text and figures for people, and the statistics of
// reports, which package feedback rounds before they are journaled.
var forEyes = []string{
	"../feedback.go", "../metrics.go", "../status.go", "../../app/setup/adaptive.go",
	"../../internal/wire/activity.go",
}

// TestNoFloatingPoint searches the packages that make plans, digests and the journal. A compiler may fuse
// floating-point operations, and plans would differ between hosts.
func TestNoFloatingPoint(t *testing.T) {
	banned := []string{"float32", "float64", "complex64", "complex128"}
	limits := []string{"MaxInt64", "MaxUint32", "MaxUint64"} // of package math
	for _, dir := range []string{
		".", "progress", "pack", "place", "cost", "order", "strategy", "..", "../offers", "../..", "../../mixing",
		"../../internal/seal", "../../internal/bucket", "../../app/setup", "../../internal/wire",
	} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || slices.Contains(forEyes, filepath.ToSlash(name)) {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				bad := ""
				switch n := n.(type) {
				case *ast.Ident:
					if slices.Contains(banned, n.Name) {
						bad = n.Name
					}
				case *ast.BasicLit:
					if n.Kind == token.FLOAT || n.Kind == token.IMAG {
						bad = n.Value
					}
				case *ast.ImportSpec:
					if n.Path.Value == `"math"` && n.Name != nil || n.Path.Value == `"math/cmplx"` {
						bad = n.Path.Value
					}
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok && of.Name == "math" && !slices.Contains(limits, n.Sel.Name) {
						bad = "math." + n.Sel.Name
					}
					if slices.Contains(
						[]string{"ParseFloat", "Seconds", "Float", "Float32", "Float64", "SetFloat64"}, n.Sel.Name,
					) {
						bad = n.Sel.Name
					}
				}
				if bad != "" {
					t.Errorf("%s: %s is floating point", set.Position(n.Pos()), bad)
				}
				return true
			})
		}
	}
}
