package main

import (
	"fmt"
	"math"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
)

// goal12 is how even context-parallel ranks are inside a microbatch.
func goal12(b *bench) ([]row, error) {
	var rows []row
	for _, m := range []model{dense8B(), moeA3B()} {
		for _, cp := range []int{8, 16} {
			r, err := b.context(m, cp)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r...)
		}
	}
	return rows, nil
}

func (b *bench) context(m model, cp int) ([]row, error) {
	const ranks, columns, tokens = 16, 8, 131072
	pad := uint32(2 * cp)
	spec, err := newSpec(tokens, ranks*columns, fourSources()...)
	if err != nil {
		return nil, err
	}
	spec.PadMultiple = pad
	selector, err := planner.NewSelector(spec, planner.NewState(len(spec.Sources)))
	if err != nil {
		return nil, err
	}
	sels, err := advance(selector, newCorpus(b.lengths["longctx"], b.documents, len(spec.Sources)), 1)
	if err != nil {
		return nil, err
	}
	s := shape{slack: 1150}
	topo := millrace.Topology{Ranks: ranks * cp, TP: 1, CP: cp, PP: 1}
	weigh := func(local uint32) (over float64, plan *millrace.Plan, err error) {
		o := s.placement(m, millrace.Varlen, millrace.BalanceFSDP)
		o.Local = local
		if plan, err = place.Plan(&sels[0], topo, o); err != nil {
			return 0, nil, err
		}
		all, _ := cost.WeighContext(plan, o.Cost, cp, pad)
		over = float64(all) / 1e4
		if own := sliced(plan, m, cp, pad); math.Abs(own-over) > .01 {
			err = fmt.Errorf("cp %d, documents to %d tokens whole: the planner says %g %%, this program %g %%", cp, local, over, own)
		}
		return over, plan, err
	}
	over, plan, err := weigh(0)
	if err != nil {
		return nil, err
	}
	hybrid, whole, err := weigh(uint32(tokens / (16 * cp)))
	if err != nil {
		return nil, err
	}
	held, all := 0.0, 0.0
	for i := range whole.Assignments {
		a := &whole.Assignments[i]
		if all += float64(a.Length); a.Holder > 0 {
			held += float64(a.Length)
		}
	}
	name := fmt.Sprintf("longctx 128K, CP %d, %s", cp, m.name)
	return []row{
		{"G12", name + ", every document in zigzag: ≤ 0.2 % over the mean rank", percent(over), atMost(over, .2),
			fmt.Sprintf("contiguous %s, zigzag of the whole pack %s", percent(evenParts(plan, m, cp, false)), percent(evenParts(plan, m, cp, true)))},
		{"G12", fmt.Sprintf("%s, documents to %d tokens whole on a rank: ≤ 0.2 %%", name, tokens/(16*cp)), percent(hybrid), atMost(hybrid, .2), fmt.Sprintf("%s of the tokens exchange nothing", percent(100*held/all))},
	}, nil
}

// microbatches calls a function with each microbatch of a plan.
func microbatches(p *millrace.Plan, each func([]millrace.Assignment)) {
	for r := range p.Ranks {
		for m := range p.Microbatches {
			each(p.Part(millrace.Rank(r), m))
		}
	}
}

// slowest is how much dearer the dearest of each microbatch's ranks are than the mean, in percent.
func slowest(p *millrace.Plan, cp int, load func(part []millrace.Assignment, ranks []float64)) float64 {
	total, top := 0.0, 0.0
	microbatches(p, func(part []millrace.Assignment) {
		ranks, most := make([]float64, cp), 0.0
		load(part, ranks)
		for _, x := range ranks {
			total += x / float64(cp)
			most = max(most, x)
		}
		top += most
	})
	return 100 * (top/total - 1)
}

// sliced weighs ranks that have documents in zigzag slices, or whole where the plan says so. Padding is as dear as a document of its own.
func sliced(p *millrace.Plan, m model, cp int, pad uint32) float64 {
	return slowest(p, cp, func(part []millrace.Assignment, ranks []float64) {
		for i := range part {
			a := &part[i]
			wide := (a.Length + pad - 1) / pad * pad
			if a.Holder > 0 {
				ranks[a.Holder-1] += m.of(a.Length) + m.of(wide-a.Length)
				continue
			}
			piece := wide / uint32(2*cp)
			for at := range uint32(2 * cp) {
				to := int(min(at, uint32(2*cp)-1-at))
				from, until := at*piece, (at+1)*piece
				ranks[to] += m.of(min(until, a.Length)) - m.of(min(from, a.Length))
				ranks[to] += padding(m, a.Length, from, until)
			}
		}
	})
}

// padding is the cost of what of a piece lies behind a document's end.
func padding(m model, length, from, until uint32) float64 {
	behind := func(at uint32) float64 { return m.of(max(at, length) - length) }
	return behind(until) - behind(from)
}

// evenParts weighs ranks that have equal parts of the pack, whatever lies there: one after the other, or in zigzag.
func evenParts(p *millrace.Plan, m model, cp int, zigzag bool) float64 {
	parts := cp
	if zigzag {
		parts = 2 * cp
	}
	return slowest(p, cp, func(part []millrace.Assignment, ranks []float64) {
		tokens := uint32(0)
		for i := range part {
			tokens += part[i].Length
		}
		at := uint32(0)
		for i := range part {
			for done := uint32(0); done < part[i].Length; {
				piece := int(uint64(at) * uint64(parts) / uint64(tokens))
				end := uint32((uint64(piece+1)*uint64(tokens) + uint64(parts) - 1) / uint64(parts))
				n := min(part[i].Length-done, end-at)
				to := piece
				if zigzag {
					to = min(piece, parts-1-piece)
				}
				ranks[to] += m.of(done+n) - m.of(done)
				done, at = done+n, at+n
			}
		}
	})
}
