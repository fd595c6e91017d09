package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"millrace/app/report"
)

func statusCommand() *cobra.Command {
	var asJSON, watch bool
	var stream, to string
	c := &cobra.Command{
		Use:   "status DIR",
		Short: "Print the state of a run",
		Long: `Print the state of the run in a run directory: its processes, its step, the tokens drawn of each
source, quarantined records, what the run waits for, and the capabilities that are missing, such as a shadow or space
on a disk.

A process counts as a loader while it reads a stripe, and as a shadow while it stands by. While the orchestrator
restarts, status prints the processes alone. For a stopped run, it prints the facts in the
journal; "running" is then false.`,
		Example: "  millrace status runs/a\n  millrace status runs/a --json | jq .step\n  millrace status runs/a " +
			"--watch",
		Args: exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkTo(c, to, "json", "watch"); err != nil {
				return err
			}
			run, err := runAt(args[0], stream)
			if err != nil {
				return err
			}
			if to != "" {
				rows, err := run.Table(c.Context(), stream)
				if err != nil {
					return err
				}
				return table(to, rows)
			}
			show := func(view *report.Status) error { return printStatus(c, run.Dir, view, asJSON) }
			if watch {
				ctx, stop := untilStopped(c)
				defer stop()
				return run.Watch(ctx, show)
			}
			view, _, err := run.StatusOfAll(c.Context())
			if err != nil {
				return err
			}
			return show(view)
		},
	}
	streamFlag(c.Flags(), &stream)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&watch, "watch", false, "print again every second, until interrupted or the run ends")
	toFlag(c, &to)
	return c
}

func printStatus(c *cobra.Command, dir string, view *report.Status, asJSON bool) error {
	err := page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, view)
		}
		return view.Print(w)
	})
	if err == nil && !view.Running {
		fmt.Fprintf(c.ErrOrStderr(), "no `millrace up` runs on %s\n", dir)
	}
	return err
}
