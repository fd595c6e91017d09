package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/orchestrator/lease/hosts"
)

// TestAFarAddressNeedsTLS: a host that others would reach without TLS is refused before it waits for etcd, which is not
// there.
func TestAFarAddressNeedsTLS(t *testing.T) {
	for listen, refused := range map[string]bool{
		"192.0.2.1:9400": true, "[2001:db8::1]:9400": true, "127.0.0.1:9400": false, "localhost:9400": false,
		"127.0.0.1:0": false,
	} {
		path := filepath.Join(t.TempDir(), "cluster.yaml")
		text := "name: far\netcd: [\"http://127.0.0.1:1\"]\nlisten: \"" + listen + "\"\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if !refused { // it waits until it is told to end
			time.AfterFunc(100*time.Millisecond, cancel)
		}
		_, err = Join(ctx, f, hosts.Host{Ranks: 1, World: 2}, io.Discard)
		cancel()
		switch {
		case err == nil:
			t.Errorf("%s: joined", listen)
		case errors.Is(err, millrace.ErrInvalid) != refused:
			t.Errorf("%s: %v", listen, err)
		case refused && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "set tls")):
			t.Errorf("%s: %v", listen, err)
		}
	}
}
