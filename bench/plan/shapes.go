package main

import (
	"fmt"
	"io"

	"millrace/bench/plan/overhead"
)

// compareOwn compares balancers on the user's shape. ratio is S* of the model.
func compareOwn(out io.Writer, s shape, ratio float64) error {
	m := overhead.Model{Name: fmt.Sprintf("S* %g", ratio), Ratio: ratio}
	fmt.Fprintf(out, "%s: %d documents, mean length %.0f tokens\n", s.name, s.lengths.Documents(), s.lengths.Mean())
	sels, err := s.selected(5, 1<<20)
	if err != nil {
		return err
	}
	c, err := compare(s, m, sels)
	if err != nil {
		return err
	}
	shapesHeading(out)
	c.write(out)
	return nil
}

func shapesHeading(out io.Writer) {
	heading(out, "shape, FSDP/rank-sum overhead over the mean", "segments", "fill",
		"concat", "best-fit, random order", "best-fit + columns", "cap-LPT 1.3 + columns",
		"ours packed", "**ours varlen**", "ours, slack 1.3", "ours, balance dp",
		"pipeline of 8: best-fit + columns / balance pp / and split_documents", "column estimate", "speed-up")
}

func (c *comparison) write(out io.Writer) {
	both := func(m overhead.Mean) string { return fmt.Sprintf("%.2f/%.2f", m.Get().FSDP, m.Get().DP) }
	pipelines := fmt.Sprintf("%.1f / %.1f / %.2f", c.columns.Get().PP8, c.pipeline.Get().PP8, c.split.Get().PP8)
	line(out, fmt.Sprintf("%s, %s, slack %.2f", c.shape, c.model.Name, float64(c.shape.slack)/1000),
		fmt.Sprintf("%.0f", c.segments), percent(c.fill),
		both(c.concat), both(c.random), both(c.columns), both(c.cap13),
		both(c.strict), "**"+both(c.varlen)+"**", both(c.wide), both(c.sums),
		pipelines, fmt.Sprintf("%.2f", max(c.level.Get().FSDP, 0)), fmt.Sprintf("%.2f ×", c.speedUp()))
}

// shapes compares balancers on nine shapes, from 128 microbatches a step to 8,192, each under both models.
func (b *bench) shapes(out io.Writer) error {
	shapesHeading(out)
	for _, m := range []overhead.Model{overhead.Dense8B(), overhead.MoEA3B()} {
		for _, s := range []shape{
			{name: "pretrain", tokens: 8192, ranks: 256, columns: 8},
			{name: "pretrain", tokens: 8192, ranks: 1024, columns: 2},
			{name: "pretrain", tokens: 8192, ranks: 1024, columns: 8},
			{name: "pretrain", tokens: 8192, ranks: 4096, columns: 1},
			{name: "pretrain", tokens: 32768, ranks: 128, columns: 4},
			{name: "longctx", tokens: 131072, ranks: 16, columns: 8},
			{name: "longctx", tokens: 131072, ranks: 128, columns: 8},
			{name: "longctx", tokens: 131072, ranks: 128, columns: 8, window: 4},
			{name: "sft", tokens: 65536, ranks: 16, columns: 8},
		} {
			s.lengths, s.slack, s.ranks = b.lengths[s.name], 1150, b.scaled(s.ranks)
			c, err := b.compared(s, m)
			if err != nil {
				return err
			}
			c.write(out)
		}
	}
	return nil
}
