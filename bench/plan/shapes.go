package main

import (
	"fmt"
	"io"
)

// compare is -lengths: balancers on lengths of one's own.
func (o *options) compare(out io.Writer) error {
	if o.tokens > longestDocument {
		return fmt.Errorf("-sequence-length %d is more than %d", o.tokens, longestDocument)
	}
	h, err := openHistogram(o.lengths)
	if err != nil {
		return err
	}
	s := shape{name: h.name, lengths: h, tokens: uint32(o.tokens), ranks: o.ranks, columns: o.columns, slack: uint32(o.slack*1000 + .5)}
	m := model{fmt.Sprintf("S* %g", o.ratio), o.ratio}
	fmt.Fprintf(out, "%s: %d documents, mean length %.0f tokens\n", h.name, h.documents(), h.mean())
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
	heading(out, "shape, FSDP/rank-sum overhead over the mean", "segments", "fill", "concat", "best-fit, random order", "best-fit + columns", "cap-LPT 1.3 + columns",
		"ours packed", "**ours varlen**", "ours, slack 1.3", "ours, balance dp", "pipeline of 8: best-fit + columns / balance pp / and split_documents", "column estimate", "speed-up")
}

func (c *comparison) write(out io.Writer) {
	both := func(m mean) string { return fmt.Sprintf("%.2f/%.2f", m.get().fsdp, m.get().dp) }
	line(out, fmt.Sprintf("%s, %s, slack %.2f", c.shape, c.model.name, float64(c.shape.slack)/1000), fmt.Sprintf("%.0f", c.segments), percent(c.fill), both(c.concat), both(c.random), both(c.columns),
		both(c.cap13), both(c.strict), "**"+both(c.varlen)+"**", both(c.wide), both(c.sums), fmt.Sprintf("%.1f / %.1f / %.2f", c.columns.get().pp8, c.pipeline.get().pp8, c.split.get().pp8), fmt.Sprintf("%.2f", max(c.level.get().fsdp, 0)), fmt.Sprintf("%.2f ×", c.speedUp()))
}

// shapes compares balancers on all shapes of PLANNING §3.3.
func (b *bench) shapes(out io.Writer) error {
	shapesHeading(out)
	for _, m := range []model{dense8B(), moeA3B()} {
		for _, s := range []shape{
			{name: "pretrain", tokens: 8192, ranks: 256, columns: 8}, {name: "pretrain", tokens: 8192, ranks: 1024, columns: 2}, {name: "pretrain", tokens: 8192, ranks: 1024, columns: 8},
			{name: "pretrain", tokens: 8192, ranks: 4096, columns: 1}, {name: "pretrain", tokens: 32768, ranks: 128, columns: 4}, {name: "longctx", tokens: 131072, ranks: 16, columns: 8},
			{name: "longctx", tokens: 131072, ranks: 128, columns: 8}, {name: "longctx", tokens: 131072, ranks: 128, columns: 8, window: 4}, {name: "sft", tokens: 65536, ranks: 16, columns: 8},
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
