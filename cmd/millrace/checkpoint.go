package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/report"
)

func checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "checkpoint", Short: "Look into the journal of a stopped run", Args: noArgs,
		Long: `Read the journal, the snapshots and the ledger of a stopped run. Only compact changes them; it keeps
everything that the run needs.`,
		Example: "  millrace checkpoint verify runs/a\n  millrace checkpoint dump runs/a | grep quarantined\n  " +
			"millrace checkpoint compact runs/a",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(dumpCommand(), verifyCommand(), compactCommand())
	return c
}

func dumpCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "dump DIR", Short: "Print everything in a run's journal, a line each", Args: exactArgs(1,
			"one run directory"),
		Long: `Print the format, the snapshots, the journal, the ledger, the plans and the index entries of a stopped
run, a line each. DIR is its run directory.`,
		Example: "  millrace checkpoint dump runs/a\n  millrace checkpoint dump runs/a --json",
		RunE: func(c *cobra.Command, args []string) error {
			return page(c, func(w *bufio.Writer) error { return newRun(args[0]).Dump(w, asJSON) })
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

func verifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "verify DIR", Short: "Check every byte of a run's journal", Args: exactArgs(1, "one run directory"),
		Long: `Read every record, snapshot, ledger entry and plan of a stopped run. Check their checksums, their
references, and the digest chain from step to step. Exit status 1 if a check fails.`,
		Example: "  millrace checkpoint verify runs/a",
		RunE:    func(c *cobra.Command, args []string) error { return verify(c, args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func verify(c *cobra.Command, dir string, asJSON bool) error {
	r, err := newRun(dir).Verify()
	if err != nil {
		return err
	}
	err = page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(
				w,
				map[string]any{
					"dir":           r.Dir,
					"ok":            r.OK(),
					"format":        r.Format,
					"created_by":    r.CreatedBy,
					"first":         r.First,
					"last":          r.Last,
					"records":       r.Records,
					"snapshots":     r.Snapshots,
					"newest":        r.Newest,
					"entries":       r.Entries,
					"plans":         r.Plans,
					"index_entries": r.LedgerIndex,
					"bytes":         r.Bytes,
					"found":         r.Found,
					"problems":      append([]string{}, r.Problems...),
				},
			)
		}
		_, err := fmt.Fprintf(
			w,
			"%s: format %d, made by millrace %s: %d records (%d to %d), %d snapshots, %d steps in the ledger, %d "+
				"plans, %s\n",
			r.Dir,
			r.Format,
			r.CreatedBy,
			r.Records,
			r.First,
			r.Last,
			r.Snapshots,
			r.Entries,
			r.Plans,
			report.Size(int64(r.Bytes)),
		)
		return err
	})
	if err != nil || r.OK() {
		return err
	}
	for _, p := range r.Problems {
		fmt.Fprintln(c.ErrOrStderr(), p)
	}
	return exit.Failuref(
		"%s: %d problems: restore the directory from a copy, or start a new run directory from the trainer's newest "+
			"checkpoint",
		r.Dir,
		r.Found,
	)
}

func compactCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "compact DIR", Short: "Free the disk space that a run's journal does not need",
		Args: exactArgs(1, "one run directory"),
		Long: `Drop the records and plans that the newest snapshot of a stopped run replaces, and rewrite the files
without them. Plans that a saved checkpoint or the retention needs stay. The ledger's digests and ranges of every step
stay too.`,
		Example: "  millrace checkpoint compact runs/a",
		RunE:    func(c *cobra.Command, args []string) error { return compact(c, args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func compact(c *cobra.Command, dir string, asJSON bool) error {
	before, after, err := newRun(dir).Compact(c.Context())
	if err != nil {
		return err
	}
	return page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, map[string]any{"dir": dir, "bytes_before": before, "bytes": after})
		}
		_, err := fmt.Fprintf(w, "%s: %s before, %s now\n", dir, report.Size(before), report.Size(after))
		return err
	})
}
