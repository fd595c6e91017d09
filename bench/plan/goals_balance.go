package main

import (
	"fmt"

	"millrace"
	"millrace/orchestrator/planner/place"
)

// The shapes of G1 to G3, PLANNING §3.3.
func (b *bench) pretrain8K() shape {
	return shape{name: "pretrain", lengths: b.lengths["pretrain"], tokens: 8192, ranks: b.scaled(1024), columns: 8, slack: 1150}
}

func (b *bench) longctx128K() shape {
	return shape{name: "longctx", lengths: b.lengths["longctx"], tokens: 131072, ranks: b.scaled(128), columns: 8, slack: 1150}
}

// compared compares a shape once for all goals that ask for it.
func (b *bench) compared(s shape, m model) (*comparison, error) {
	key := fmt.Sprint(s.name, s.tokens, s.ranks, s.columns, s.window, m.name)
	if c := b.done[key]; c != nil {
		return c, nil
	}
	sels, err := b.selected(s)
	if err != nil {
		return nil, err
	}
	c, err := compare(s, m, sels)
	b.done[key] = c
	return c, err
}

func (c *comparison) beside() string {
	return fmt.Sprintf("concat %s, best-fit %s, best-fit + columns %s, cap-LPT 1.3 + columns %s; ours packed %s, slack 1.3 %s; a baseline strands %s at most",
		percent(c.concat.get().fsdp), percent(c.random.get().fsdp), percent(c.columns.get().fsdp), percent(c.cap13.get().fsdp),
		percent(c.strict.get().fsdp), percent(c.wide.get().fsdp), percent(100*c.stranded))
}

// speedUp is how much faster a step is than with best-fit bins in random order, all ranks waiting for the slowest at each microbatch.
func (c *comparison) speedUp() float64 {
	return (100 + c.random.get().fsdp) / (100 + c.varlen.get().fsdp)
}

// goal1 is FSDP's overhead at 8K.
func goal1(b *bench) ([]row, error) {
	c, err := b.compared(b.pretrain8K(), dense8B())
	if err != nil {
		return nil, err
	}
	ours, strict := c.varlen.get().fsdp, c.strict.get().fsdp
	return []row{
		{"G1", c.shape.String() + ", 8B, varlen 1.15: FSDP overhead over the mean ≤ 0.25 %, nothing stranded", percent(ours), atMost(ours, .25), c.beside()},
		{"G1", "the same, packed (no slack at all): ≤ 2.3 %", percent(strict), atMost(strict, 2.3), "best-fit + columns " + percent(c.columns.get().fsdp)},
	}, nil
}

// goal2 is FSDP's overhead at 128K.
func goal2(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		window int
		most   float64
	}{{1, 6}, {4, 2.5}} {
		s := b.longctx128K()
		s.window = g.window
		c, err := b.compared(s, dense8B())
		if err != nil {
			return nil, err
		}
		beside := c.beside()
		if g.window > 1 {
			mean, most, err := b.displaced(s)
			if err != nil {
				return nil, err
			}
			beside += fmt.Sprintf("; segments are %.2f steps from where they would be without a window, at most %d", mean, most)
		}
		ours := c.varlen.get().fsdp
		rows = append(rows, row{"G2", fmt.Sprintf("%s, 8B, varlen 1.15: FSDP overhead over the mean ≤ %g %%", s, g.most), percent(ours), atMost(ours, g.most), beside})
	}
	split, err := b.splitRow()
	return append(rows, split), err
}

// displaced is how many steps a window moves segments, in the mean and at most.
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

// splitRow is G2 with documents dearer than the mean microbatch split over ranks.
func (b *bench) splitRow() (row, error) {
	s, m := b.longctx128K(), dense8B()
	sels, err := b.selected(s)
	if err != nil {
		return row{}, err
	}
	o := s.placement(m, millrace.Varlen, millrace.BalanceFSDP)
	o.Split.On = true
	var over mean
	slices, tokens, split := 0, 0.0, 0.0
	for i := range sels {
		p, err := s.place(&sels[i], o, m)
		if err != nil {
			return row{}, err
		}
		over.add(p.over)
		slices += p.said.Slices
		for _, a := range p.plan.Assignments {
			if tokens += float64(a.Length) / float64(max(a.Parts, 1)); a.Parts > 0 {
				split += float64(a.Length) / float64(a.Parts)
			}
		}
	}
	ours := over.get()
	return row{"G2", s.String() + ", 8B, varlen 1.15, split_documents: FSDP overhead over the mean ≤ 0.75 %", percent(ours.fsdp), atMost(ours.fsdp, .75),
		fmt.Sprintf("%d slices a step hold %s of the tokens; rank sums %s, pipeline of 8 %s; what slices exchange is not weighed", slices/len(sels), percent(100*split/tokens), percent(ours.dp), percent(ours.pp8))}, nil
}

// goal3 is the simulated speed-up over cost-blind packing.
func goal3(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		shape shape
		model model
		least float64
	}{{b.longctx128K(), dense8B(), 1.75}, {b.pretrain8K(), dense8B(), 1.08}, {b.pretrain8K(), moeA3B(), 1.2}} {
		c, err := b.compared(g.shape, g.model)
		if err != nil {
			return nil, err
		}
		up := c.speedUp()
		rows = append(rows, row{"G3", fmt.Sprintf("%s, %s: simulated FSDP speed-up over best-fit in random order ≥ %.2f ×", c.shape, g.model.name, g.least),
			fmt.Sprintf("%.3f ×", up), atLeast(up, g.least), fmt.Sprintf("a perfect plan %.3f ×; ours against concat %.2f ×; FSDP %s to %s, rank sums %s to %s",
				1+c.random.get().fsdp/100, (100+c.concat.get().fsdp)/(100+c.varlen.get().fsdp), percent(c.random.get().fsdp), percent(c.varlen.get().fsdp),
				percent(c.random.get().dp), percent(c.sums.get().dp))})
	}
	return rows, nil
}

// goal4 is how near plans come to what is possible.
func goal4(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		shape shape
		most  float64
	}{
		{b.pretrain8K(), .5},
		{shape{name: "pretrain", lengths: b.lengths["pretrain"], tokens: 32768, ranks: b.scaled(128), columns: 4, slack: 1150}, .5},
		{b.longctx128K(), 2},
	} {
		c, err := b.compared(g.shape, dense8B())
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{"G4", fmt.Sprintf("%s: over the column estimate ≤ %g %%, in the worst step", c.shape, g.most),
			percent(c.worstGap), atMost(c.worstGap, g.most), fmt.Sprintf("the estimate is %s over the mean, ours %s; the planner's lower bound is at most %s below ours", percent(c.level.get().fsdp), percent(c.varlen.get().fsdp), percent(c.worstSaid))})
	}
	sums, err := b.rankSums()
	return append(rows, sums), err
}

// rankSums compares the ranks' sums under dp with what they cannot be below.
func (b *bench) rankSums() (row, error) {
	s, m := b.pretrain8K(), dense8B()
	sels, err := b.selected(s)
	if err != nil {
		return row{}, err
	}
	worst, lpt, zigzag, kk := 0.0, 0.0, 0.0, 0.0
	for i := range sels {
		lengths := lengthsOf(&sels[i])
		dearest := m.of(lengths[longestFirst(lengths)[0]])
		plan, err := place.Plan(&sels[i], dataParallel(s.ranks), s.placement(m, millrace.Varlen, millrace.BalanceDP))
		if err != nil {
			return row{}, err
		}
		g := planned(plan, m)
		sums := make([]float64, s.ranks)
		for at, x := range g.load {
			sums[at/s.columns] += x
		}
		worst = max(worst, gap(sums, dearest))
		free, _ := longestProcessingTime(lengths, m, s.ranks, 1<<60)
		lpt, zigzag = max(lpt, gap(free, dearest)), max(zigzag, gap(snake(lengths, m, s.ranks), dearest))
		if i == 0 {
			kk = gap(karmarkarKarp(lengths, m, s.ranks), dearest)
		}
	}
	return row{"G4", s.String() + ", balance dp: ranks' sums over max(mean, dearest document) ≤ 0.05 %, in the worst step", percent(worst), atMost(worst, .05),
		fmt.Sprintf("without a cap: LPT %.4f %%, sparse Karmarkar-Karp %.4f %%, snake %s", lpt, kk, percent(zigzag))}, nil
}
