package link

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/proto"
)

// answering is how long the orchestrator may take to answer before trainers that wait are told.
const answering = 2 * time.Second

// pulse asks the orchestrator whether it is there after somebody has asked what is waited for: one that was stopped, or hangs, ends no
// stream. Where nobody waits nothing is asked. It ends with ctx.
func (l *Link) pulse(ctx context.Context, client proto.OrchestratorClient) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.doubt:
		}
		asked := l.cfg.Clock.Now()
		call, cancel := context.WithTimeout(ctx, answering)
		_, err := client.Status(call, &proto.StatusRequest{})
		cancel()
		l.mu.Lock()
		switch {
		case status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil:
			l.mute = time.Time{} // that it is gone is said elsewhere
		case l.mute.IsZero():
			l.mute = asked
		}
		l.mu.Unlock()
	}
}
