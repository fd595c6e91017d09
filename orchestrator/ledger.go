package orchestrator

import (
	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
)

// Ledger answers from the store what a step held, or where a sample went. Of the loop it asks only how far the run is: reading takes as long
// as it takes, and plans do not wait for it.
func (s *Server) Ledger(request *proto.LedgerRequest, stream grpc.ServerStreamingServer[proto.LedgerReply]) error {
	var l *Ledger
	err := s.ask(stream.Context(), func(m *Machine) error {
		l = m.s.ledger(s.o.opt.Store, string(s.o.cfg.Stream), s.o.cfg.Inverse)
		return nil
	})
	if err != nil {
		return err
	}
	found, err := l.Answer(request)
	if err != nil {
		return wire.ToStatus(err)
	}
	for _, step := range found {
		if err := stream.Send(step); err != nil {
			return err
		}
	}
	return nil
}

// Answer finds what a request asks for.
func (l *Ledger) Answer(request *proto.LedgerRequest) (out []LedgerStep, err error) {
	if request.ByStep {
		return l.FindStep(request.Step)
	}
	source := l.Source(request.Source)
	if source < 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "sample %s/%s: this run has no source %q", request.Source, request.Id, request.Source)
	}
	ordinals, err := l.Locate(source, request.Id)
	if err != nil {
		return nil, err
	}
	for _, ordinal := range ordinals {
		steps, err := l.FindOrdinal(source, ordinal)
		if err != nil {
			return nil, err
		}
		out = append(out, steps...)
	}
	return out, nil
}
