package main

import (
	"bufio"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/query"
	"millrace/app/report"
)

// ledgerQuery is the flags of `millrace ledger`.
type ledgerQuery struct {
	stream string
	sample query.Sample
	step   uint64
	json   bool
	to     string
}

func ledgerCommand() *cobra.Command {
	l := &ledgerQuery{}
	c := &cobra.Command{
		Use:   "ledger DIR --step N | --sample SOURCE/ID",
		Short: "Print the documents of a step, or the steps of a sample",
		Long: `Say which documents a step held, or in which steps a sample was, during a run or after it.

ledger prints a step once for every attempt that sealed it, with its digests and whether every rank has consumed it. ID
is the sample's id in batch.segments, such as part-0.jsonl#5. SOURCE may be given with --source instead.

The run drops the full plans of old steps, as checkpoint_saved allows. Their digests and ranges of ordinals stay. With
--json, "complete" is false for such a step; millrace plan computes its plan from the mixture file.`,
		Example: "  millrace ledger runs/a --step 41200\n  millrace ledger runs/a --sample web/part-0.jsonl#5 --json",
		Args:    exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("step") == c.Flags().Changed("sample") {
				return exit.Usagef("millrace ledger: write either --step N or --sample SOURCE/ID")
			}
			if err := checkTo(c, l.to, "json"); err != nil {
				return err
			}
			return l.run(c, args[0])
		},
	}
	f := c.Flags()
	f.Uint64Var(&l.step, "step", 0, "the step to show")
	f.StringVar(&l.sample.Name, "sample", "", "the sample to find, as SOURCE/ID")
	f.StringVar(&l.sample.Source, "source", "", "the sample's source, if --sample is its id alone")
	streamFlag(f, &l.stream)
	f.BoolVar(&l.json, "json", false, "print one JSON object a step and attempt")
	toFlag(c, &l.to)
	return c
}

func (l *ledgerQuery) run(c *cobra.Command, dir string) error {
	run, err := runAt(dir, l.stream)
	if err != nil {
		return err
	}
	var sample *query.Sample
	if c.Flags().Changed("sample") {
		sample = &l.sample
	}
	lines, err := run.Ledger(c.Context(), l.step, sample)
	if err != nil {
		return err
	}
	if l.to != "" {
		var rows []report.LedgerRow
		for _, line := range lines {
			rows = append(rows, line.Rows()...)
		}
		return table(l.to, rows)
	}
	return page(c, func(w *bufio.Writer) error {
		for _, line := range lines {
			if l.json {
				err = report.Encode(w, line)
			} else {
				err = line.Print(w)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
