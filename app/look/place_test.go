package look_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/app/config"
	"millrace/app/look"
)

const (
	hubCard = "---\nconfigs:\n- config_name: en\n  data_files:\n  - {split: test, path: en/b.jsonl}\n" +
		"  - {split: train, path: en/a.jsonl}\n- config_name: de\n  data_files: de/*.jsonl\n---\n"
	pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:7\nsize 146946961\n"
	row     = `{"text": "a"}` + "\n"
)

// placed is a directory, with the source that `init` writes for it, or the reason of its refusal.
type placed struct {
	files         map[string]string
	path          string // of init; empty: the directory
	line          string // of the source
	left, refused string
}

func places() map[string]placed {
	return map[string]placed{
		"configurations of a card": {
			files: map[string]string{"README.md": hubCard, "en/a.jsonl": row, "en/b.jsonl": row, "de/c.jsonl": row},
			line:  `set: {path: "set", format: jsonl, config: en, split: train}`,
			left: "only `config: en, split: train` of set is read, as README.md says; left out: `config: en, " +
				"split: test` (1 file), `config: de, split: train` (1 file)"},
		"a default configuration": {
			files: map[string]string{"README.md": strings.Replace(hubCard, "de\n", "default\n", 1), "en/a.jsonl": row,
				"en/b.jsonl": row, "de/c.jsonl": row},
			line: `set: {path: "set", format: jsonl}`,
			left: "only `config: default, split: train` of set is read"},
		"splits by names": {files: map[string]string{"test.jsonl": row, "train.jsonl": row},
			line: `set: {path: "set", format: jsonl, split: train}`, left: "left out: `split: test` (1 file)"},
		"splits without train": {files: map[string]string{"test.jsonl": row, "dev.jsonl": row},
			line: `set: {path: "set", format: jsonl, split: validation}`, left: "left out: `split: test` (1 file)"},
		"train beside files of no split": {files: map[string]string{"train.jsonl": row, "more.jsonl": row},
			line: `set: {path: "set", format: jsonl, split: train}`,
			left: "1 file of no split, the first is more.jsonl"},
		"test beside files of no split": {files: map[string]string{"test.jsonl": row, "more.jsonl": row},
			refused: "files of no split lie beside them"},
		"a saved DatasetDict": {files: map[string]string{"dataset_dict.json": `{"splits": ["test", "train"]}`,
			"train/a.jsonl": row, "test/a.jsonl": row},
			line: `set: {path: "set", format: jsonl, split: train}`, left: "as dataset_dict.json says"},
		"no parts":             {files: map[string]string{"a.jsonl": row}, line: `set: {path: "set", format: jsonl}`},
		"a pointer of Git LFS": {files: map[string]string{"a.parquet": pointer}, refused: "run `git lfs pull`"},
		"a pointer as text":    {files: map[string]string{"a.txt": pointer}, refused: "run `git lfs pull`"},
		"a pointer without a known name": {files: map[string]string{"a": pointer}, path: "set/a",
			refused: "its format does not follow from `set/a`: it is a Git LFS pointer"},
		"a pointer of Xet": {files: map[string]string{"a.jsonl": "# xet version 0\nfilesize = 1\n"},
			refused: "a Xet pointer"},
		"DVC":           {files: map[string]string{"a.dvc": "outs:\n"}, path: "set/a", refused: "run `dvc pull`"},
		"DVC in a name": {files: map[string]string{"a.jsonl.dvc": "outs:\n"}, path: "set/a.jsonl", refused: "dvc pull"},
		"Lance": {files: map[string]string{"_versions/1.manifest": "", "_versions/hint.json": "{}", "data/a.lance": ""},
			refused: "a table of Lance"},
		"Iceberg": {files: map[string]string{"metadata/v1.metadata.json": "{}", "data/a.jsonl": row},
			refused: "a table of Iceberg"},
		"Hudi": {files: map[string]string{".hoodie/hoodie.properties": "", "a.parquet": row},
			refused: "a table of Hudi"},
		"nothing": {path: "nothere", refused: "does not follow from `nothere`, where no file is; correct the path"},
	}
}

// TestPlaces: `init` chooses one part of a directory and lists the others. `init` and `inspect` refuse the directories
// that `check` refuses, by the same names.
func TestPlaces(t *testing.T) {
	for name, c := range places() {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range c.files {
				path := filepath.Join("set", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.path == "" {
				c.path = "set"
			}
			c.check(t)
		})
	}
}

// check compares the answers of `init` and `inspect`.
func (c placed) check(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	warnings, err := look.WriteMixture(t.Context(), &out, []string{c.path})
	_, failed := look.Describe(t.Context(), c.path)
	if c.refused != "" {
		for _, err := range []error{err, failed} {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %v, want %s", err, c.refused)
			}
		}
		return
	}
	if err != nil || failed != nil || len(warnings) > 0 {
		t.Fatal(err, failed, warnings)
	}
	if !strings.Contains(out.String(), "  "+c.line+"\n") || !strings.Contains(out.String(), c.left) ||
		c.left == "" && strings.Contains(out.String(), "left out") {
		t.Errorf("want %s, %q in\n%s", c.line, c.left, &out)
	}
	if _, err := config.Parse("mixture.yaml", out.Bytes(), "."); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestDelta: `init` writes the version of a Delta table, so that its source keeps its files.
func TestDelta(t *testing.T) {
	table, err := filepath.Abs("../../sources/find/delta/testdata/plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.CopyFS("set", os.DirFS(table)); err != nil {
		t.Fatal(err)
	}
	placed{path: "set", line: `set: {path: "set", format: parquet, version: 6}`}.check(t)
}

// TestHub: a data set of the hub has its format by the names of its files, and its parts by its card.
func TestHub(t *testing.T) {
	files := map[string]string{"README.md": hubCard, "en/a.jsonl": row, "en/b.jsonl": row, "de/c.jsonl": row,
		".gitattributes": "x"}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/datasets/org/name/revision/main", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"sha": "c0ffee"}`)
	})
	mux.HandleFunc("/api/datasets/org/name/tree/c0ffee/", func(w http.ResponseWriter, r *http.Request) {
		in := strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/datasets/org/name/tree/c0ffee"), "/")
		list := []map[string]any{}
		for name, text := range files {
			if rest, ok := strings.CutPrefix(name, in); ok && (r.URL.Query().Get("recursive") != "" ||
				!strings.Contains(strings.TrimPrefix(rest, "/"), "/")) {
				list = append(list, map[string]any{"type": "file", "path": name, "oid": "1", "size": len(text)})
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	mux.HandleFunc("/api/datasets/org/name/tree/c0ffee", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path += "/"
		mux.ServeHTTP(w, r)
	})
	mux.HandleFunc("/datasets/org/name/resolve/c0ffee/", func(w http.ResponseWriter, r *http.Request) {
		text := files[strings.TrimPrefix(r.URL.Path, "/datasets/org/name/resolve/c0ffee/")]
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	})
	hub := httptest.NewServer(mux)
	defer hub.Close()
	t.Setenv("HF_ENDPOINT", hub.URL)
	t.Chdir(t.TempDir())
	placed{path: "hf://datasets/org/name",
		line: `name: {path: "hf://datasets/org/name", format: jsonl, config: en, split: train}`,
		left: "left out: `config: en, split: test` (1 file), `config: de, split: train` (1 file)"}.check(t)
	placed{path: "hf://datasets/org/name/none", refused: "where no file is"}.check(t)
}
