package find_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/find"
)

// TestSplitsOfEnergon: of an Energon directory, the archives of the training split are read, and all others are listed
// with the reason. A list that cannot be followed is refused with the cure.
func TestSplitsOfEnergon(t *testing.T) {
	const parts = "split_parts:\n"
	base := put(t, map[string]string{
		"two/.nv-meta/split.yaml": parts + "  val: [v.tar]\n  test: []\n  train: [a.tar, 'sub/b_{0..1}.tar', x.tar]\n" +
			"exclude: [x.tar, v.tar/k]\n",
		"two/a.tar": "", "two/sub/b_0.tar": "", "two/sub/b_1.tar": "", "two/v.tar": "", "two/x.tar": "",
		"two/stray.tar":           "",
		"one/.nv-meta/split.yaml": parts + "  rest: [a.tar]\n  val: []\nexclude: []\n", "one/a.tar": "",
		"one/b.tar":                  "",
		"none/.nv-meta/split.yaml":   parts + "  b: [v.tar]\n  a: [a.tar, b.tar, c.tar, d.tar]\n",
		"none/a.tar":                 "",
		"gone/.nv-meta/split.yaml":   parts + "  train: ['{a,b}.tar']\n",
		"gone/a.tar":                 "",
		"sample/.nv-meta/split.yaml": parts + "  train: [a.tar]\nexclude: [a.tar/left/7]\n",
		"sample/a.tar":               "",
		"bad/.nv-meta/split.yaml":    "split_parts: [\n", "bad/a.tar": "",
	})
	for pattern, want := range map[string]string{
		"two": "read a.tar sub/b_0.tar sub/b_1.tar; skipped stray.tar: in no split; v.tar: in the split val; " +
			"x.tar: excludes it",
		"two/v.tar": "read v.tar", "two/*.tar": "read a.tar stray.tar v.tar x.tar",
		"one": "read a.tar; skipped b.tar: in no split",
		"none": "is an Energon dataset with the splits a, b, none of which is train: name the archives of one, as " +
			"path: [" + base + "/none/a.tar, " + base + "/none/b.tar, " + base + "/none/c.tar, ...] for a",
		"gone":   "gone/b.tar is not there, and " + base + "/gone/.nv-meta/split.yaml has it in the split train",
		"sample": "excludes the sample a.tar/left/7, and single samples are not left out",
		"bad":    "read " + base + "/bad/.nv-meta/split.yaml: ",
	} {
		got, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{pattern}, Format: "webdataset"})
		if !strings.HasPrefix(want, "read ") || strings.Contains(want, base) {
			if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", pattern, err, want)
			}
			continue
		}
		if text := energonText(base, got); err != nil || text != want {
			t.Errorf("%s: got %s, %v, want %s", pattern, text, err, want)
		}
	}
}

// TestNamedSplitOfEnergon: a source that names a split reads its archives, of every dataset below its paths.
func TestNamedSplitOfEnergon(t *testing.T) {
	base := put(t, map[string]string{
		"two/.nv-meta/split.yaml": "split_parts: {val: [v.tar], train: [a.tar]}", "two/a.tar": "", "two/v.tar": "",
		"one/.nv-meta/split.yaml": "split_parts: {rest: [r.tar]}", "one/r.tar": "", "plain/x.tar": "",
	})
	for _, c := range []struct{ pattern, split, want string }{
		{"two", "val", "read v.tar; skipped a.tar: in the split train"},
		{"two", "train", "read a.tar; skipped v.tar: in the split val"},
		{"two", "test", "with the splits train, val, none of which is test"},
		{"one", "val", "with the splits rest, none of which is val"},
		{"plain", "val", "find the split val: no path leads to a directory that has parts"},
		{"two/v.tar", "val", "find the split val: no path leads"},
	} {
		got, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{c.pattern}, Format: "webdataset",
			Split: c.split})
		text := energonText(base, got)
		if err != nil {
			text = err.Error()
		}
		if text != c.want && (!errors.Is(err, millrace.ErrInvalid) || !strings.Contains(text, c.want)) {
			t.Errorf("%s of %s: got %s, want %s", c.split, c.pattern, text, c.want)
		}
	}
}

// energonText describes the found files of a dataset, with the last words of the reasons.
func energonText(base string, got find.Resolved) string {
	var read, skipped []string
	for _, f := range got.Files {
		read = append(read, f.Name)
	}
	for _, s := range got.Skipped {
		_, reason, _ := strings.Cut(s.Reason, "split.yaml ")
		name := s.Path[strings.LastIndexByte(s.Path, '/')+1:]
		skipped = append(skipped, fmt.Sprintf("%s: %s", name, strings.TrimPrefix(reason, "has it ")))
	}
	skipped = slices.DeleteFunc(skipped, func(s string) bool { return strings.HasPrefix(s, ".") })
	out := "read " + strings.Join(read, " ")
	if len(skipped) > 0 {
		out += "; skipped " + strings.Join(skipped, "; ")
	}
	return out
}

// storedTree is a store with some files.
type storedTree []string

func (s storedTree) Walk(prefix string, fn func(string) error) error {
	for _, url := range s {
		if strings.HasPrefix(url, prefix) {
			if err := fn(url); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s storedTree) Exists(url string) (bool, error) { return slices.Contains(s, url), nil }

func (s storedTree) Read(string, int64) ([]byte, error) { return nil, nil }

// TestEnergonInAStore: the splits of a dataset in a store are not read, so its directory is refused.
func TestEnergonInAStore(t *testing.T) {
	tree := storedTree{"s3://data/set/.nv-meta/split.yaml", "s3://data/set/a.tar", "s3://data/set/v.tar"}
	for pattern, want := range map[string]string{
		"s3://data/set": "s3://data/set is an Energon dataset", "s3://data": "s3://data/set is an Energon dataset",
		"s3://data/set/a.tar": "",
	} {
		got, err := find.Resolve(tree, find.Query{Base: "/", Patterns: []string{pattern}, Format: "webdataset"})
		if want == "" && (err != nil || len(got.Files) != 1) || want != "" && (err == nil ||
			!errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, %v, want %s", pattern, got.Files, err, want)
		}
	}
}
