package kept

import (
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace"
	"millrace/sources/facts/index"
)

// fullFS has no room for a file.
type fullFS struct{ index.FS }

func (fullFS) Open(string, bool) (index.File, error) { return nil, syscall.ENOSPC }

// TestAFullDirectory: a run goes on without an index that cannot be kept. Without Spare that is an error.
func TestAFullDirectory(t *testing.T) {
	for _, spare := range []bool{false, true} {
		store, err := index.Open(filepath.Join(t.TempDir(), "index"), index.Options{FS: fullFS{index.OSFS()}})
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		m := New(Config{Index: store, Spare: spare, Log: slog.New(slog.NewTextHandler(&said, nil))})
		if err := m.Save(millrace.Digest{1}, "kind", []byte("found out")); (err == nil) != spare {
			t.Errorf("spare %v: %v", spare, err)
		}
		if blob, ok := m.Load(millrace.Digest{1}, "kind"); !ok || string(blob) != "found out" {
			t.Errorf("spare %v: %q %v", spare, blob, ok)
		}
		if err := m.Flush(); (err == nil) != spare {
			t.Errorf("spare %v: %v", spare, err)
		}
		if spare && !strings.Contains(said.String(), "no space left") {
			t.Errorf("the log says %q", said.String())
		}
		if err := store.Close(); err == nil {
			t.Error("a store closes without an error although its blobs are lost")
		}
	}
}
