package main

import (
	"bufio"
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/report"
	"millrace/internal/seam"
)

// watchEvery is the pause between two reports of --watch.
const watchEvery = time.Second

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
			dir, err := streamDir(args[0], stream)
			if err != nil {
				return err
			}
			if to != "" {
				return statusTable(c, dir, stream, to)
			}
			if watch {
				return watchStatus(c, dir, asJSON)
			}
			_, err = oneStatus(c.Context(), c, dir, asJSON)
			return err
		},
	}
	streamFlag(c.Flags(), &stream)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&watch, "watch", false, "print again every second, until interrupted or the run ends")
	toFlag(c, &to)
	return c
}

// statusTable writes a row for each source, with the time, so that the tables of several calls make a history.
func statusTable(c *cobra.Command, dir, stream, to string) error {
	view, _, err := newRun(dir).StatusOfAll(c.Context())
	if err != nil {
		return err
	}
	return table(to, view.Rows(stream, seam.System{}.Now()))
}

func watchStatus(c *cobra.Command, dir string, asJSON bool) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for {
		if running, err := oneStatus(ctx, c, dir, asJSON); err != nil || !running || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-seam.System{}.After(watchEvery):
		}
	}
}

// oneStatus prints the status once and reports whether the run goes on.
func oneStatus(ctx context.Context, c *cobra.Command, dir string, asJSON bool) (running bool, err error) {
	view, running, err := newRun(dir).StatusOfAll(ctx)
	if err != nil {
		return false, err
	}
	err = page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, view)
		}
		return view.Print(w)
	})
	if err == nil && !running {
		fmt.Fprintf(c.ErrOrStderr(), "no `millrace up` runs on %s\n", dir)
	}
	return running, err
}
