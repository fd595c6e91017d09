package kept

import (
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace"
	"millrace/sources/index"
)

// fullFS has no room for a file.
type fullFS struct{ index.FS }

func (fullFS) CreateTemp(string) (index.TempFile, error) { return nil, syscall.ENOSPC }

// TestAFullDirectory: a run goes on without an index that cannot be kept. Without Spare that is an error.
func TestAFullDirectory(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "index"), FS: fullFS{index.OSFS()}}
	var said strings.Builder
	cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	for _, spare := range []bool{false, true} {
		cfg.Spare = spare
		m, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = m.Save(millrace.Digest{1}, "kind", []byte("found out"))
		if (err == nil) != spare {
			t.Errorf("spare %v: %v", spare, err)
		}
		blob, ok := m.Load(millrace.Digest{1}, "kind")
		if ok != spare || spare && string(blob) != "found out" {
			t.Errorf("spare %v: %q %v", spare, blob, ok)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(said.String(), "no space left") {
		t.Errorf("the log says %q", said.String())
	}
}
