package rundir

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"millrace/app/cluster"
	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/orchestrator/lease/etcdtest"
	"millrace/proto"
)

// crowded answers as the orchestrator of a run with very many stripes.
type crowded struct {
	proto.UnimplementedOrchestratorServer
}

func (crowded) Status(context.Context, *proto.StatusRequest) (*proto.StatusReply, error) {
	out := &proto.StatusReply{Step: 7}
	for range 50_000 {
		out.Stripes = append(out.Stripes, &proto.LoaderStripe{Source: strings.Repeat("s", 100), Name: "loader-0"})
	}
	return out, nil
}

// TestAStatusOfManyStripesArrives: an answer may be larger than 4 MiB, the default limit of gRPC.
func TestAStatusOfManyStripesArrives(t *testing.T) {
	dir, err := os.MkdirTemp("", "ask") // a short path, as sockets need
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.MkdirAll(filepath.Dir(Socket(dir, "orchestrator")), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := seam.SystemNet{}.Listen(Socket(dir, "orchestrator"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	proto.RegisterOrchestratorServer(server, crowded{})
	go server.Serve(listener) // ends with Stop
	t.Cleanup(server.Stop)
	reply, err := AskStatus(t.Context(), dir)
	if err != nil || reply.Step != 7 || len(reply.Stripes) != 50_000 {
		t.Fatalf("%v: %d stripes", err, len(reply.GetStripes()))
	}
}

// TestOneConnectionToEtcd: a status of a run with several hosts, the statuses of its streams and the list of its hosts
// need one connection.
func TestOneConnectionToEtcd(t *testing.T) {
	relay := etcdtest.NewRelay(t, etcdtest.Start(t, 1, nil).Members[0])
	dir := t.TempDir()
	file := filepath.Join(dir, "cluster.yaml")
	if err := os.WriteFile(file, []byte("name: one\netcd: ["+relay.URL+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(supervisor.RuntimeDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteSite(dir, cluster.Site{File: file, Listen: "127.0.0.1:9400"}); err != nil {
		t.Fatal(err)
	}
	w := NewWay(dir)
	defer w.Close()
	if list, _, err := w.Hosts(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("%v: %v", err, list)
	}
	for _, of := range []string{dir, supervisor.StreamDir(dir, "eval")} {
		if _, err := w.AskStatus(t.Context(), of); err == nil {
			t.Error("a run without a leader answers")
		}
	}
	if n := relay.Taken(); n != 1 {
		t.Errorf("%d connections to etcd, want 1", n)
	}
}
