package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// payload is the tokens of one step for some ranks, by index into the plan's assignments.
type payload struct {
	schema []byte // what a reply begins with
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
	first, err := schema()
	if err != nil {
		return nil, err
	}
	p := &payload{schema: first, plan: plan, tokens: make([][]uint32, len(plan.Assignments)), starts: map[[2]uint32]int{}}
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
			l.set(func() { l.complain(err.Error()) })
		}
		return nil, err
	}
	l.cfg.Fail.Hit("sidecar/fetch/after")
	return p, nil
}

// fetchSource gets one source's segments, however often its loaders are replaced meanwhile.
func (l *Link) fetchSource(ctx context.Context, p *payload, source uint32, indices []int) error {
	for {
		name, stripes, err := l.serving(source)
		if err != nil {
			return err
		}
		indices = slices.DeleteFunc(indices, func(i int) bool { return p.tokens[i] != nil })
		if len(indices) == 0 {
			return nil
		}
		if err := l.fetchStripes(ctx, p, stripes, indices); ctx.Err() != nil {
			return ctx.Err()
		} else if final(err) {
			return err
		}
		if !slices.ContainsFunc(indices, func(i int) bool { return p.tokens[i] == nil }) {
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

// serving is who serves a source now.
func (l *Link) serving(source uint32) (name string, stripes []*proto.LoaderStripe, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(source) >= len(l.sources) {
		return "", nil, fmt.Errorf("a plan names source %d, the run has %d: %w", source, len(l.sources), millrace.ErrMismatch)
	}
	name = l.sources[source].Name
	return name, l.loaders[name], nil
}

// fetchStripes asks every stripe once. One that cannot be reached stops no other; one whose answer is final stops all.
func (l *Link) fetchStripes(ctx context.Context, p *payload, stripes []*proto.LoaderStripe, indices []int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group errgroup.Group
	for _, s := range stripes {
		mine := slices.DeleteFunc(slices.Clone(indices), func(i int) bool {
			return p.plan.Assignments[i].Ordinal.Stripe(uint64(s.Stripes)) != uint64(s.Stripe)
		})
		if len(mine) == 0 {
			continue
		}
		group.Go(func() error {
			err := l.fetchStripe(ctx, p, s, mine)
			if final(err) {
				cancel(err)
			}
			return err
		})
	}
	err := group.Wait()
	if cause := context.Cause(ctx); final(cause) {
		return cause
	}
	return err
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

// take files the rows of one reply. What cannot be read is a fault that no other try mends, and so is a panic on the way.
func (p *payload) take(raw []byte, indices []int) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decoder failed: %v: %w", v, millrace.ErrMismatch)
		}
	}()
	m, raw, err := cut(raw)
	if err != nil {
		return fmt.Errorf("decode: %v: %w", err, millrace.ErrMismatch)
	}
	if !bytes.Equal(m.meta, p.schema) {
		return fmt.Errorf("decode: it has other columns than index and tokens: %w", millrace.ErrMismatch)
	}
	for {
		m, raw, err = cut(raw)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decode: %v: %w", err, millrace.ErrMismatch)
		}
		c, err := m.columns()
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if err := p.rows(c, indices); err != nil {
			return err
		}
	}
}

// rows files the rows of one record batch, each as long as it was asked for.
func (p *payload) rows(c columns, indices []int) error {
	for i, row := range c.index {
		from, to := c.offsets[i], c.offsets[i+1]
		if uint64(row) >= uint64(len(indices)) || from > to || uint64(to) > uint64(len(c.values)) {
			return fmt.Errorf("row %d of %d: %w", row, len(indices), millrace.ErrMismatch)
		}
		a := &p.plan.Assignments[indices[row]]
		want := uint64(a.Length)
		if a.More {
			want++
		}
		if uint64(to-from) != want {
			return fmt.Errorf("%d tokens came for offset %d of source %d, ordinal %d, where %d were planned: %w", to-from, a.Offset, a.Source, a.Ordinal, want, millrace.ErrMismatch)
		}
		p.tokens[indices[row]] = c.values[from:to:to]
	}
	return nil
}

var _ sidecar.Fetcher = (*Link)(nil)
