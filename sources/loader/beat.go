package loader

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/internal/heartbeat"
	"millrace/proto"
)

// Beat implements proto.LoaderServer: it beats until the watcher leaves. A watcher that does not read holds as many
// bytes as the buffers of one connection have room for.
func (l *Loader) Beat(_ *proto.BeatRequest, stream proto.Loader_BeatServer) error {
	if l.cfg.Beat == nil {
		return status.Errorf(codes.Unimplemented, "%s has no heartbeat", l.cfg.Name)
	}
	for {
		b := l.cfg.Beat.Beat(l.cfg.Clock.Now())
		err := stream.Send(&proto.BeatReply{Progress: b.Progress, Pending: b.Pending, Slow: uint32(b.Slow)})
		if err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-l.cfg.Clock.After(heartbeat.Every):
		}
	}
}
