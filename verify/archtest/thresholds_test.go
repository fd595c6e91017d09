package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// threshold is a row of the page's tables: the value, the name of the constant, and its file.
var threshold = regexp.MustCompile("^\\| .* \\| ([0-9.]+)(?: (ms|s|min))? \\| `(\\w+)` in `([\\w/.]+)` \\|$")

// TestThresholdsArePrinted: docs/takeover.md has the value of each constant that it names, and names it once.
func TestThresholdsArePrinted(t *testing.T) {
	const page = "docs/takeover.md"
	units := map[string]float64{"": 1, "ms": float64(time.Millisecond), "s": float64(time.Second),
		"min": float64(time.Minute)}
	seen := map[string]bool{}
	for _, line := range readLines(t, page) {
		m := threshold.FindStringSubmatch(line)
		if m == nil {
			if strings.HasSuffix(line, ".go` |") {
				t.Errorf("%s: no value and constant in %q", page, line)
			}
			continue
		}
		value, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		name, file := m[3], m[4]
		if seen[name+file] {
			t.Errorf("%s has %s twice", page, name)
		}
		seen[name+file] = true
		if is, want := constants(t, file).value(t, name), value*units[m[2]]; is != want {
			t.Errorf("%s says that %s in %s is %s %s; it is %v", page, name, file, m[1], m[2], is)
		}
	}
	if len(seen) < 30 {
		t.Errorf("%s has %d thresholds", page, len(seen))
	}
}

// consts has the expressions of the constants of a file.
type consts map[string]ast.Expr

func constants(t *testing.T, file string) consts {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := consts{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, value := range spec.Values {
				out[spec.Names[i].Name] = value
			}
		}
		return true
	})
	return out
}

// value returns the value of a constant: a number, or nanoseconds.
func (c consts) value(t *testing.T, name string) float64 {
	t.Helper()
	if c[name] == nil {
		t.Fatalf("there is no constant %s", name)
	}
	return c.of(t, c[name])
}

// of computes an expression of numbers, units of time and constants of the same file.
func (c consts) of(t *testing.T, e ast.Expr) float64 {
	t.Helper()
	switch x := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.ParseFloat(x.Value, 64)
		if err != nil {
			t.Fatal(err)
		}
		return value
	case *ast.Ident:
		return c.value(t, x.Name)
	case *ast.SelectorExpr:
		units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute}
		return float64(units[x.Sel.Name])
	case *ast.BinaryExpr:
		left, right := c.of(t, x.X), c.of(t, x.Y)
		if x.Op == token.MUL {
			return left * right
		}
		return left / right
	}
	t.Fatalf("an expression of the kind %T", e)
	return 0
}
