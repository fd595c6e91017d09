package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "millrace"

// pkg is the output of `go list -json` about one of our packages.
type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Doc        string
	Standard   bool
	GoFiles    []string
	Imports    []string
}

// path is the package's path below the module.
func (p pkg) path() string { return below(p.ImportPath) }

func below(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func isOurs(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// listPackages lists the module's packages, also those that do not compile.
func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			pkgs = append(pkgs, p)
		}
	}
	if len(pkgs) < 10 {
		t.Fatalf("go list found only %d packages", len(pkgs))
	}
	return pkgs
}

// matches reports whether a path matches one of the patterns.
func matches(p string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, isTree := strings.CutSuffix(pattern, "/...")
		return pattern == "*" || p == pattern || isTree && (p == tree || strings.HasPrefix(p, tree+"/"))
	})
}

func roomOf(p string) (room, bool) {
	i := slices.IndexFunc(rooms, func(r room) bool { return matches(p, []string{r.path}) })
	if i < 0 {
		return room{}, false
	}
	return rooms[i], true
}

func TestEveryPackageHasARoomAndAPurpose(t *testing.T) {
	for _, p := range listPackages(t) {
		if _, ok := roomOf(p.path()); !ok {
			t.Errorf("%s is not in the table of verify/archtest/table_test.go", p.path())
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: the package comment should begin with %q, it is %q", p.path(), want, firstWords(p.Doc))
		}
	}
}

func firstWords(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

func TestImports(t *testing.T) {
	for _, p := range listPackages(t) {
		r, ok := roomOf(p.path())
		if !ok {
			continue // reported by TestEveryPackageHasARoomAndAPurpose
		}
		for _, imported := range p.Imports {
			if why := refused(p.path(), r, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.path(), imported, why)
			}
		}
	}
}

// refused returns why a package of room r may not import a package, "" if it may.
func refused(from string, r room, imported string) string {
	if matches(imported, testOnly) ||
		slices.ContainsFunc(testOnly, func(l string) bool { return strings.HasPrefix(imported, l+"/") }) {
		if strings.HasSuffix(path.Base(from), "test") || strings.Contains(from, "test/") {
			return ""
		}
		return "it is for tests"
	}
	if isOurs(imported) && testSupport(below(imported)) && !testSupport(from) {
		return "it is for tests"
	}
	if isOurs(imported) {
		if matches(below(imported), append([]string{r.path}, r.ours...)) {
			return ""
		}
		return "the table does not allow it"
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for _, o := range owners {
		if strings.HasPrefix(imported, o.library) && !matches(from, o.rooms) {
			return "only " + strings.Join(o.rooms, ", ") + " may"
		}
	}
	if matches("*", r.theirs) ||
		slices.ContainsFunc(r.theirs,
			func(l string) bool { return imported == l || strings.HasPrefix(imported, l+"/") }) {
		return ""
	}
	return "the table allows " + r.path + " no such library"
}

func TestTheTableRefuses(t *testing.T) {
	for _, c := range []struct{ from, imported string }{
		{".", "golang.org/x/crypto/blake2b"},
		{"mixing", "millrace/sources"},
		{"sources/format/jsonl", "millrace/proto"},
		{"checkpoint", "millrace"},
		{"orchestrator", "github.com/cockroachdb/pebble/v2"},
		{"orchestrator", "go.etcd.io/etcd/client/v3"},
		{"orchestrator", "millrace/sources"},
		{"sidecar", "millrace/orchestrator"},
		{"sources/format/jsonl", "github.com/parquet-go/parquet-go"},
		{"app/supervisor", "testing"},
		{"checkpoint", "millrace/checkpoint/disk/disktest"},
	} {
		r, ok := roomOf(c.from)
		if !ok {
			t.Fatalf("%s has no room", c.from)
		}
		if refused(c.from, r, c.imported) == "" {
			t.Errorf("%s may import %s", c.from, c.imported)
		}
	}
	const reader = "sources/format/parquet"
	if r, _ := roomOf(reader); refused(reader, r, "github.com/parquet-go/parquet-go") != "" {
		t.Errorf("%s may not import parquet-go", reader)
	}
	if _, ok := roomOf("stray"); ok {
		t.Error("an unlisted package has a room")
	}
}
