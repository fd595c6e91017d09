package follow

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"millrace/checkpoint"
	"millrace/proto"
)

// TestARefusalIsToldOnce: a leader refuses each stream before it reads the first message. The send of that message then
// fails without the reason, now and then. People are told the reason, and once.
func TestARefusalIsToldOnce(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	var refused atomic.Int64
	server := grpc.NewServer(grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo,
		grpc.StreamHandler) error {
		refused.Add(1)
		return status.Error(codes.PermissionDenied, "role orchestrator is needed")
	}))
	proto.RegisterOrchestratorServer(server, proto.UnimplementedOrchestratorServer{})
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	var told strings.Builder                      // of one goroutine
	journal := checkpoint.Config{Dir: filepath.Join(t.TempDir(), "journal"), CreatedBy: "test"}
	f := New(Config{Journal: journal, Host: "a",
		Log: slog.New(slog.NewTextHandler(&told, nil)), Dial: func(context.Context) (*grpc.ClientConn, error) {
			return grpc.NewClient("unix:"+listener.Addr().String(),
				grpc.WithTransportCredentials(insecure.NewCredentials()))
		}})
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() { f.run(ctx) })
	eventually(t, "refusals", func() bool { return refused.Load() >= 20 })
	cancel()
	server.Stop()
	all.Wait()
	if text := told.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "is needed") {
		t.Errorf("people are told:\n%s", text)
	}
}
