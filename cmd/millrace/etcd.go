package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/member"
)

// etcdCommand is not a role: a run does not start etcd.
func etcdCommand() *cobra.Command {
	var m member.Member
	c := &cobra.Command{
		Use:   "etcd --dir DIR",
		Short: "Run an etcd member for development",
		Long: `Run one etcd member on this host, to try "millrace up --cluster" (docs/cluster.md). Its data stay in DIR.
It prints a line that begins with "ready" when it answers. Ctrl-C or SIGTERM stops it cleanly.

The member listens on loopback alone, without passwords and encryption. For runs that matter, use a cluster of three
members on three hosts.

The program etcd is not part of millrace: the command looks for it in PATH and among the programs that tools/etcd.sh
has built.`,
		Example: "  millrace etcd --dir etcd-data\n  millrace up mixture.yaml --run-dir runs/a --cluster cluster.yaml",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if m.Dir == "" {
				return exit.Usagef(
					"millrace etcd: --dir is missing: write a directory for the data, such as --dir etcd-data",
				)
			}
			ctx, stop := untilStopped(c)
			defer stop()
			m.Log = c.ErrOrStderr()
			m.Ready = func(url string) { fmt.Fprintf(c.OutOrStdout(), "ready: etcd on %s\n", url) }
			return m.Run(ctx)
		},
	}
	c.Flags().StringVar(&m.Dir, "dir", "", "directory of the data (required)")
	c.Flags().StringVar(&m.Listen, "listen", "127.0.0.1:2379", "loopback address for clients")
	c.Flags().StringVar(&m.Program, "program", "", "path of etcd's program (default: etcd in PATH)")
	return c
}
