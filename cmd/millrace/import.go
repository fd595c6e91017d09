package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"millrace/app/exit"
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
			content, err := readForeign(c, args[0])
			if err != nil {
				return exit.Usagef("millrace import: %w", err)
			}
			out, notes, err := importer.Mixture(importer.File{Path: args[0], Kind: kind, Content: content,
				Exists: func(path string) bool { _, err := os.Stat(path); return err == nil }})
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
