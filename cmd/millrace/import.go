package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"millrace/app/importer"
)

func importCommand() *cobra.Command {
	kind := ""
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Turn another loader's data configuration into a mixture file",
		Long: `Turn the data configuration of another loader or trainer into a mixture file, on stdout.

FILE is a Megatron blend (the value of --data-path, or a file of --data-args-path or --per-split-data-args-path), an
Energon metadataset, Streaming's streams, the data section of Levanter or nanotron, a source mixture of OLMo-core, or
the data sets of axolotl or LLaMA-Factory (dataset_info.json). Its content shows which; --format says it. - is stdin.

Defaults of the other program are written out. Keys without an equivalent become comments of the mixture file, and lines
on stderr. Relative paths are taken as relative to FILE.`,
		Example: "  millrace import blend.txt > mixture.yaml\n  millrace import train.yaml --format levanter",
		Args:    exactArgs(1, "one file"),
		RunE: func(c *cobra.Command, args []string) error {
			out, notes, err := importer.Import(args[0], kind, c.InOrStdin())
			if err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintln(c.ErrOrStderr(), "millrace import: "+note)
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	c.Flags().StringVar(&kind, "format", "", "kind of FILE: "+strings.Join(importer.Kinds(), ", "))
	return c
}
