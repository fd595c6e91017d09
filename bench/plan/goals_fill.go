package main

import (
	"fmt"

	"millrace/orchestrator/planner"
)

// goal6 is how full bins are, and that nothing is cut that fits.
func goal6(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		lengths string
		tokens  uint32
		bins    int // of some 8K segments
		carry   int
		least   float64
	}{{"pretrain", 8192, 1098, 0, 99.9}, {"pretrain", 8192, 1098, 512, 99.99}, {"longctx", 131072, 142, 0, 99.6}, {"longctx", 131072, 142, 512, 99.95}} {
		s := shape{name: g.lengths, lengths: b.lengths[g.lengths], tokens: g.tokens, ranks: 1, columns: g.bins, carry: g.carry}
		sels, err := s.selected(4*b.steps+carryAge, b.documents)
		if err != nil {
			return nil, err
		}
		if err := uncut(sels); err != nil {
			return nil, err
		}
		if g.carry > 0 {
			sels = sels[carryAge:] // as full as ever from here on
		}
		f := filled(s, sels)
		rows = append(rows, row{"G6", fmt.Sprintf("%s %s, %.0f segments a step, carry %d: fill ≥ %g %%, nothing cut that fits a bin", g.lengths, short(g.tokens), f.segments, g.carry, g.least),
			fmt.Sprintf("%.4f %%", f.ours), atLeast(f.ours, g.least), f.beside()})
	}
	return rows, nil
}

// carryAge is the most steps that a segment is carried.
const carryAge = 8

// uncut tells whether every document that goes on behind a segment fills a bin with it.
func uncut(sels []planner.Selection) error {
	for i := range sels {
		for _, seg := range sels[i].Segments {
			if seg.More && seg.Length != sels[i].SequenceLength {
				return fmt.Errorf("step %s: document %s of source %d is cut after %d tokens", sels[i].Step, seg.Ordinal, seg.Source, seg.Length)
			}
		}
	}
	return nil
}

// fills are means over steps, in percent.
type fills struct {
	ours, least, carried, segments float64
	next, first, best, cut         float64
}

func filled(s shape, sels []planner.Selection) fills {
	n := float64(len(sels))
	f := fills{least: 100}
	for i := range sels {
		sel := &sels[i]
		lengths := lengthsOf(sel)
		fill := float64(sel.Stats.FillPPM) / 1e4
		f.ours += fill / n
		f.least = min(f.least, fill)
		f.segments += float64(len(lengths)) / n
		f.carried += float64(len(sel.After.Carried)) / n
		f.next += nextFit(lengths, s.tokens).fill(lengths, s.tokens) / n
		f.first += firstFit(lengths, s.tokens).fill(lengths, s.tokens) / n
		f.best += bestFitDecreasing(lengths, s.tokens, 0).fill(lengths, s.tokens) / n
		_, _, cut := concatenate(lengths, s.tokens)
		f.cut += 100 * float64(cut) / float64(len(lengths)) / n
	}
	return f
}

func (f fills) beside() string {
	return fmt.Sprintf("the worst step %.4f %%, %.0f carried; the same segments: best-fit-decreasing %.2f %%, first-fit %.1f %%, next-fit %.1f %%, concat cuts %.1f %% of them",
		f.least, f.carried, f.best, f.first, f.next, f.cut)
}
