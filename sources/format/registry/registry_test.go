package registry_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"millrace/sources/format/registry"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/formats.md anew")

// TestRows tests that every word, ending and cell of the table is there, and that no two formats share one.
func TestRows(t *testing.T) {
	words, endings := map[string]registry.Name{}, map[string]registry.Name{}
	one := func(of map[string]registry.Name, what, text string, name registry.Name) {
		if first, taken := of[text]; taken || text == "" || strings.ToLower(text) != text {
			t.Errorf("the %s %q of %s is empty, has capitals, or is one of %s", what, text, name, first)
		}
		of[text] = name
	}
	for _, r := range registry.Rows() {
		for _, word := range append(slices.Clone(r.Aliases), string(r.Name)) {
			one(words, "word", word, r.Name)
		}
		for _, ending := range r.Endings {
			one(endings, "ending", ending, r.Name)
		}
		if r.Files == "" || r.Record == "" || r.Access == "" {
			t.Errorf("format %s lacks a cell of the table in docs/formats.md", r.Name)
		}
	}
	for _, word := range registry.Unread() {
		one(words, "word", word, "no format")
	}
	for _, word := range []string{"npy", "numpy", "hf", "huggingface", "datasets", "bin"} {
		one(words, "word", word, "no format")
		if registry.Advice(word) == "" {
			t.Errorf("there is no advice for %s", word)
		}
	}
	if registry.Advice("jsonl") != "" {
		t.Error("there is advice against jsonl")
	}
}

// TestShown tests that the bytes of lines come after those of all other formats.
func TestShown(t *testing.T) {
	for _, c := range []struct{ path, head, want string }{
		{"index.json", `{"version": 2, "shards": []}`, "mds"},
		{"other.json", `{"version": 2, "shards": []}`, "jsonl"},
		{"index.json", `{"chunks": []}`, "litdata"},
		{"x", "PAR1", "parquet"},
		{"x", "{\n", "json"},
		{"x", "plain", ""},
	} {
		got := ""
		if row := registry.Shown(registry.Head{Path: c.path, Bytes: []byte(c.head)}, ""); row != nil {
			got = string(row.Name)
		}
		if got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.path, c.head, got, c.want)
		}
	}
	if row := registry.Shown(registry.Head{Path: "x", Bytes: []byte("PAR1")}, "gzip"); row != nil {
		t.Errorf("a packed file is %s, whose reader does not unpack it", row.Name)
	}
}

// TestPage compares the table of docs/formats.md with the registry.
func TestPage(t *testing.T) {
	const path = "../../../docs/formats.md"
	const head = "| Format | Files | A record is | Random access |\n|---|---|---|---|\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), head)
	table, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table of formats", path)
	}
	var want strings.Builder
	for _, r := range registry.Rows() {
		name := "`" + string(r.Name) + "`"
		if len(r.Aliases) > 0 {
			name += ", or `" + strings.Join(r.Aliases, "`, `") + "`"
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", name, r.Files, r.Record, r.Access)
	}
	if table+"\n" == want.String() {
		return
	}
	if !*rewrite {
		t.Fatalf("the table of %s is not that of the registry; write it with "+
			"`go test ./sources/format/registry -args -rewrite`", path)
	}
	if err := os.WriteFile(path, []byte(before+head+want.String()+"\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
