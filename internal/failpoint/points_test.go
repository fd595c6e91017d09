package failpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Campaigns draw from the table of docs/failpoints.md. It has every point of the source once, and no other.
func TestEveryPointIsInTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/failpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [a-z, ]+ \\| .+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		if slices.Contains(listed, m[1]) {
			t.Errorf("%s is in the table twice", m[1])
		}
		listed = append(listed, m[1])
	}
	found := sourcePoints(t)
	for name, where := range found {
		if !slices.Contains(listed, name) {
			t.Errorf("%s: point %s is not in docs/failpoints.md", where[0], name)
		}
		if stage := strings.HasSuffix(name, "/before") || strings.HasSuffix(name, "/after"); stage && len(where) > 1 {
			t.Errorf("point %s is in several places, %q: give each its own name", name, where)
		}
	}
	for _, name := range listed {
		if len(found[name]) == 0 {
			t.Errorf("docs/failpoints.md lists %s, which the source does not have", name)
		}
	}
	if len(listed) < 60 {
		t.Errorf("%d points, at least 60 are wanted", len(listed))
	}
}

// sourcePoints returns the names that the source passes to Hit, Fault and Write, and one name for each kind of a
// sidecar's events.
func sourcePoints(t *testing.T) map[string][]string {
	t.Helper()
	name := regexp.MustCompile(`(?:\b[hH]it|\bFault|\bWrite)\("([a-z]+/[a-z/]+)"`)
	kind := regexp.MustCompile(`(?m)^\t[A-Z]\w+ +EventKind = "(\w+)"`)
	found := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "build") {
			return filepath.SkipDir
		}
		if d.IsDir() || strings.HasSuffix(path, "_test.go") ||
			!strings.HasSuffix(path, ".go") && !strings.Contains(path, "clients/python/src/") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = append(found[m[1]], path)
		}
		for _, m := range kind.FindAllStringSubmatch(string(text), -1) {
			found["sidecar/"+m[1]] = append(found["sidecar/"+m[1]], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
