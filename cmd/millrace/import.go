package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/app/exit"
	"millrace/internal/app/importer"
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

Keys without an equivalent become comments of the mixture file. Relative paths are taken as relative to FILE.`,
		Example: "  millrace import blend.txt > mixture.yaml\n  millrace import train.yaml --format levanter",
		Args:    exactArgs(1, "one file"),
		RunE: func(c *cobra.Command, args []string) error {
			content, err := readForeign(c, args[0])
			if err != nil {
				return exit.Usagef("millrace import: %v", err)
			}
			out, err := importer.Mixture(args[0], kind, content)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	c.Flags().StringVar(&kind, "format", "", "kind of FILE: "+strings.Join(importer.Kinds(), ", "))
	return c
}

// mostForeign bounds a file to import.
const mostForeign = 64 << 20

func readForeign(c *cobra.Command, path string) ([]byte, error) {
	in := c.InOrStdin()
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open the file to import: %w", err)
		}
		defer f.Close()
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, mostForeign))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return content, nil
}
