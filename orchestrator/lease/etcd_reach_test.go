package lease_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
)

// TestExplain: the reason of a call without an answer names each member that cannot be reached, and the cure.
func TestExplain(t *testing.T) {
	files, stranger := etcdtest.Certificates(t, "millrace"), etcdtest.Certificates(t, "stranger")
	open, closed := etcdtest.Start(t, 1, nil), etcdtest.Start(t, 1, files)
	open.AwaitHealthy()
	plain, encrypted := open.URLs()[0], closed.URLs()[0]
	swapped := strings.NewReplacer("https:", "http:", "http:", "https:").Replace
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	mute := "http://" + silent.Addr().String()
	for want, c := range map[string]lease.EtcdConfig{
		"http://127.0.0.1:1: connection refused: start etcd": {Endpoints: []string{"http://127.0.0.1:1", plain}},
		"look up the host":               {Endpoints: []string{"https://no-such-host.invalid:2379"}},
		"it is not encrypted":            {Endpoints: []string{swapped(plain)}, CA: files.CA},
		"if it is encrypted, write http": {Endpoints: []string{swapped(encrypted)}},
		"it wants a certificate":         {Endpoints: []string{encrypted}, CA: files.CA},
		"a CA that is not in " + stranger.CA: {Endpoints: []string{encrypted}, CA: stranger.CA, Cert: files.Cert,
			Key: files.Key},
		"it refuses " + stranger.Cert: {Endpoints: []string{encrypted}, CA: files.CA, Cert: stranger.Cert,
			Key: stranger.Key},
		mute + ": it accepts connections, and says nothing": {Endpoints: []string{mute}},
		"its members accept connections":                    {Endpoints: []string{plain}},
		"half are gone": {Endpoints: []string{encrypted}, CA: files.CA, Cert: files.Cert,
			Key: files.Key},
	} {
		got := c.Explain(t.Context(), context.DeadlineExceeded)
		for since := time.Now(); !strings.Contains(got, want) && time.Since(since) < 30*time.Second; { // a busy machine
			got = c.Explain(t.Context(), context.DeadlineExceeded)
		}
		if !strings.Contains(got, want) || !strings.HasPrefix(got, "etcd does not answer") {
			t.Errorf("%v: %q, want %q", c.Endpoints, got, want)
		}
	}
}
