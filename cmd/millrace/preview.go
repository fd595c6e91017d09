package main

import (
	"bufio"

	"github.com/spf13/cobra"

	"millrace/app/preview"
	"millrace/app/report"
)

func previewCommand() *cobra.Command {
	p, asJSON := &preview.Preview{}, false
	c := &cobra.Command{
		Use:   "preview MIXTURE --step K --rank R",
		Short: "Print a batch as text",
		Long: `Print the batch of a trainer rank in a step as text: its rows, the documents in them and their text.

preview shortens long texts in the middle; --full prints them whole. It prints the tokens of sources that hold tokens.
Text that is not trained on stands in ⟦brackets⟧.`,
		Example: "  millrace preview mixture.yaml --step 0 --rank 0\n  millrace preview mixture.yaml --step 100 " +
			"--rank 3 --ranks 8 --microbatch 0 --json",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error {
			p.Mixture = args[0]
			return runPreview(c, p, asJSON)
		},
	}
	f := c.Flags()
	f.Int64Var(&p.Step, "step", 0, "step, from 0")
	f.IntVar(&p.Rank, "rank", 0, "trainer rank, from 0; ranks count along tp, cp, dp, pp")
	f.IntVar(&p.Ranks, "ranks", 1, "trainer ranks")
	f.IntVar(&p.Microbatch, "microbatch", -1, "one microbatch, from 0 (default: all of the step)")
	streamFlag(f, &p.Stream)
	f.BoolVar(&p.Full, "full", false, "print whole texts")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func runPreview(c *cobra.Command, p *preview.Preview, asJSON bool) error {
	m := newMeter(c)
	defer m.clear()
	limitMemory()
	p.Progress, p.Err = m.show, m
	batch, err := p.Run(c.Context())
	if err != nil {
		return err
	}
	m.clear()
	return page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, batch)
		}
		p.Print(w, batch)
		return nil
	})
}
