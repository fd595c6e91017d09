package main

import (
	"github.com/spf13/cobra"

	"millrace/app/look"
	"millrace/app/report"
)

func inspectCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show the records and fields of a data file",
		Long: `Show a data file: its format and records.

The fields of its first records follow, with their kinds, lengths and a value.`,
		Example: "  millrace inspect web/part-0.jsonl.zst\n  millrace inspect code.parquet --json",
		Args:    exactArgs(1, "one data file"),
		RunE: func(c *cobra.Command, args []string) error {
			limitMemory()
			file, err := look.Describe(c.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return report.Encode(c.OutOrStdout(), file)
			}
			return file.Print(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
