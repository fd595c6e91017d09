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
	"millrace/app/cluster"
	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/hosts"
	"millrace/proto"
)

// answerWithin is the time limit for an orchestrator's status.
const answerWithin = 2 * time.Second

// Way leads from a run directory to the orchestrators of its streams and to etcd. It connects to etcd once, and only if
// it has to. The caller closes it. Not safe for concurrent use.
type Way struct {
	site        *cluster.Site // nil: the run has one host
	err         error         // of reading the site
	network     *cluster.Network
	credentials *secure.Credentials
}

// NewWay returns the way from a run directory. It connects to nothing.
func NewWay(dir string) *Way {
	w := new(Way)
	w.site, w.err = cluster.ReadSite(supervisor.HomeOf(dir))
	return w
}

// Close closes the connection to etcd.
func (w *Way) Close() {
	if w.network != nil {
		w.network.Close()
	}
}

// Site returns the place of this host in a run with several, nil if the run has one.
func (w *Way) Site() (*cluster.Site, error) { return w.site, w.err }

// Hosts returns the registered hosts of a run with several, by rank, and the leader.
func (w *Way) Hosts(ctx context.Context) ([]hosts.Host, lease.Holder, error) {
	if err := w.open(); err != nil {
		return nil, lease.Holder{}, err
	}
	return w.network.Hosts(ctx)
}

// open prepares the way to other hosts.
func (w *Way) open() (err error) {
	if w.network == nil {
		w.network, w.credentials, err = w.site.Network(slog.New(slog.DiscardHandler))
	}
	return err
}

// AskStatus asks the orchestrator of a run directory for its status.
func AskStatus(ctx context.Context, dir string) (*proto.StatusReply, error) {
	w := NewWay(dir)
	defer w.Close()
	return w.AskStatus(ctx, dir)
}

// Ask asks the orchestrator of a run directory one question.
func Ask(dir string, question func(proto.OrchestratorClient) error) error {
	w := NewWay(dir)
	defer w.Close()
	return w.ask(dir, question)
}

// AskStatus asks the orchestrator of a stream for its status. dir is the stream's run directory.
func (w *Way) AskStatus(ctx context.Context, dir string) (reply *proto.StatusReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err = w.ask(dir, func(client proto.OrchestratorClient) error {
		reply, err = client.Status(ctx, &proto.StatusRequest{}, grpc.WaitForReady(false))
		return err
	})
	return reply, err
}

// ask connects to the orchestrator of a stream. Its errors are for people: they advise to ask again, and leave
// addresses and gRPC codes out.
func (w *Way) ask(dir string, question func(proto.OrchestratorClient) error) error {
	options, err := w.to(dir)
	if err != nil {
		return err
	}
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

// to returns the way to the orchestrator of a stream, which may be on another host.
func (w *Way) to(dir string) ([]grpc.DialOption, error) {
	if w.err != nil {
		return nil, w.err
	}
	address := Socket(dir, "orchestrator")
	if _, absent := os.Stat(address); w.site == nil || absent == nil { // it is on this host, and needs no etcd
		var here *secure.Credentials
		return here.Client(seam.SystemNet{}, address, secure.Orchestrator), nil
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	address = cluster.Leader(millrace.Stream(supervisor.StreamOf(dir)))
	return w.credentials.Client(w.network, address, secure.Orchestrator), nil
}
