package main

import (
	"bufio"

	"github.com/spf13/cobra"

	"millrace/app/index"
	"millrace/app/report"
)

func indexCommand() *cobra.Command {
	x, asJSON := &index.Index{}, false
	c := &cobra.Command{
		Use:   "index MIXTURE",
		Short: "Index the sources ahead of a run",
		Long: `Build the indexes of a mixture's sources, so that a run starts at once.

With --lengths, index tokenises every document once and keeps its length in index_dir. Plans then need no tokenising,
and the numbers of check are exact. With --tokens, it also keeps the tokens, in the token cache of the mixture file
(cache:). Loaders then tokenise nothing, and read every format at random. An interrupted index continues at the next
start.

With --profile, index reads each source for two seconds, and keeps the cost of reading it in index_dir. Runs of this
mixture then divide heavy sources among loaders, let cheap ones share a loader, and know the work of a source before
they read it (docs/cluster.md). Other work on the host spoils the figures.`,
		Example: "  millrace index mixture.yaml\n  millrace index mixture.yaml --source web --lengths\n" +
			"  millrace index mixture.yaml --tokens",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error {
			x.Mixture = args[0]
			return runIndex(c, x, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&x.Source, "source", "", "one source (default: all)")
	streamFlag(f, &x.Stream)
	f.BoolVar(&x.Lengths, "lengths", false, "tokenise every document and keep its length")
	f.BoolVar(&x.Tokens, "tokens", false, "tokenise every document and keep its tokens in the token cache")
	f.BoolVar(&x.Profile, "profile", false, "measure and keep what reading each source costs")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func runIndex(c *cobra.Command, x *index.Index, asJSON bool) error {
	m := newMeter(c)
	defer m.clear()
	limitMemory()
	x.Progress = m.show
	found, err := x.Run(c.Context())
	if found == nil {
		return err
	}
	m.clear()
	failed := page(c, func(w *bufio.Writer) error {
		if asJSON {
			return report.Encode(w, map[string]any{"sources": found})
		}
		return index.Print(found, w)
	})
	if failed != nil || err == nil {
		return failed
	}
	return report.Problems(c.ErrOrStderr(), err)
}
