package main

import (
	"bufio"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/restart"
)

func restartCommand() *cobra.Command {
	r, asJSON := &restart.Restart{}, false
	c := &cobra.Command{
		Use:   "restart DIR [NAME…]",
		Short: "Replace the processes of a run one after the other, while it goes on",
		Long: `Replace the processes of the run in DIR one after the other, while it goes on.

Each process is asked to leave and hands over its work. The next one is asked when the successor runs and every loader
has a shadow again (if there are shadows). Without names, the order is shadows, loaders, sidecar, orchestrator.
restart does not start a program that was replaced on disk: that needs a new up.`,
		Example: "  millrace restart runs/a\n  millrace restart runs/a loader-1 orchestrator",
		Args:    leastArgs(1, "one run directory, and names of roles"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Dir, r.Names = args[0], args[1:]
			return runRestart(c, r, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a role")
	c.Flags().DurationVar(&r.Timeout, "timeout", time.Minute, "time limit for one role; then restart stops")
	return c
}

func runRestart(c *cobra.Command, r *restart.Restart, asJSON bool) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	queue, err := r.Queue(ctx)
	if err != nil {
		return err
	}
	return page(c, func(w *bufio.Writer) error {
		for i, name := range queue {
			fmt.Fprintf(c.ErrOrStderr(), "%d of %d: %s\n", i+1, len(queue), name)
			done, err := r.Exchange(ctx, name)
			if err != nil {
				return exit.Failuref("restart %s: %v", name, err)
			}
			if asJSON {
				err = report.Encode(w, done)
			} else {
				_, err = fmt.Fprintf(w, "%s %s: process %d, was %d, after %.1f s\n", done.Role, done.Name, done.Pid,
					done.Was, done.Seconds)
			}
			if err := errors.Join(err, w.Flush()); err != nil {
				return err
			}
		}
		return nil
	})
}
