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
	"millrace/sidecar"
)

// payload is the tokens of one step for some ranks, by index into the plan's assignments. While it is fetched each entry belongs to the
// need that its stripe is.
type payload struct {
	schema []byte // what a reply begins with
	plan   *millrace.Plan
	tokens [][]uint32
	masked []bool            // by assignment; nil: none is
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

// Masked implements sidecar.Payload.
func (p *payload) Masked(rank millrace.Rank, microbatch uint32) []bool {
	if p.masked == nil {
		return nil
	}
	part := p.plan.Part(rank, microbatch)
	at := p.starts[[2]uint32{uint32(rank), microbatch}]
	return p.masked[at : at+len(part)]
}

// Release implements sidecar.Payload.
func (p *payload) Release() { p.tokens = nil }

// Fetch implements sidecar.Fetcher: every source and stripe at once, each until it is here. A loader that is dead or silent is
// replaced by its standby; where there is none it is waited for. What no other try can mend ends the run.
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
	l.settle(p, wanted)
	l.cfg.Fail.Hit("sidecar/fetch/after")
	return p, nil
}

// settle marks what is masked, also where it could be read here: it is masked everywhere.
func (l *Link) settle(p *payload, wanted map[uint32][]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, indices := range wanted {
		for _, i := range indices {
			if !l.masked(&p.plan.Assignments[i]) {
				continue
			}
			if p.masked == nil {
				p.masked = make([]bool, len(p.tokens))
			}
			p.masked[i], p.tokens[i] = true, nil
		}
	}
}

// fetchSource gets one source's segments, stripe by stripe at once. One that cannot be had holds up no other; one whose answer is final
// stops all.
func (l *Link) fetchSource(ctx context.Context, p *payload, source uint32, indices []int) error {
	name, stripes, err := l.stripes(ctx, p.plan.Step, source)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for stripe := range stripes {
		mine := slices.DeleteFunc(slices.Clone(indices), func(i int) bool {
			return p.plan.Assignments[i].Ordinal.Stripe(uint64(stripes)) != uint64(stripe)
		})
		if len(mine) > 0 {
			n := &need{link: l, payload: p, key: stripeKey{name, stripe}, indices: mine, bad: map[uint64]finding{}, from: map[int]string{}}
			group.Go(func() error { return n.run(ctx) })
		}
	}
	return group.Wait()
}

// stripes is a source's name and in how many stripes it is read, once any of them is known.
func (l *Link) stripes(ctx context.Context, step millrace.Step, source uint32) (name string, stripes uint32, err error) {
	n := &need{link: l, payload: &payload{plan: &millrace.Plan{Step: step}}}
	defer l.wait(n, "")
	var unknown error
	err = l.await(ctx, func() bool {
		if int(source) >= len(l.sources) {
			unknown = millrace.Errorf(millrace.ErrMismatch, "a plan names source %d, the run has %d", source, len(l.sources))
			return true
		}
		name = l.sources[source].Name
		for key, r := range l.routes {
			if key.source == name {
				stripes = r.stripes
			}
		}
		if _, waits := l.waits[n]; stripes == 0 && !waits {
			l.waits[n] = wait{step, l.cfg.Clock.Now(), "a loader of source " + name + ": none has come yet"}
		}
		return stripes > 0
	})
	return name, stripes, errors.Join(err, unknown)
}

// final tells errors that no other try can mend.
func final(err error) bool {
	return errors.Is(err, millrace.ErrBadSample) || errors.Is(err, millrace.ErrDamaged) || errors.Is(err, millrace.ErrMismatch) || errors.Is(err, millrace.ErrInvalid)
}

// take hands on the rows of one reply: file gets the index of an assignment and its tokens. What cannot be read is a fault that no other
// try mends, and so is a panic on the way.
func (p *payload) take(raw []byte, indices []int, file func(i int, tokens []uint32) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = millrace.Errorf(millrace.ErrMismatch, "decoder failed: %v", v)
		}
	}()
	m, raw, err := cut(raw)
	if err != nil {
		return millrace.Errorf(millrace.ErrMismatch, "decode: %v", err)
	}
	if !bytes.Equal(m.meta, p.schema) {
		return millrace.Errorf(millrace.ErrMismatch, "decode: it has other columns than index and tokens")
	}
	for {
		m, raw, err = cut(raw)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return millrace.Errorf(millrace.ErrMismatch, "decode: %v", err)
		}
		c, err := m.columns()
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if err := p.rows(c, indices, file); err != nil {
			return err
		}
	}
}

// rows hands on the rows of one record batch, each as long as it was asked for.
func (p *payload) rows(c columns, indices []int, file func(i int, tokens []uint32) error) error {
	for i, row := range c.index {
		from, to := c.offsets[i], c.offsets[i+1]
		if uint64(row) >= uint64(len(indices)) || from > to || uint64(to) > uint64(len(c.values)) {
			return millrace.Errorf(millrace.ErrMismatch, "row %d of %d", row, len(indices))
		}
		a := &p.plan.Assignments[indices[row]]
		want := uint64(a.Length)
		if a.More {
			want++
		}
		if uint64(to-from) != want {
			return millrace.Errorf(millrace.ErrMismatch, "%d tokens came for offset %d of source %d, ordinal %d, where %d were planned", to-from, a.Offset, a.Source, a.Ordinal, want)
		}
		if err := file(indices[row], c.values[from:to:to]); err != nil {
			return err
		}
	}
	return nil
}

var _ sidecar.Fetcher = (*Link)(nil)
