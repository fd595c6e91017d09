package tier

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"millrace"
	"millrace/constructors"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

const (
	// planWithin bounds the wait for the plan of a peer's request. The server sends nothing before it has the plan. The
	// plan of a step comes to all hosts at about the same time.
	planWithin = 300 * time.Millisecond
	// beatEvery is the time between two replies without rows.
	beatEvery = 50 * time.Millisecond
	// replyBytes is the size of the tokens of a reply.
	replyBytes = 1 << 20
)

// Server implements proto.ConstructorServer.
type Server struct {
	proto.UnimplementedConstructorServer
	tier *Tier
}

// Server returns the server for the peers.
func (t *Tier) Server() *Server { return &Server{tier: t} }

// Fetch implements proto.ConstructorServer. A peer that is refused asks the loaders.
func (s *Server) Fetch(req *proto.GroupRequest, stream grpc.ServerStreamingServer[proto.FetchReply]) error {
	s.tier.cfg.Fail.Hit("sidecar/serve/before")
	err := s.tier.serve(stream.Context(), req, stream.Send)
	s.tier.cfg.Fail.Hit("sidecar/serve/after")
	return wire.ToStatus(err)
}

func (t *Tier) serve(ctx context.Context, req *proto.GroupRequest, send func(*proto.FetchReply) error) error {
	attempt, step := millrace.Attempt(req.GetFence().GetAttempt()), millrace.Step(req.Step)
	plan, err := t.planned(ctx, attempt, step)
	if err != nil {
		return err
	}
	if !slices.Equal(plan.Placement[:], req.Placement) {
		return millrace.Errorf(millrace.ErrMismatch, "the plan of step %s of attempt %d that this sidecar has is "+
			"another one", step, attempt)
	}
	ranks := make([]millrace.Rank, len(req.Rank))
	for i, r := range req.Rank {
		ranks[i] = millrace.Rank(r)
	}
	own := t.divide(t.cfg.Feeds, nil).own
	if !includes(own, ranks) {
		return millrace.Errorf(millrace.ErrFenced, "%s is not the constructor of the data-parallel ranks %d",
			t.cfg.Name, ranks)
	}
	x := t.shelf.join(plan, own, t.peersOf(own))
	if x == nil {
		return millrace.Errorf(millrace.ErrFenced, "%s has passed step %s of attempt %d, or has no room for it",
			t.cfg.Name, step, attempt)
	}
	defer t.shelf.give(x)
	if !includes(x.ranks, ranks) { // the groups have changed since the fetch began
		return millrace.Errorf(millrace.ErrFenced, "%s fetches step %s for other ranks", t.cfg.Name, step)
	}
	if err := x.beat(ctx, t.cfg.Clock.After, send); err != nil {
		return err
	}
	s := sending{send: send, left: bytesOf(plan, ranks, x.payload)}
	if err := s.all(plan, ranks, x.payload); err != nil {
		return err
	}
	t.shelf.took(x, ranks)
	t.peers.Add(s.bytes)
	return nil
}

// planned returns the plan of a step if it is here soon. This host's ranks may have passed a step that is on the shelf.
func (t *Tier) planned(ctx context.Context, a millrace.Attempt, step millrace.Step) (*millrace.Plan, error) {
	if p, _ := t.shelf.find(key{a, step}); p != nil {
		return p, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found, failed := make(chan *millrace.Plan, 1), make(chan error, 1)
	go func() { // ends with ctx
		if p, err := t.cfg.Plan(ctx, a, step); err != nil {
			failed <- err
		} else {
			found <- p.Plan
		}
	}()
	select {
	case p := <-found:
		return p, nil
	case err := <-failed:
		return nil, err
	case <-t.cfg.Clock.After(planWithin):
		return nil, millrace.Errorf(millrace.ErrFenced, "%s has no plan of step %s of attempt %d", t.cfg.Name, step, a)
	}
}

// beat waits for the tokens. Meanwhile it sends signs of life.
func (x *item) beat(
	ctx context.Context, after func(time.Duration) <-chan time.Time, send func(*proto.FetchReply) error,
) error {
	for {
		select {
		case <-x.ready:
			return x.err
		case <-ctx.Done():
			return ctx.Err()
		case <-after(beatEvery):
			if err := send(&proto.FetchReply{}); err != nil {
				return err
			}
		}
	}
}

// sending sends rows in replies of about equal size.
type sending struct {
	send  func(*proto.FetchReply) error
	reply *proto.FetchReply
	size  int    // of the reply's tokens and fields
	row   uint32 // number of the next row
	left  int64  // bytes of tokens that are not in a reply yet
	bytes int64  // of tokens in replies
}

// all sends the rows of ranks in the order of the plan. It copies the tokens: the connection may send them later, and
// the payload's memory is used again.
func (s *sending) all(plan *millrace.Plan, ranks []millrace.Rank, p sidecar.Payload) error {
	s.begin()
	for _, rank := range ranks {
		for m := range plan.Microbatches {
			tokens, err := p.Tokens(rank, m)
			if err != nil {
				return err
			}
			masked, fields := p.Masked(rank, m), p.Fields(rank, m)
			for i, row := range tokens {
				text := ""
				if fields != nil {
					text = fields[i]
				}
				if masked == nil || !masked[i] {
					if err := s.add(row, text); err != nil {
						return err
					}
				}
				s.row++
			}
		}
	}
	s.reply.Last = true
	return s.send(s.reply)
}

func (s *sending) begin() {
	s.reply, s.size = &proto.FetchReply{Tokens: make([]byte, 0, min(s.left, replyBytes))}, 0
}

// add adds a row. A row that does not fit continues in the next reply.
func (s *sending) add(row constructors.Tokens, fields string) error {
	width := row.Width()
	for from := 0; ; {
		to := min(row.Len(), from+(replyBytes-s.size+width-1)/width)
		ids := row.Bytes(from, to)
		r := s.reply
		r.Row, r.Count = append(r.Row, s.row), append(r.Count, uint32(to-from))
		wire.SetWide(r, row.IsWide())
		wire.SetFields(r, fields)
		r.Tokens = append(r.Tokens, ids...)
		s.left -= int64(len(ids))
		s.bytes += int64(len(ids))
		s.size += len(ids) + len(fields)
		from = to
		if r.Cut = from < row.Len(); s.size >= replyBytes {
			if err := s.send(r); err != nil {
				return err
			}
			s.begin()
		}
		if from == row.Len() {
			return nil
		}
	}
}
