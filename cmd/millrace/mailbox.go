package main

import (
	"github.com/spf13/cobra"

	"millrace/app/place/mailbox"
)

// mailboxCommand is the side of an engine in the mailbox of a run. The keeper of millrace.ray starts it. It ends with
// its input.
func mailboxCommand() *cobra.Command {
	c := &cobra.Command{Use: "mailbox --cluster FILE", Short: "Pass goals to an engine (started by millrace.ray)",
		Hidden: true, Args: noArgs}
	path := c.Flags().String("cluster", "", "file of the etcd cluster")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return mailbox.Serve(c.Context(), *path, c.InOrStdin(), c.OutOrStdout())
	}
	return c
}
