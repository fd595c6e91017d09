package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"millrace/app/report"
	"millrace/app/rundir"
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
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			read := func(ctx context.Context) (*report.Status, bool, error) {
				way := rundir.NewWay(args[0])
				defer way.Close()
				return newRun(args[0]).Status(ctx, way)
			}
			err := top.Show(ctx, args[0], read, os.Stdin, os.Stdout)
			if errors.Is(err, syscall.EPIPE) {
				return nil
			}
			return err
		},
	}
}
