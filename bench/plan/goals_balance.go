package main

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/bench/plan/baseline"
	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/planner/place"
)

// others lists the baselines, and the product's other settings.
func (c *comparison) others() string {
	return fmt.Sprintf(
		"concat %s, best-fit %s, best-fit + columns %s, cap-LPT 1.3 + columns %s; "+
			"ours packed %s, slack 1.3 %s; a baseline strands %s at most",
		percent(c.concat.Get().FSDP), percent(c.random.Get().FSDP), percent(c.columns.Get().FSDP),
		percent(c.cap13.Get().FSDP), percent(c.strict.Get().FSDP), percent(c.wide.Get().FSDP), percent(100*c.stranded),
	)
}

// goal1 measures the FSDP overhead at 8K.
func goal1(b *bench) ([]row, error) {
	c, err := b.compared(b.pretrain8K(), overhead.Dense8B())
	if err != nil {
		return nil, err
	}
	ours, strict := c.varlen.Get().FSDP, c.strict.Get().FSDP
	return []row{
		{
			"G1", c.shape.String() + ", 8B, varlen 1.15: FSDP overhead over the mean ≤ 0.25 %, nothing stranded",
			percent(ours), atMost(ours, .25), c.others(),
		},
		{
			"G1", "the same, packed (no slack at all): ≤ 2.3 %", percent(strict), atMost(strict, 2.3),
			"best-fit + columns " + percent(c.columns.Get().FSDP),
		},
	}, nil
}

// goal2 measures the FSDP overhead at 128K.
func goal2(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		window int
		most   float64
	}{{1, 6}, {4, 2.5}} {
		s := b.longctx128K()
		s.window = g.window
		c, err := b.compared(s, overhead.Dense8B())
		if err != nil {
			return nil, err
		}
		beside := c.others()
		if g.window > 1 {
			mean, most, err := b.displaced(s)
			if err != nil {
				return nil, err
			}
			beside += fmt.Sprintf(
				"; segments are %.2f steps from where they would be without a window, at most %d",
				mean, most,
			)
		}
		ours := c.varlen.Get().FSDP
		rows = append(rows, row{
			"G2", fmt.Sprintf("%s, 8B, varlen 1.15: FSDP overhead over the mean ≤ %g %%", s, g.most), percent(ours),
			atMost(ours, g.most), beside,
		})
	}
	split, err := b.splitRow()
	return append(rows, split), err
}

// displaced returns the mean and the largest number of steps by which a window moves a segment.
func (b *bench) displaced(s shape) (mean float64, most int, err error) {
	type address struct {
		source  uint32
		ordinal millrace.Ordinal
		offset  uint32
	}
	moved, err := b.selected(s)
	if err != nil {
		return 0, 0, err
	}
	alone := s
	alone.window = 1
	plain, err := alone.selected(len(moved), b.documents)
	if err != nil {
		return 0, 0, err
	}
	home := map[address]int{}
	for at := range plain {
		for _, seg := range plain[at].Segments {
			home[address{seg.Source, seg.Ordinal, seg.Offset}] = at
		}
	}
	n := 0.0
	for at := range moved {
		for _, seg := range moved[at].Segments {
			if from, ok := home[address{seg.Source, seg.Ordinal, seg.Offset}]; ok {
				far := max(at-from, from-at)
				mean, most, n = mean+float64(far), max(most, far), n+1
			}
		}
	}
	return mean / n, most, nil
}

// splitRow measures G2 with documents split over ranks if they are dearer than the mean microbatch.
func (b *bench) splitRow() (row, error) {
	s, m := b.longctx128K(), overhead.Dense8B()
	sels, err := b.selected(s)
	if err != nil {
		return row{}, err
	}
	o := s.placement(m, millrace.Varlen, millrace.BalanceFSDP)
	o.Split.On = true
	var over overhead.Mean
	parts, tokens, split := 0, 0.0, 0.0
	for i := range sels {
		p, err := s.place(&sels[i], o, m)
		if err != nil {
			return row{}, err
		}
		over.Add(p.over)
		parts += p.said.Slices
		for _, a := range p.plan.Assignments {
			if tokens += float64(a.Length) / float64(max(a.Parts, 1)); a.Parts > 0 {
				split += float64(a.Length) / float64(a.Parts)
			}
		}
	}
	ours := over.Get()
	return row{
		"G2",
		s.String() + ", 8B, varlen 1.15, split_documents: FSDP overhead over the mean ≤ 0.75 %",
		percent(ours.FSDP),
		atMost(ours.FSDP, .75),
		fmt.Sprintf(
			"%d slices a step hold %s of the tokens; rank sums %s, pipeline of 8 %s; communication has no cost here",
			parts/len(sels), percent(100*split/tokens), percent(ours.DP), percent(ours.PP8),
		),
	}, nil
}

// goal3 measures the simulated speed-up over packing that ignores costs.
func goal3(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		shape shape
		model overhead.Model
		least float64
	}{
		{b.longctx128K(), overhead.Dense8B(), 1.75},
		{b.pretrain8K(), overhead.Dense8B(), 1.08},
		{b.pretrain8K(), overhead.MoEA3B(), 1.2},
	} {
		c, err := b.compared(g.shape, g.model)
		if err != nil {
			return nil, err
		}
		up := c.speedUp()
		rows = append(rows, row{
			"G3",
			fmt.Sprintf(
				"%s, %s: simulated FSDP speed-up over best-fit in random order ≥ %.2f ×",
				c.shape, g.model.Name, g.least,
			),
			fmt.Sprintf("%.3f ×", up),
			atLeast(up, g.least),
			fmt.Sprintf(
				"a perfect plan %.3f ×; ours against concat %.2f ×; FSDP %s to %s, rank sums %s to %s",
				1+c.random.Get().FSDP/100, (100+c.concat.Get().FSDP)/(100+c.varlen.Get().FSDP),
				percent(c.random.Get().FSDP), percent(c.varlen.Get().FSDP), percent(c.random.Get().DP),
				percent(c.sums.Get().DP),
			),
		})
	}
	return rows, nil
}

// goal4 measures the distance of plans from the column estimate and from the lower bound of the ranks' sums.
func goal4(b *bench) ([]row, error) {
	pretrain32K := b.pretrain8K()
	pretrain32K.tokens, pretrain32K.ranks, pretrain32K.columns = 32768, b.scaled(128), 4
	var rows []row
	for _, g := range []struct {
		shape shape
		most  float64
	}{{b.pretrain8K(), .5}, {pretrain32K, .5}, {b.longctx128K(), 2}} {
		c, err := b.compared(g.shape, overhead.Dense8B())
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{
			"G4", fmt.Sprintf("%s: over the column estimate ≤ %g %%, in the worst step", c.shape, g.most),
			percent(c.worstGap), atMost(c.worstGap, g.most),
			fmt.Sprintf("the estimate is %s over the mean, ours %s; the planner's lower bound is at most %s below ours",
				percent(c.level.Get().FSDP), percent(c.varlen.Get().FSDP), percent(c.worstSaid)),
		})
	}
	sums, err := b.rankSums()
	return append(rows, sums), err
}

// rankSums compares the ranks' sums under dp with their lower bound.
func (b *bench) rankSums() (row, error) {
	s, m := b.pretrain8K(), overhead.Dense8B()
	sels, err := b.selected(s)
	if err != nil {
		return row{}, err
	}
	worst, lpt, zigzag, kk := 0.0, 0.0, 0.0, 0.0
	for i := range sels {
		lengths := lengthsOf(&sels[i])
		dearest := m.Of(slices.Max(lengths))
		plan, err := place.Plan(
			&sels[i], workload.DataParallel(s.ranks), s.placement(m, millrace.Varlen, millrace.BalanceDP),
		)
		if err != nil {
			return row{}, err
		}
		worst = max(worst, baseline.Gap(overhead.Planned(plan, m).Sums(), dearest))
		free, _ := baseline.LongestProcessingTime(lengths, m, s.ranks, 1<<60)
		lpt = max(lpt, baseline.Gap(free, dearest))
		zigzag = max(zigzag, baseline.Gap(baseline.Snake(lengths, m, s.ranks), dearest))
		if i == 0 {
			kk = baseline.Gap(baseline.KarmarkarKarp(lengths, m, s.ranks), dearest)
		}
	}
	return row{
		"G4", s.String() + ", balance dp: ranks' sums over max(mean, dearest document) ≤ 0.05 %, in the worst step",
		percent(worst), atMost(worst, .05),
		fmt.Sprintf("without a cap: LPT %.4f %%, sparse Karmarkar-Karp %.4f %%, snake %s", lpt, kk, percent(zigzag)),
	}, nil
}
