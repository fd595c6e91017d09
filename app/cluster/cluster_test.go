package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
)

// TestListen: `listen` and --listen take a host with a port, also with port 0, for which the kernel chooses one.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	for listen, noPort := range map[string]bool{"host-3.example:9400": false, "127.0.0.1:0": true, "[::1]:00": true} {
		write(t, path, listen)
		f, err := Load(path)
		if err != nil || f.HasNoPort() != noPort {
			t.Errorf("%s: has no port: %v, error %v", listen, err == nil && f.HasNoPort(), err)
			continue
		}
		write(t, path, "replaced:1")
		if f, err = Load(path); err != nil {
			t.Fatal(err)
		}
		if err := f.ListenAt(listen); err != nil || f.HasNoPort() != noPort || f.Listen != listen {
			t.Errorf("--listen %s: %+v, error %v", listen, f, err)
		}
	}
	for _, listen := range []string{"host", ":9400", "0.0.0.0:0", "[::]:9400", "host:70000", "host:x"} {
		write(t, path, listen)
		_, err := Load(path)
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), "write host:port") {
			t.Errorf("%s: %v", listen, err)
		}
		if err := new(File).ListenAt(listen); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("--listen %s: %v", listen, err)
		}
	}
}

func write(t *testing.T, path, listen string) {
	t.Helper()
	text := "name: run\netcd: [\"http://127.0.0.1:1\"]\nlisten: \"" + listen + "\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
