package main

import (
	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/export"
)

// toFlag adds the flag --to. checkTo checks it.
func toFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "to", "", "write the rows to `FILE`.parquet or FILE.arrow, in place of a table")
}

// checkTo refuses a file of --to that cannot be written, and flags that ask for another form of the same rows.
func checkTo(c *cobra.Command, path string, others ...string) error {
	if path == "" {
		return nil
	}
	for _, other := range others {
		if c.Flags().Changed(other) {
			return exit.Usagef("%s: --to beside --%s: write one of them", c.CommandPath(), other)
		}
	}
	return export.Check(path)
}

// table writes rows to the file of --to.
func table[T any](path string, rows []T) error {
	return export.Write(path, func(add func(T) error) error {
		for _, row := range rows {
			if err := add(row); err != nil {
				return err
			}
		}
		return nil
	})
}
