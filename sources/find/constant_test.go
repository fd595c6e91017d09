package find_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/sources/find"
)

// TestConstants: folders `key=value` below the root of names are fields of the records.
func TestConstants(t *testing.T) {
	for _, c := range []struct{ file, pattern, root, want string }{
		{"d/a.jsonl", "d", "", "[]"},
		{"d/lang=en/a.jsonl", "d", "", "[{lang en}]"},
		{"d/lang=en/date=2024-01-01/a.jsonl", "d", "", "[{lang en} {date 2024-01-01}]"},
		{"d/x/lang=en/y/a.jsonl", "d", "", "[{lang en}]"},
		{"d/lang=en/a.jsonl", "d/lang=*/*.jsonl", "", "[{lang en}]"},
		{"d/lang=en/a.jsonl", "d/**/*.jsonl", "", "[{lang en}]"},
		{"d/lang=en/a.jsonl", "d/*/a.jsonl", "", "[{lang en}]"},
		{"d/lang=en/date=1/a.jsonl", "d/lang=en", "", "[{date 1}]"}, // as in Spark and Arrow
		{"d/lang=en/date=1/a.jsonl", "d/lang=en", "d", "[{lang en} {date 1}]"},
		{"d/lang=en/a.jsonl", "d/lang=en/a.jsonl", "", "[]"},
		{"d/lang=en/a.jsonl", "d/lang=en/a.jsonl", "d", "[{lang en}]"},
		{"d/lang=en/a.jsonl", "d", "d/lang=en", "[]"},
		{"d/n=1/n=2/a.jsonl", "d", "", "[{n 2}]"},
		{"d/x=a=b/a.jsonl", "d", "", "[{x a=b}]"},
		{"d/x=/a.jsonl", "d", "", "[{x }]"},
		{"d/=x/a.jsonl", "d", "", "[]"},
		{"d/_k=v/a.jsonl", "d", "", "[{_k v}]"},
		{"d/at=2024-01-01 00%3A00/a.jsonl", "d", "", "[{at 2024-01-01 00:00}]"},
		{"d/a%20b=c%2Fd/a.jsonl", "d", "", "[{a b c/d}]"},
		{"d/p=100%/a.jsonl", "d", "", "[{p 100%}]"},
		{"d/p=%FF/a.jsonl", "d", "", "[{p \ufffd}]"},
		{"d/lang=__HIVE_DEFAULT_PARTITION__/a.jsonl", "d", "", "[{lang <nil>}]"},
		{"d/k=v.jsonl", "d", "", "[]"},
	} {
		files := map[string]string{c.file: "{}\n"}
		for _, at := range []struct {
			tree find.Tree
			base string
		}{{nil, put(t, files)}, {stored(files), "s3://bucket/set"}} {
			if strings.Contains(c.file, "%FF") && at.tree != nil {
				continue
			}
			q := find.Query{Patterns: []string{at.base + "/" + c.pattern}, Format: "jsonl"}
			if c.root != "" {
				q.Root = at.base + "/" + c.root
			}
			got, err := find.Resolve(at.tree, q)
			if err != nil || len(got.Files) != 1 {
				t.Fatalf("%s of %s: got %v, %v", c.pattern, at.base, got.Files, err)
			}
			if of := fmt.Sprint(got.Files[0].Constants); of != c.want {
				t.Errorf("%s of %s: got %s, want %s", c.file, c.pattern, of, c.want)
			}
		}
	}
}
