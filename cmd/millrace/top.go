package main

import (
	"os"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/top"
)

func topCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top DIR",
		Short: "Show a run while it goes on",
		Long: `Show the run in a run directory once a second: its step and rates, the waits of its trainers, the tokens
and the share of each source, the GPUs, and the CPU and memory of each process. q or Ctrl-C ends it. If standard output
is no terminal, top prints a line each second. It ends with the run.`,
		Example: "  millrace top runs/a",
		Args:    exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := runAt(args[0], string(millrace.Train))
			if err != nil {
				return err
			}
			ctx, stop := untilStopped(c)
			defer stop()
			return top.Show(ctx, run, os.Stdin, os.Stdout)
		},
	}
}
