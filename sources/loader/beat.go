package loader

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/proto"
)

// Beat implements proto.LoaderServer: it beats until the watcher leaves. A watcher that does not read holds as many
// bytes as the buffers of one connection have room for.
func (l *Loader) Beat(_ *proto.BeatRequest, stream proto.Loader_BeatServer) error {
	if l.cfg.Beat == nil {
		return status.Errorf(codes.Unimplemented, "%s has no heartbeat", l.cfg.Name)
	}
	defer l.cfg.Beat.Listen()()
	for {
		b := l.cfg.Beat.Beat(l.cfg.Clock.Now())
		err := stream.Send(&proto.BeatReply{Progress: b.Progress, Pending: b.Pending, Slow: uint32(b.Slow),
			StalledMs: uint32(b.Stalled.Milliseconds()), PeriodMs: uint32(b.Period.Milliseconds())})
		if err != nil {
			return err
		}
		sent := l.cfg.Clock.Now() // behind a slow connection, Send waits
		select {
		case <-stream.Context().Done():
			return nil
		case <-l.cfg.Clock.After(b.Period):
		}
		next := l.cfg.Clock.Now()
		l.cfg.Beat.Late(next, next.Sub(sent)-b.Period)
	}
}
