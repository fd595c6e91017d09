package link

import (
	"context"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sidecar/link/reply"
)

// fetcher fetches the tokens of whole steps.
type fetcher struct {
	*suppliers
	dump string // directory for different copies of a row
	log  *slog.Logger
}

// fetch gets the tokens of a step for some data-parallel ranks, from all sources and stripes at once. Its error is the
// context's or final: another try would end with the same error.
func (f *fetcher) fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (*payload, error) {
	decoder, err := reply.NewDecoder()
	if err != nil {
		return nil, err
	}
	p := &payload{
		decoder: decoder,
		plan:    plan,
		tokens:  make([][]uint32, len(plan.Assignments)),
		starts:  map[[2]uint32]int{},
	}
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
		group.Go(func() error { return f.fetchSource(gctx, p, source, indices) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f.settle(p, wanted)
	return p, nil
}

// fetchSource gets one source's segments from all its stripes at once. A stripe that waits does not delay the others. A
// final error of one stripe stops all.
func (f *fetcher) fetchSource(ctx context.Context, p *payload, source uint32, indices []int) error {
	reason := f.waits.newWait(p.plan.Step)
	name, stripes, err := f.dir.stripesOf(ctx, source, func(name string) {
		reason.because("a loader of source " + name + ": none has come yet")
	})
	reason.clear()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for stripe := range stripes {
		mine := slices.DeleteFunc(slices.Clone(indices), func(i int) bool {
			return p.plan.Assignments[i].Ordinal.Stripe(uint64(stripes)) != uint64(stripe)
		})
		if len(mine) == 0 {
			continue
		}
		n := &need{
			suppliers: f.suppliers, key: stripeKey{name, stripe}, reason: f.waits.newWait(p.plan.Step),
			rows: &rows{
				payload: p, source: name, indices: mine, dump: f.dump, log: f.log,
				bad: map[uint64]finding{}, from: map[int]string{},
			},
		}
		group.Go(func() error { return n.gather(ctx) })
	}
	return group.Wait()
}

// settle marks the masked segments and drops their tokens. A mask holds on every host, even if this host could read the
// segment.
func (f *fetcher) settle(p *payload, wanted map[uint32][]int) {
	sources := f.dir.sourceNames()
	f.masks.Lock()
	defer f.masks.Unlock()
	for source, indices := range wanted {
		for _, i := range indices {
			if !f.masks.hides(sources[source].Name, &p.plan.Assignments[i]) {
				continue
			}
			if p.masked == nil {
				p.masked = make([]bool, len(p.tokens))
			}
			p.masked[i], p.tokens[i] = true, nil
		}
	}
}
