package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/seam"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
)

// partly is a network in which one host answers and all others are unplugged.
type partly struct {
	seam.Net
	answers string
	dialled chan string
}

func (p *partly) Dial(ctx context.Context, address string) (net.Conn, error) {
	p.dialled <- address
	if address == p.answers {
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestADialEndsWithItsLeader: a role that dials a leader whose host is unplugged does not wait for the end of the dial
// when another host leads.
func TestADialEndsWithItsLeader(t *testing.T) {
	cluster := etcdtest.Start(t, 1, nil)
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	text := fmt.Sprintf("name: run\netcd: [%q]\nlisten: \"127.0.0.1:0\"\n", cluster.URLs()[0])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead := func(host string) {
		t.Helper()
		value, err := json.Marshal(lease.Holder{Host: host, Identity: host, Address: host + ":1"})
		if err == nil {
			_, err = cluster.Client().Put(ctx, lease.LeaderKey(f.Etcd()), string(value))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	below := &partly{answers: "here:1", dialled: make(chan string, 2)}
	n := newNetwork(f, below)
	defer n.Close()
	lead("gone")
	ended := make(chan error, 1)
	go func() { // ends with ctx
		_, err := n.Dial(ctx, Leader("train"))
		ended <- err
	}()
	if got := <-below.dialled; got != "gone:1" {
		t.Fatalf("it dials %s", got)
	}
	lead("here")
	if err := <-ended; err == nil || ctx.Err() != nil {
		t.Fatalf("the dial of a host that leads no more ended with %v", err)
	}
	conn, err := n.Dial(ctx, Leader("train"))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
