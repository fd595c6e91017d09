package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/check"
	"millrace/app/exit"
	"millrace/app/report"
)

// checkFlags are the flags of `millrace check`.
type checkFlags struct {
	check.Check
	read int64 // MiB
	json bool
}

func checkCommand() *cobra.Command {
	k := &checkFlags{}
	c := &cobra.Command{
		Use:   "check MIXTURE",
		Short: "Validate a mixture file and its data, and predict its run",
		Long: `Validate a mixture file and its sources, and predict its run.

check opens and indexes the files, and reads up to --read MiB of them to their end. --deep reads all files and compares
their hashes. check plans and builds the first --steps steps as a run on this host would, for --ranks trainer ranks.

With --against, check compares the mixture file and its files with a saved state of the stream train, or of --stream. If
files of a source came or went, it prints how many documents each override reads twice or never. With --override, it
fails if the run does not go on with these overrides.

Numbers marked ~ are estimated from the records read so far; millrace index --lengths makes them exact.
Exit status: 0 the mixture can be run; 1 the data cannot, and each reason is a line on stderr; 2 the mixture file is
invalid.`,
		Example: "  millrace check mixture.yaml --ranks 8\n  millrace check mixture.yaml --deep --json",
		Args:    exactArgs(1, "one mixture file"),
		RunE:    func(c *cobra.Command, args []string) error { return k.run(c, args[0]) },
	}
	f := c.Flags()
	f.IntVar(&k.Ranks, "ranks", 1, "trainer ranks")
	f.IntVar(&k.Steps, "steps", 3, "steps to plan, fetch and build")
	f.BoolVar(&k.Deep, "deep", false, "read every file to its end and compare all bytes with those first seen")
	f.Int64Var(&k.read, "read", 2048, "MiB of files to read to their end")
	f.BoolVar(&k.json, "json", false, "print one JSON object")
	f.StringVar(&k.Against, "against", "", "say how a run goes on from this file, the JSON of a state_dict()")
	f.StringVar(&k.Stream, "stream", string(millrace.Train), "with --against: the stream that the state is of")
	f.StringArrayVar(&k.Override, "override", nil, "with --against: an override, as load_state_dict takes it")
	return c
}

func (k *checkFlags) run(c *cobra.Command, mixture string) error {
	if err := k.usage(c); err != nil {
		return err
	}
	m := newMeter(c)
	defer m.clear()
	limitMemory()
	k.Mixture, k.Read, k.Version, k.Progress, k.Err = mixture, k.read<<20, programVersion(), m.show, m
	r, err := k.Run(c.Context())
	if err != nil {
		return err
	}
	m.clear()
	err = page(c, func(w *bufio.Writer) error {
		if k.json {
			return report.Encode(w, r)
		}
		return r.Print(w)
	})
	if err != nil {
		return err
	}
	return failed(c, k.Reasons(r))
}

// failed writes all reasons but the last, a line each, and returns the last as a failure. Without one it returns nil.
func failed(c *cobra.Command, reasons []string) error {
	for i, reason := range reasons {
		if i == len(reasons)-1 {
			return exit.Failuref("%s", reason)
		}
		fmt.Fprintln(c.ErrOrStderr(), reason)
	}
	return nil
}

// usage refuses flags that do not go together.
func (k *checkFlags) usage(c *cobra.Command) error {
	switch {
	case k.Ranks < 1:
		return exit.Usagef("millrace check: --ranks %d: want at least 1", k.Ranks)
	case k.Steps < 0:
		return exit.Usagef("millrace check: --steps %d: want at least 0", k.Steps)
	case len(k.Override) > 0 && k.Against == "":
		return exit.Usagef("millrace check: --override goes with --against")
	case c.Flags().Changed("stream") && k.Against == "":
		return exit.Usagef("millrace check: --stream goes with --against; all streams are checked")
	case k.read < 0:
		return exit.Usagef("millrace check: --read %d: want at least 0; --deep reads all", k.read)
	}
	return nil
}
