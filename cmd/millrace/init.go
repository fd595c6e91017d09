package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/look"
)

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init PATH…",
		Short: "Write a mixture file for data",
		Long: `Look at files, directories or patterns of data and print a commented mixture file.

It has a source for each path, with its format, the fields of its documents, weights by size, and the tokenizer of a
model directory among the paths. Each field that is not used has a comment. A source whose records would be trained on
in another way than they mean it is commented out, with the reason. Run check on the result.`,
		Example: "  millrace init web/ code/*.parquet > mixture.yaml\n  millrace init chat.jsonl model/ > mixture.yaml",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("millrace init: no path: name the files, directories or patterns of your data, as " +
					"`millrace init web/ code/*.parquet > mixture.yaml`")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			limitMemory()
			warnings, err := look.WriteMixture(c.Context(), c.OutOrStdout(), args)
			for _, warning := range warnings {
				fmt.Fprintln(c.ErrOrStderr(), "millrace init: "+warning)
			}
			return err
		},
	}
}
