package archtest

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

func filesOfPackages(_ *testing.T, sources []source) []offender {
	count := map[string]int{}
	for _, s := range sources {
		count[s.pkg.path()]++
	}
	return offenders(count)
}

func methodsOfTypes(_ *testing.T, sources []source) []offender {
	count := map[string]int{}
	for _, s := range sources {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				count[s.pkg.path()+"."+receiver(f)]++
			}
		}
	}
	return offenders(count)
}

// exportsOfPackages counts exported package-level names. A command's packages have no users, so they do not count.
func exportsOfPackages(_ *testing.T, sources []source) []offender {
	count := map[string]int{}
	for _, s := range sources {
		if s.pkg.Name == "main" {
			continue
		}
		for _, name := range declared(s.file) {
			if ast.IsExported(name) {
				count[s.pkg.path()]++
			}
		}
	}
	return offenders(count)
}

// upwardArrows returns the percentage of each package's arrows between files that run against the best order of the
// files. A greedy rule finds the order (Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc set
// problem", 1993). An arrow leads from a file to a file that declares a name which the first one uses.
func upwardArrows(_ *testing.T, sources []source) []offender {
	var out []offender
	for path, files := range byPackage(sources) {
		arrows := arrowsBetween(files)
		if len(arrows) < 20 {
			continue // too few to have an order
		}
		rank := greedyOrder(files, arrows)
		up := 0
		for a := range arrows {
			if rank[a[0]] > rank[a[1]] {
				up++
			}
		}
		out = append(out, offender{where: path, value: 100 * up / len(arrows)})
	}
	return out
}

// arrowsBetween returns the pairs (user, declarer) of files. A local variable is no use of a package's name. A selector
// is a use of a method only if one file alone declares a method of that name.
func arrowsBetween(files []source) map[[2]string]bool {
	names, methods := map[string]string{}, map[string]string{}
	for _, s := range files {
		for _, name := range declared(s.file) {
			names[name] = s.name
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				if home, known := methods[f.Name.Name]; known && home != s.name {
					methods[f.Name.Name] = ""
				} else {
					methods[f.Name.Name] = s.name
				}
			}
		}
	}
	arrows := map[[2]string]bool{}
	use := func(from, to string) {
		if to != "" && to != from {
			arrows[[2]string{from, to}] = true
		}
	}
	for _, s := range files {
		imports := map[string]bool{}
		for _, i := range s.file.Imports {
			for _, part := range strings.Split(strings.Trim(i.Path.Value, `"`), "/") {
				imports[part] = true // the last, or the one before a version
			}
			if i.Name != nil {
				imports[i.Name.Name] = true
			}
		}
		for _, id := range s.file.Unresolved {
			use(s.name, names[id.Name])
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := x.X.(*ast.Ident); !ok || !imports[id.Name] {
					use(s.name, methods[x.Sel.Name])
				}
			}
			return true
		})
	}
	return arrows
}

// greedyOrder places unused files first and files that use no other last. Of the others, the file that uses most and is
// used least comes first. Ties go by name.
func greedyOrder(files []source, arrows map[[2]string]bool) map[string]int {
	left := map[string]bool{}
	for _, s := range files {
		left[s.name] = true
	}
	rank, first, last := map[string]int{}, 0, len(files)
	for len(left) > 0 {
		out, in := map[string]int{}, map[string]int{}
		for a := range arrows {
			if left[a[0]] && left[a[1]] {
				out[a[0]]++
				in[a[1]]++
			}
		}
		names := make([]string, 0, len(left))
		for name := range left {
			names = append(names, name)
		}
		sort.Strings(names)
		pick, sink := "", false
		for _, name := range names {
			if out[name] == 0 {
				pick, sink = name, true
				break
			}
			if pick == "" || out[name]-in[name] > out[pick]-in[pick] {
				pick = name
			}
		}
		if delete(left, pick); sink {
			last--
			rank[pick] = last
		} else {
			rank[pick] = first
			first++
		}
	}
	return rank
}

// exportsForTests counts exported functions and methods that only tests use. Methods of well-known interfaces count as
// used.
func exportsForTests(t *testing.T, sources []source) []offender {
	used, inside := map[string]int{}, map[string]int{}
	for _, s := range sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				used[n.Sel.Name]++
			case *ast.Ident:
				inside[s.pkg.path()+"."+n.Name]++
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok {
					used[id.Name]++
				}
			}
			return true
		})
	}
	places := map[string]int{}
	for _, s := range sources {
		if s.pkg.Name == "main" || s.pkg.path() == "proto" || testSupport(s.pkg.path()) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || byInterface[f.Name.Name] {
				continue
			}
			// Its declaration is one use inside its package.
			if used[f.Name.Name] == 0 && inside[s.pkg.path()+"."+f.Name.Name] <= 1 {
				places[fmt.Sprintf("%s: %s", s.name, f.Name.Name)] = 1
			}
		}
	}
	return total(places)
}

// testSupport reports whether a package exists for tests. Only tests and other such packages may import it.
func testSupport(path string) bool {
	return strings.HasPrefix(path, "verify/") || strings.HasSuffix(path, "test") ||
		strings.Contains(path, "test/")
}

// byInterface lists methods that the standard library, gRPC and other libraries call through interfaces.
var byInterface = map[string]bool{
	"String": true, "Error": true, "Unwrap": true, "Is": true, "As": true, "MarshalJSON": true, "UnmarshalJSON": true,
	"MarshalText": true, "UnmarshalText": true, "MarshalYAML": true, "UnmarshalYAML": true, "Len": true, "Less": true,
	"Swap": true, "Push": true, "Pop": true, "Read": true, "Write": true, "Close": true, "JSONSchema": true,
	"JSONSchemaExtend": true, "GoString": true, "Format": true, "LogValue": true, "Deadline": true, "Done": true,
	"Value": true, "Load": true, "Serve": true, "Status": true, "Ledger": true, "Mix": true, "Fetch": true,
	"AuthType": true, "ClientHandshake": true, "ServerHandshake": true, "OverrideServerName": true,
	"Marshal": true, "Unmarshal": true, "Name": true, "Infof": true, "Errorf": true, "Fatalf": true, "Eventf": true,
	"IsTracingEnabled": true, "TagConn": true, "HandleConn": true, "TagRPC": true, "HandleRPC": true,
}

func receiver(f *ast.FuncDecl) string {
	x := f.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.Name
		default:
			return "?"
		}
	}
}

// declared lists the package-level names of a file, without methods.
func declared(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

func byPackage(sources []source) map[string][]source {
	out := map[string][]source{}
	for _, s := range sources {
		out[s.pkg.path()] = append(out[s.pkg.path()], s)
	}
	return out
}

func offenders(count map[string]int) (out []offender) {
	names := make([]string, 0, len(count))
	for name := range count {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		out = append(out, offender{where: name, value: count[name]})
	}
	return out
}

// notWritten names folders of build outputs, runs and test data.
var notWritten = map[string]bool{
	"build": true, "dist": true, "runs": true, "demo-run": true, "testdata": true, "node_modules": true,
}

// written lists the files of the tree with one of the endings, without generated files and environments.
func written(t *testing.T, endings ...string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") && name != ".ci" || notWritten[name]) {
				return filepath.SkipDir
			}
			return nil
		}
		for _, e := range endings {
			if strings.HasSuffix(name, e) && !strings.HasSuffix(name, ".pb.go") {
				rel, _ := filepath.Rel(root, path)
				names = append(names, rel)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

const root = "../.."

func readLines(t *testing.T, name string) (lines []string) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	return lines
}

// TestGreedyOrder: one arrow against a chain is upward.
func TestGreedyOrder(t *testing.T) {
	files := []source{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}}
	arrows := map[[2]string]bool{
		{"a", "b"}: true,
		{"b", "c"}: true,
		{"c", "d"}: true,
		{"a", "c"}: true,
		{"d", "b"}: true,
	}
	rank := greedyOrder(files, arrows)
	up := 0
	for a := range arrows {
		if rank[a[0]] > rank[a[1]] {
			up++
		}
	}
	if up != 1 {
		t.Errorf("%d arrows run upward in %v, want 1", up, rank)
	}
}

func TestMethodsCountOverFiles(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "x.go",
		"package x\ntype T[K any] struct{}\nfunc (t *T[K]) A() {}\nfunc (t T[K]) B() {}\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	got := methodsOfTypes(t, []source{{pkg: pkg{ImportPath: module + "/x"}, file: f}})
	if len(got) != 1 || got[0].where != "x.T" || got[0].value != 2 {
		t.Errorf("counted %v", got)
	}
}
