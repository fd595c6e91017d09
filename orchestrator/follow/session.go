package follow

import (
	"context"
	"errors"
	"fmt"
	"io"

	"millrace"
	"millrace/checkpoint/replica"
	"millrace/internal/wire"
	"millrace/proto"
)

// session is one stream of a follower with the copy that it writes. It belongs to one goroutine.
type session struct {
	f       *Follower
	send    func(*proto.FollowerEvent) error
	copied  *replica.Replica // nil: no image has begun
	isWhole bool
	parts   uint64 // of the image that have come
	image   uint64 // number of the last batch in the image
	pieces  assembly
}

// followOnce connects to the leader, and writes its journal until the stream ends.
func (f *Follower) followOnce(ctx context.Context) (err error) {
	conn, err := f.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := proto.NewOrchestratorClient(conn).Follow(ctx)
	if err != nil {
		return wire.FromStatus(err)
	}
	id, err := f.ID()
	if err != nil {
		return err
	}
	s := &session{f: f, send: stream.Send}
	defer func() {
		if s.copied != nil {
			err = errors.Join(err, s.copied.Close())
		}
	}()
	hello := &proto.FollowerHello{Version: f.cfg.Version, Host: f.cfg.Host, Identity: f.cfg.Identity, Journal: id}
	err = s.send(&proto.FollowerEvent{Event: &proto.FollowerEvent_Hello{Hello: hello}})
	for err == nil {
		var part *proto.JournalPart
		if part, err = stream.Recv(); err == nil {
			err = s.take(part)
		}
	}
	if err == io.EOF { // a send returns it
		cancel()
		err = whyEnded(stream)
	}
	return wire.FromStatus(err)
}

// whyEnded returns the error with which the leader ended a stream whose sends fail. It comes behind the messages that
// were sent before. The caller has ended the stream on this side: gRPC may have begun it anew behind a failed send.
func whyEnded(stream proto.Orchestrator_FollowClient) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// take writes one message of the leader to the copy.
func (s *session) take(part *proto.JournalPart) error {
	switch p := part.Part.(type) {
	case *proto.JournalPart_Waiting:
		s.f.cfg.Log.Info("the journal of the leader is not followed yet", "reason", p.Waiting.Reason)
		s.f.follows = true
		return nil
	case *proto.JournalPart_Image:
		if p.Image.Parts == 0 {
			return s.begin(p.Image)
		}
		return s.complete(p.Image)
	case *proto.JournalPart_Bytes:
		return s.write(p.Bytes)
	}
	return nil // of a later release
}

// begin begins the copy.
func (s *session) begin(i *proto.JournalImage) (err error) {
	if s.copied != nil {
		return millrace.Errorf(millrace.ErrInvalid, "the leader sent a second image of its journal")
	}
	s.image = i.Number
	s.pieces.await(1)
	s.copied, err = replica.Begin(s.f.cfg.Journal)
	return err
}

// write writes a batch when its last piece has come, and acknowledges it if the image is whole.
func (s *session) write(p *proto.JournalBytes) error {
	if s.copied == nil {
		return millrace.Errorf(millrace.ErrInvalid, "the leader sent a batch of its journal before an image")
	}
	batch, err := s.pieces.add(p)
	if err != nil || batch == nil {
		return err
	}
	if err := s.copied.Absorb(batch); err != nil {
		return err
	}
	if !s.isWhole {
		s.parts++
		return nil
	}
	return s.acknowledge(p.Number)
}

// complete puts the copy in the place of the journal.
func (s *session) complete(i *proto.JournalImage) error {
	if s.copied == nil || s.isWhole || i.Number != s.image || i.Parts != s.parts {
		return millrace.Errorf(millrace.ErrInvalid, "the leader's image of its journal has %d parts up to batch %d, "+
			"and %d parts up to batch %d came", i.Parts, i.Number, s.parts, s.image)
	}
	s.f.folder.Lock()
	err := s.copied.Complete()
	s.f.folder.Unlock()
	if err != nil {
		return err
	}
	s.isWhole, s.f.follows = true, true
	s.pieces.await(i.Number + 1)
	return s.acknowledge(i.Number)
}

func (s *session) acknowledge(number uint64) error {
	ack := &proto.JournalAck{Journal: s.copied.ID(), Number: number}
	err := s.send(&proto.FollowerEvent{Event: &proto.FollowerEvent_Ack{Ack: ack}})
	if err != nil && err != io.EOF {
		return fmt.Errorf("acknowledge batch %d: %w", number, wire.FromStatus(err))
	}
	return err
}
