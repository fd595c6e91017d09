package main

import (
	"bufio"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"millrace/internal/app/config"
	"millrace/internal/app/dryrun"
	"millrace/internal/app/exit"
	"millrace/internal/app/profile"
	"millrace/internal/app/report"
	"millrace/internal/app/roles"
	"millrace/internal/app/setup"
)

// check is the flags of `millrace check`.
type check struct {
	ranks, steps int
	deep, json   bool
	read         int64 // MiB
}

func checkCommand() *cobra.Command {
	k := &check{}
	c := &cobra.Command{
		Use:   "check MIXTURE",
		Short: "Validate a mixture file and its data, and predict its run",
		Long: `Validate a mixture file and its sources, and predict its run.

check opens and indexes the files, and reads up to --read MiB of them to their end. --deep reads all files and compares
their hashes. check plans and builds the first --steps steps as a run on this host would, for --ranks trainer ranks.

Numbers marked ~ are estimated from the records read so far; millrace index --lengths makes them exact.
Exit status: 0 the mixture can be run; 1 the data cannot, and each reason is a line on stderr; 2 the mixture file is
invalid.`,
		Example: "  millrace check mixture.yaml --ranks 8\n  millrace check mixture.yaml --deep --json",
		Args:    exactArgs(1, "one mixture file"),
		RunE:    func(c *cobra.Command, args []string) error { return k.run(c, args[0]) },
	}
	f := c.Flags()
	f.IntVar(&k.ranks, "ranks", 1, "trainer ranks")
	f.IntVar(&k.steps, "steps", 3, "steps to plan, fetch and build")
	f.BoolVar(&k.deep, "deep", false, "read every file to its end and compare all bytes with those first seen")
	f.Int64Var(&k.read, "read", 2048, "MiB of files to read to their end")
	f.BoolVar(&k.json, "json", false, "print one JSON object")
	return c
}

func (k *check) run(c *cobra.Command, mixture string) error {
	switch {
	case k.ranks < 1:
		return exit.Usagef("millrace check: --ranks %d: want at least 1", k.ranks)
	case k.steps < 0:
		return exit.Usagef("millrace check: --steps %d: want at least 0", k.steps)
	case k.read < 0:
		return exit.Usagef("millrace check: --read %d: want at least 0; --deep reads all", k.read)
	}
	cfg, err := config.Load(mixture)
	if err != nil {
		return err
	}
	if err := setup.Divide(cfg, k.ranks); err != nil {
		return err
	}
	if err := setup.CheckIndexDir(cfg); err != nil {
		return err
	}
	if err := profile.Load(cfg); err != nil {
		return err
	}
	roles.LimitMemory(toolMemory)
	var r *dryrun.Report
	for name, stream := range cfg.All() {
		of, err := k.check(c, stream)
		switch {
		case err != nil:
			return err
		case r == nil:
			r = of
		case r.Streams == nil:
			r.Streams = map[string]*dryrun.Report{}
			fallthrough
		default:
			r.Streams[name] = of
			r.OK = r.OK && of.OK
		}
	}
	err = page(c, func(w *bufio.Writer) error {
		if k.json {
			return report.Encode(w, r)
		}
		return report.PrintCheck(w, r)
	})
	if err != nil {
		return err
	}
	problems := slices.Clone(r.Problems)
	for _, name := range report.Names(r.Streams) {
		for _, p := range r.Streams[name].Problems {
			problems = append(problems, dryrun.Complaint{Reason: "stream " + name + ": " + p.Reason})
		}
	}
	for i, p := range problems {
		if i == len(problems)-1 {
			return exit.Failuref("%s", p.Reason)
		}
		fmt.Fprintln(c.ErrOrStderr(), p.Reason)
	}
	return nil
}

// check checks one stream.
func (k *check) check(c *cobra.Command, cfg *config.Config) (*dryrun.Report, error) {
	m := newMeter(c)
	defer m.clear()
	return dryrun.Check(
		c.Context(),
		cfg,
		dryrun.CheckOptions{
			Ranks:    k.ranks,
			Steps:    k.steps,
			Budget:   k.read << 20,
			Deep:     k.deep,
			Progress: m.show,
			Logger:   roles.NewLogger("check"),
		},
	)
}
