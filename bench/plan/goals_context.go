package main

import (
	"fmt"
	"math"

	"millrace"
	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// goal12 measures the imbalance of context-parallel ranks inside a microbatch.
func goal12(b *bench) ([]row, error) {
	var rows []row
	for _, m := range []overhead.Model{overhead.Dense8B(), overhead.MoEA3B()} {
		for _, cp := range []int{8, 16} {
			r, err := b.contextParallel(m, cp)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r...)
		}
	}
	return rows, nil
}

// contextParallel measures G12 for one model and one number of context-parallel ranks.
func (b *bench) contextParallel(m overhead.Model, cp int) ([]row, error) {
	const ranks, columns, tokens = 16, 8, 131072
	pad := uint32(2 * cp)
	spec, err := workload.Spec(tokens, ranks*columns, workload.FourSources()...)
	if err != nil {
		return nil, err
	}
	spec.PadMultiple = pad
	selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
	if err != nil {
		return nil, err
	}
	sels, err := workload.Advance(selector, workload.NewCorpus(b.lengths["longctx"], b.documents, len(spec.Sources)), 1)
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
		if own := overhead.Sliced(plan, m, cp, pad); math.Abs(own-over) > .01 {
			err = fmt.Errorf(
				"cp %d, documents to %d tokens whole: the planner computes %g %%, this program %g %%",
				cp, local, over, own,
			)
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
	name := fmt.Sprintf("longctx 128K, CP %d, %s", cp, m.Name)
	return []row{
		{"G12", name + ", every document in zigzag: ≤ 0.2 % over the mean rank", percent(over), atMost(over, .2),
			fmt.Sprintf(
				"contiguous %s, zigzag of the whole pack %s", percent(overhead.EvenParts(plan, m, cp, false)),
				percent(overhead.EvenParts(plan, m, cp, true)),
			)},
		{
			"G12", fmt.Sprintf("%s, documents to %d tokens whole on a rank: ≤ 0.2 %%", name, tokens/(16*cp)),
			percent(hybrid), atMost(hybrid, .2),
			fmt.Sprintf("%s of the tokens exchange nothing", percent(100*held/all)),
		},
	}, nil
}
