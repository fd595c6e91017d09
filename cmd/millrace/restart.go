package main

import (
	"bufio"
	"fmt"
	"time"

	"github.com/spf13/cobra"

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
	ctx, stop := untilStopped(c)
	defer stop()
	return page(c, func(w *bufio.Writer) error {
		show := lines(w, asJSON, (*restart.Done).Print)
		return r.Run(ctx, func(at, of int, name string) {
			fmt.Fprintf(c.ErrOrStderr(), "%d of %d: %s\n", at, of, name)
		}, show)
	})
}
