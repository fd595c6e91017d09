package rundir

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"millrace/internal/seam"
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
