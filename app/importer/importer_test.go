package importer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"millrace"
	"millrace/app/config"
	"millrace/app/importer"
)

// TestForeignFiles: the mixture file of each foreign file. The configuration accepts it, and every key of the foreign
// file is in it.
func TestForeignFiles(t *testing.T) {
	datadriven.RunTest(t, "testdata/foreign", func(t *testing.T, d *datadriven.TestData) string {
		file, kind := "", ""
		d.ScanArgs(t, "file", &file)
		d.MaybeScanArgs(t, "kind", &kind)
		there := ""
		d.MaybeScanArgs(t, "exists", &there)
		out, notes, err := importer.Mixture(importer.File{Path: file, Kind: kind, Content: []byte(d.Input),
			Exists: func(path string) bool { return path == there }})
		if err != nil {
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Errorf("%s: the error is of no class: %v", d.Pos, err)
			}
			return "error: " + err.Error() + "\n"
		}
		path := filepath.Join(t.TempDir(), "mixture.yaml")
		if err := os.WriteFile(path, out, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(path); err != nil && !d.HasArg("absent-model") {
			t.Errorf("%s: the configuration refuses the mixture file: %v", d.Pos, err)
		}
		for _, n := range notes {
			at := strings.LastIndex(n, ": ")
			if !strings.Contains(string(out), n[at+2:]) {
				t.Errorf("%s: the note %q is not in the mixture file", d.Pos, n)
			}
		}
		return string(out)
	})
}

func FuzzImport(f *testing.F) {
	f.Add([]byte("0.3 /a 0.7 /b"), "")
	f.Add([]byte("data: {configs: {a: {train_urls: [x]}}}"), "")
	f.Add([]byte("data_stages: [{start_training_step: 1, data: {dataset: {dataset_folder: [a]}}}]"), "")
	f.Add([]byte("splits: {train: {blend: [{weight: 1, path: a}]}}"), "")
	f.Add([]byte("[{remote: a, proportion: 1}]"), "streaming")
	f.Fuzz(func(t *testing.T, content []byte, kind string) {
		out, _, err := importer.Mixture(importer.File{Path: "x", Kind: kind, Content: content})
		if err != nil && !errors.Is(err, millrace.ErrInvalid) || err == nil && len(out) == 0 {
			t.Fatalf("got %q, %v", out, err)
		}
	})
}
