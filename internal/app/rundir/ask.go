package rundir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/app/cluster"
	"millrace/internal/app/supervisor"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/proto"
)

// answerWithin is the time limit for an orchestrator's status.
const answerWithin = 2 * time.Second

// AskStatus asks the orchestrator of a run directory for its status.
func AskStatus(ctx context.Context, dir string) (reply *proto.StatusReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err = Ask(dir, func(client proto.OrchestratorClient) error {
		reply, err = client.Status(ctx, &proto.StatusRequest{}, grpc.WaitForReady(false))
		return err
	})
	return reply, err
}

// Ask connects to the orchestrator of a run directory for one question. Its errors are for people: they advise to ask
// again, and leave addresses and gRPC codes out.
func Ask(dir string, question func(proto.OrchestratorClient) error) error {
	options, done, err := way(dir)
	if err != nil {
		return err
	}
	defer done()
	conn, err := grpc.NewClient(secure.Target, options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = question(proto.NewOrchestratorClient(conn))
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Unavailable: // no process listens, or it died during the question
		return errors.New("it is being started, or the run is just ending: ask again in a moment")
	case codes.DeadlineExceeded:
		return fmt.Errorf("it did not answer within %v: ask again in a moment", answerWithin)
	}
	return errors.New(status.Convert(err).Message())
}

// way returns the way to the orchestrator of a run directory, which may be on another host. The caller calls done.
func way(dir string) (options []grpc.DialOption, done func(), err error) {
	site, err := cluster.ReadSite(supervisor.HomeOf(dir))
	if err != nil {
		return nil, nil, err
	}
	address := Socket(dir, "orchestrator")
	if _, absent := os.Stat(address); site == nil || absent == nil { // it is on this host, and needs no etcd
		var here *secure.Credentials
		return here.Client(seam.SystemNet{}, address, secure.Orchestrator), func() {}, nil
	}
	network, credentials, err := site.Network(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	address = cluster.Leader(millrace.Stream(supervisor.StreamOf(dir)))
	return credentials.Client(network, address, secure.Orchestrator), network.Close, nil
}
