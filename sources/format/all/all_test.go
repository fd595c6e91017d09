package all

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"millrace/sources"
	"millrace/sources/format/registry"
)

// TestReaders tests that the registry and the readers have the same rows in the same order, and that each reader has
// the name of its row.
func TestReaders(t *testing.T) {
	var names []string
	for _, r := range readers() {
		names = append(names, string(r.name))
		if got := r.make(Settings{Files: sources.OSFS()}).Name(); got != string(r.name) {
			t.Errorf("the reader of format %s has the name %s", r.name, got)
		}
	}
	if words := registry.Name("").Words(); !slices.Equal(names, words) {
		t.Fatalf("there are readers of %v, and the registry has %v: give each row of sources/format/registry/table.go "+
			"a row in sources/format/all/all.go", names, words)
	}
	if _, err := New("lance", Settings{}); err == nil {
		t.Error("a format without a row has a reader")
	}
}

// TestContract tests that the tests of each reader's package run the contract suite for its format.
func TestContract(t *testing.T) {
	for _, r := range readers() {
		dir := "../" + path.Base(reflect.Indirect(reflect.ValueOf(r.make(Settings{}))).Type().PkgPath())
		files, err := filepath.Glob(dir + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		runs := func(file string) bool {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return regexp.MustCompile(`(sourcetest\.R|\br)un\(t, "` + string(r.name) + `",`).Match(text)
		}
		if !slices.ContainsFunc(files, runs) {
			t.Errorf("format %s has no run of the contract: add `sourcetest.Run(t, %q, …)` to a test in %s", r.name,
				r.name, dir)
		}
	}
}
