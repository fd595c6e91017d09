package find_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/sources/find"
)

// memory is a store of small files by their URLs.
type memory map[string]string

func (m memory) Walk(prefix string, fn func(string) error) error {
	for _, url := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(url, prefix) {
			if err := fn(url); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m memory) Exists(url string) (bool, error) {
	_, ok := m[url]
	return ok, nil
}

func (m memory) Read(url string, _ int64) ([]byte, error) {
	text, ok := m[url]
	if !ok {
		return nil, os.ErrNotExist
	}
	return []byte(text), nil
}

// stored returns files as those of a store.
func stored(files map[string]string) memory {
	m := memory{}
	for name, text := range files {
		m["s3://bucket/set/"+name] = text
	}
	return m
}

// hubCase is a directory and the files that Hugging Face datasets reads of each configuration and split.
type hubCase struct {
	Files   []string
	Card    string
	Chosen  *string // nil: there is no default
	Configs map[string]map[string][]string
}

// TestPartsAreThoseOfDatasets: configurations, splits and their files are those that datasets finds
// (testdata/hub.py), on a disk and in a store.
func TestPartsAreThoseOfDatasets(t *testing.T) {
	text, err := os.ReadFile("testdata/hub.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []hubCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		files := map[string]string{}
		for _, name := range c.Files {
			files[name] = `{"text": "a"}` + "\n"
		}
		if c.Card != "" {
			files["README.md"] = "---\n" + c.Card + "---\n"
		}
		c.compare(t, nil, find.Query{Base: put(t, files), Patterns: []string{"."}, Format: "jsonl"})
		c.compare(t, stored(files), find.Query{Patterns: []string{"s3://bucket/set"}, Format: "jsonl"})
	}
}

func (c hubCase) compare(t *testing.T, tree find.Tree, q find.Query) {
	t.Helper()
	total := 0
	for config, splits := range c.Configs {
		for split, want := range splits {
			q.Config, q.Split = config, split
			got, err := find.Resolve(tree, q)
			if c.Card == "" && len(splits) == 1 && len(want) == len(c.Files) && err != nil &&
				strings.Contains(err.Error(), "no path leads to a directory that has parts") {
				q.Split = "" // the names say nothing: datasets calls the whole directory train
				got, err = find.Resolve(tree, q)
			}
			if names := namesOf(got.Files); err != nil || names != strings.Join(want, " ") {
				t.Errorf("%q, card %q, %s/%s: got %s, %v, want %v", c.Files, c.Card, config, split, names, err, want)
			}
			total++
		}
	}
	q.Config, q.Split = "", ""
	_, err := find.Resolve(tree, q)
	isOne := c.Chosen != nil && len(c.Configs[*c.Chosen]) == 1
	var only []string
	for _, files := range c.Configs[""] {
		only = files
	}
	isWhole := c.Card != "" || len(only) == len(c.Files)-hiddenOf(c.Files)
	if (err == nil) != (isOne && isWhole) {
		t.Errorf("%q, card %q, nothing chosen of %d parts: %v", c.Files, c.Card, total, err)
	}
}

// hiddenOf counts the names that are left out.
func hiddenOf(files []string) (n int) {
	for _, name := range files {
		if find.LeftOutName(name, "jsonl") != "" {
			n++
		}
	}
	return n
}

// TestLayouts is a table of the layouts of directories: the files that are read, or the reason of a refusal.
func TestLayouts(t *testing.T) {
	const card = "---\nconfigs:\n- config_name: en\n  data_files:\n  - {split: train, path: en/*}\n  - {split: test, " +
		"path: held/*}\n- config_name: de\n  data_files: de/*\n---\n"
	for name, c := range map[string]struct {
		files                 string // names, with a space between them
		card, format          string
		pattern               string // default: the directory
		config, split         string
		read, refused, passed string
	}{
		"one set": {files: "a.jsonl sub/b.jsonl", read: "a.jsonl sub/b.jsonl"},
		"splits by files": {files: "train.jsonl test.jsonl",
			refused: "has the splits train (1 file), test (1 file), as the names of its files say: write one of " +
				"them, as `split: train`"},
		"a split by files": {files: "train.jsonl test.jsonl", split: "train", read: "train.jsonl",
			passed: "test.jsonl: it is of the split test"},
		"another split": {files: "train.jsonl test.jsonl", split: "dev",
			refused: "has no split dev: write one of train, test"},
		"a split and rest": {files: "a.jsonl eval.jsonl", refused: "files of no split lie beside them: 1"},
		"a split, not rest": {files: "a.jsonl eval.jsonl", split: "test", read: "eval.jsonl",
			passed: "a.jsonl: its name says no split"},
		"named by a pattern": {files: "train.jsonl test.jsonl", pattern: "*.jsonl", read: "test.jsonl train.jsonl"},
		"a split, no parts": {files: "a.jsonl", split: "test",
			refused: "no path leads to a directory that has parts"},
		"a config, no parts": {files: "train.jsonl test.jsonl", config: "en", split: "test",
			refused: "has no configurations"},
		"tokens": {files: "train.bin val.bin", format: "tokens",
			refused: "has the splits train (1 file), validation (1 file)"},
		"archives": {files: "train-0.tar train-1.tar val-0.tar", format: "webdataset", split: "train",
			read: "train-0.tar train-1.tar", passed: "val-0.tar: it is of the split validation"},
		"a tree of texts": {files: "src/test/a.py src/train.py", format: "text",
			read: "src/test/a.py src/train.py"},
		"configurations": {files: "en/a.jsonl held/b.jsonl de/c.jsonl", card: card,
			refused: "has the configurations en, de, as README.md says: write one of them, as `config: en`"},
		"a configuration": {files: "en/a.jsonl held/b.jsonl de/c.jsonl", card: card, config: "de",
			read: "de/c.jsonl", passed: "en/a.jsonl: README.md has it in no split of the chosen part"},
		"splits of a config": {files: "en/a.jsonl held/b.jsonl de/c.jsonl", card: card, config: "en",
			refused: "configuration en of"},
		"both": {files: "en/a.jsonl held/b.jsonl de/c.jsonl", card: card, config: "en", split: "test",
			read: "held/b.jsonl"},
		"no such config": {files: "en/a.jsonl held/b.jsonl de/c.jsonl", card: card, config: "fr",
			refused: "has no configuration fr: write one of en, de"},
		"an empty part": {files: "en/a.jsonl", card: card, config: "de", refused: "nothing matches de/*"},
		"another format": {files: "en/a.jsonl de/c.csv", card: card, config: "de",
			refused: "has no jsonl file of the split train of configuration de"},
		"a card without any": {files: "a.jsonl", card: "---\nlicense: mit\n---\n", read: "a.jsonl"},
		"a page":             {files: "a.jsonl", card: "# configs:\n", read: "a.jsonl"},
		"a card with faults": {files: "a.jsonl", card: "---\nconfigs:\n- config_name: [\n---\n",
			refused: "its YAML cannot be read"},
		"files outside": {files: "a.jsonl",
			card:    "---\nconfigs:\n- config_name: x\n  data_files: ../b.jsonl\n---\n",
			refused: "none of files below the dataset"},
		"Spark's output": {files: "_SUCCESS _temporary/0/part-0.jsonl part-0.jsonl ._SUCCESS.crc .part-0.jsonl.crc",
			read:   "part-0.jsonl",
			passed: "_temporary: its name begins with an underscore; nothing below it is read"},
		"underscores": {files: "_a.jsonl b.jsonl", read: "b.jsonl",
			passed: "_a.jsonl: its name begins with an underscore"},
		"underscores, glob": {files: "_a.jsonl b.jsonl", pattern: "*.jsonl", read: "b.jsonl",
			passed: "_a.jsonl: its name begins with an underscore; a pattern that writes this out reads it"},
		"underscores, named": {files: "_a.jsonl b.jsonl", pattern: "_*.jsonl", read: "_a.jsonl"},
		"one underscore":     {files: "_a.jsonl b.jsonl", pattern: "_a.jsonl", read: "_a.jsonl"},
		"still written": {files: "a.jsonl b.jsonl.part c.jsonl.tmp", pattern: "*", read: "a.jsonl",
			passed: "b.jsonl.part: its name is that of a file that is still written"},
		"a key of Hive":       {files: "_year=2020/a.jsonl", read: "_year=2020/a.jsonl"},
		"underscores of code": {files: "p/__init__.py _SUCCESS", format: "text", read: "p/__init__.py"},
		"Arrow streams":       {files: "a.arrows b.arrow", format: "arrow", read: "a.arrows b.arrow"},
		"Iceberg": {files: "metadata/v1.metadata.json data/a.parquet", format: "parquet",
			refused: "is a table of Iceberg"},
		"Hudi": {files: ".hoodie/hoodie.properties a.parquet", format: "parquet",
			refused: "is a table of Hudi"},
		"Lance": {files: "_versions/1.manifest _versions/latest_version_hint.json data/a.lance",
			refused: "is a table of Lance"},
		"a table below": {files: "x/.hoodie/hoodie.properties x/a.parquet b.parquet", format: "parquet",
			refused: "set/x is a table of Hudi"},
		"files of a table": {files: ".hoodie/hoodie.properties a.parquet", format: "parquet", pattern: "*.parquet",
			refused: "lies in a table of Hudi"},
		"a part of a table": {files: "metadata/v1.metadata.json data/a.parquet", format: "parquet", pattern: "data",
			refused: "lies in a table of Iceberg"},
		"a file of a table": {files: ".hoodie/hoodie.properties a.parquet", format: "parquet", pattern: "a.parquet",
			read: "a.parquet"},
		"DVC":               {files: "a.jsonl.dvc b.jsonl", refused: "run `dvc pull`"},
		"DVC with its file": {files: "a.jsonl.dvc a.jsonl", read: "a.jsonl", passed: "a.jsonl.dvc: it describes"},
	} {
		files := map[string]string{}
		for f := range strings.FieldsSeq(c.files) {
			files[f] = "{}\n"
		}
		if c.card != "" {
			files["README.md"] = c.card
		}
		q := find.Query{Format: c.format, Config: c.config, Split: c.split}
		if q.Format == "" {
			q.Format = "jsonl"
		}
		dir := filepath.Join(put(t, map[string]string{"set/.keep": ""}), "set")
		for file, text := range files {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []struct {
			tree find.Tree
			base string
		}{{nil, dir}, {stored(files), "s3://bucket/set"}} {
			if name == "a part of a table" && at.tree != nil {
				continue // a store is asked for the files below the path alone
			}
			q.Patterns = []string{at.base + strings.TrimSuffix("/"+c.pattern, "/")}
			got, err := find.Resolve(at.tree, q)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%s of %s: got %v, %v, want %s", name, at.base, got.Files, err, c.refused)
				}
				continue
			}
			if err != nil || namesOf(got.Files) != c.read {
				t.Errorf("%s of %s: got %v, %v, want %s", name, at.base, got.Files, err, c.read)
			}
			var passed []string
			for _, s := range got.Skipped {
				passed = append(passed, strings.TrimPrefix(s.Path, at.base+"/")+": "+s.Reason)
			}
			if at.tree == nil && c.passed != "" && !slices.ContainsFunc(passed, func(s string) bool {
				return strings.HasPrefix(s, c.passed)
			}) {
				t.Errorf("%s of %s: left out %q, want %q", name, at.base, passed, c.passed)
			}
		}
	}
}

// TestPlaceholders: a file that stands for another one is refused with its program.
func TestPlaceholders(t *testing.T) {
	for head, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:7\nsize 146946961\n": "a " +
			"Git LFS pointer in place of the file: run `git lfs pull`",
		"# xet version 0\nfilesize = 1\n":      "a Xet pointer",
		"/annex/objects/SHA256E-s3--a.jsonl\n": "a git-annex pointer",
		`{"text": "a"}`:                        "",
	} {
		err := find.CheckContent("x.jsonl", []byte(head), int64(len(head)))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", head, err, want)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink(".git/annex/objects/x/y/a.jsonl", filepath.Join(dir, "a.jsonl")); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"a.jsonl", "."} {
		_, err := find.Resolve(nil, find.Query{Base: dir, Patterns: []string{pattern}, Format: "jsonl"})
		if err == nil || !strings.Contains(err.Error(), "git annex get") {
			t.Errorf("%s: got %v", pattern, err)
		}
	}
}

// TestWrittenNames: a file, or a key of a store, whose name has the characters of patterns is that file before it is a
// pattern.
func TestWrittenNames(t *testing.T) {
	files := map[string]string{"a?.jsonl": "", "ab.jsonl": "", "x[1].jsonl": "", "x1.jsonl": "", "{y}.jsonl": "",
		"s*/c.jsonl": "", "st/c.jsonl": "", "p,q.jsonl": ""}
	for pattern, want := range map[string]string{
		"a?.jsonl": "a?.jsonl", "x[1].jsonl": "x[1].jsonl", "{y}.jsonl": "{y}.jsonl", "s*": "c.jsonl",
		"?b.jsonl": "ab.jsonl", "{x[1],ab}.jsonl": "ab.jsonl x[1].jsonl", "[a]b.jsonl": "ab.jsonl",
	} {
		for _, at := range []struct {
			tree find.Tree
			base string
		}{{nil, put(t, files)}, {stored(files), "s3://bucket/set"}} {
			got, err := find.Resolve(at.tree, find.Query{Patterns: []string{at.base + "/" + pattern}, Format: "jsonl"})
			if err != nil || namesOf(got.Files) != want {
				t.Errorf("%s of %s: got %v, %v, want %s", pattern, at.base, got.Files, err, want)
			}
		}
	}
}
