package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// stripeWidth is how many consecutive ordinals lie in one stripe; package sources deals them the same way.
const stripeWidth = 32

// payload is the tokens of one step for some ranks, by index into the plan's assignments.
type payload struct {
	plan   *millrace.Plan
	tokens [][]uint32
	starts map[[2]uint32]int // (rank, microbatch): index of its first assignment
}

// Tokens implements sidecar.Payload.
func (p *payload) Tokens(rank millrace.Rank, microbatch uint32) ([][]uint32, error) {
	part := p.plan.Part(rank, microbatch)
	at := p.starts[[2]uint32{uint32(rank), microbatch}]
	if at+len(part) > len(p.tokens) {
		return nil, fmt.Errorf("payload of step %d has been released", p.plan.Step)
	}
	return p.tokens[at : at+len(part)], nil
}

// Release implements sidecar.Payload.
func (p *payload) Release() { p.tokens = nil }

// Fetch implements sidecar.Fetcher: every source and stripe at once, each until it is here. A loader that is gone is waited for; a
// sample that no loader can give ends the run with its name.
func (l *Link) Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	l.cfg.Fail.Hit("sidecar/fetch/before")
	p := &payload{plan: plan, tokens: make([][]uint32, len(plan.Assignments)), starts: map[[2]uint32]int{}}
	wanted := map[uint32][]int{}
	for i := len(plan.Assignments) - 1; i >= 0; i-- {
		a := &plan.Assignments[i]
		p.starts[[2]uint32{uint32(a.Rank), a.Microbatch}] = i
		if slices.Contains(ranks, a.Rank) {
			wanted[a.Source] = append(wanted[a.Source], i)
		}
	}
	group, gctx := errgroup.WithContext(ctx)
	for source, indices := range wanted {
		slices.SortFunc(indices, func(i, j int) int {
			a, b := &plan.Assignments[i], &plan.Assignments[j]
			if a.Ordinal != b.Ordinal {
				if a.Ordinal < b.Ordinal {
					return -1
				}
				return 1
			}
			return int(a.Offset) - int(b.Offset)
		})
		group.Go(func() error { return l.fetchSource(gctx, p, source, indices) })
	}
	if err := group.Wait(); err != nil {
		if ctx.Err() == nil {
			l.set(func() {
				l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: &proto.Fatal{Reason: err.Error()}}})
			})
		}
		return nil, err
	}
	l.cfg.Fail.Hit("sidecar/fetch/after")
	return p, nil
}

// fetchSource gets one source's segments, however often its loaders are replaced meanwhile.
func (l *Link) fetchSource(ctx context.Context, p *payload, source uint32, indices []int) error {
	for {
		l.mu.Lock()
		name := l.sources[source].Name
		stripes := l.loaders[name]
		l.mu.Unlock()
		indices = slices.DeleteFunc(indices, func(i int) bool { return p.tokens[i] != nil })
		if len(indices) == 0 {
			return nil
		}
		group, gctx := errgroup.WithContext(ctx)
		for _, s := range stripes {
			mine := slices.DeleteFunc(slices.Clone(indices), func(i int) bool {
				return uint64(p.plan.Assignments[i].Ordinal)/stripeWidth%uint64(s.Stripes) != uint64(s.Stripe)
			})
			if len(mine) > 0 {
				group.Go(func() error { return l.fetchStripe(gctx, p, s, mine) })
			}
		}
		err := group.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && final(err) {
			return err
		}
		if err == nil && !slices.ContainsFunc(indices, func(i int) bool { return p.tokens[i] == nil }) {
			l.wait("")
			return nil
		}
		l.wait(fmt.Sprintf("step %d waits for a loader of source %s; it is being restarted", p.plan.Step, name))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.cfg.Clock.After(retry):
		}
	}
}

// wait notes what the trainers wait for.
func (l *Link) wait(text string) {
	l.mu.Lock()
	l.waiting = text
	l.mu.Unlock()
}

// final tells errors that no other try can mend.
func final(err error) bool {
	return errors.Is(err, millrace.ErrBadSample) || errors.Is(err, millrace.ErrDamaged) || errors.Is(err, millrace.ErrMismatch) || errors.Is(err, millrace.ErrInvalid)
}

func (l *Link) fetchStripe(ctx context.Context, p *payload, s *proto.LoaderStripe, indices []int) error {
	conn, err := l.dial(s.Address)
	if err != nil {
		return err
	}
	req := &proto.FetchRequest{Fence: &proto.Fence{Stream: string(p.plan.Stream), Attempt: uint32(p.plan.Attempt), Term: s.Term},
		Source: s.Source, Stripe: s.Stripe, Step: uint64(p.plan.Step)}
	for _, i := range indices {
		a := &p.plan.Assignments[i]
		req.Ordinal, req.Offset, req.Length = append(req.Ordinal, uint64(a.Ordinal)), append(req.Offset, a.Offset), append(req.Length, a.Length)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := proto.NewLoaderClient(conn).Fetch(ctx, req)
	if err != nil {
		return wire.FromStatus(err)
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wire.FromStatus(err)
		}
		if err := p.take(reply.Arrow, indices); err != nil {
			return fmt.Errorf("payload of step %d from %s: %w", p.plan.Step, s.Name, err)
		}
	}
}

// take files the rows of one reply. The tokens keep the record's memory alive.
func (p *payload) take(raw []byte, indices []int) error {
	r, err := ipc.NewReaderFromMessageReader(&messages{raw: raw})
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	defer r.Release()
	for r.Next() {
		record := r.Record()
		rows, ok1 := record.Column(0).(*array.Uint32)
		lists, ok2 := record.Column(1).(*array.List)
		if !ok1 || !ok2 {
			return fmt.Errorf("columns are %s: %w", record.Schema(), millrace.ErrMismatch)
		}
		values := lists.ListValues().(*array.Uint32).Uint32Values()
		record.Retain() // for as long as the tokens are referenced: the Go allocator's memory is the garbage collector's
		for i := range int(record.NumRows()) {
			from, to := lists.ValueOffsets(i)
			row := int(rows.Value(i))
			if row >= len(indices) || to > int64(len(values)) || from > to {
				return fmt.Errorf("row %d of %d: %w", row, len(indices), millrace.ErrMismatch)
			}
			p.tokens[indices[row]] = values[from:to:to]
		}
	}
	return r.Err()
}

var _ sidecar.Fetcher = (*Link)(nil)
