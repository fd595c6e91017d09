package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/growing"
	"millrace/app/profile"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/setup"
)

// check is the flags of `millrace check`.
type check struct {
	ranks, steps int
	deep, json   bool
	read         int64 // MiB
	against      string
	stream       string
	override     []string
}

func checkCommand() *cobra.Command {
	k := &check{}
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
	f.IntVar(&k.ranks, "ranks", 1, "trainer ranks")
	f.IntVar(&k.steps, "steps", 3, "steps to plan, fetch and build")
	f.BoolVar(&k.deep, "deep", false, "read every file to its end and compare all bytes with those first seen")
	f.Int64Var(&k.read, "read", 2048, "MiB of files to read to their end")
	f.BoolVar(&k.json, "json", false, "print one JSON object")
	f.StringVar(&k.against, "against", "", "say how a run goes on from this file, the JSON of a state_dict()")
	f.StringVar(&k.stream, "stream", string(millrace.Train), "with --against: the stream that the state is of")
	f.StringArrayVar(&k.override, "override", nil, "with --against: an override, as load_state_dict takes it")
	return c
}

func (k *check) run(c *cobra.Command, mixture string) error {
	if err := k.usage(c); err != nil {
		return err
	}
	cfg, err := config.Load(mixture)
	if err != nil {
		return err
	}
	stream, err := cfg.Stream(k.stream)
	if err != nil {
		return err
	}
	if err := setup.CheckIndexDir(cfg); err != nil {
		return err
	}
	profiles, err := profile.Load(cfg)
	if err != nil {
		return err
	}
	resources, err := setup.Divide(cfg, setup.ThisHost(k.ranks), setup.Measured{Profiles: profiles})
	if err != nil {
		return err
	}
	roles.LimitMemory(toolMemory)
	r, err := k.all(c, cfg, resources)
	if err != nil {
		return err
	}
	var against *growing.Against
	if k.against != "" && r.OK {
		if against, err = k.compare(c, stream, resources.Streams[k.stream]); err != nil {
			return err
		}
	}
	r.Share()
	err = page(c, func(w *bufio.Writer) error {
		if k.json {
			return report.Encode(w, struct {
				*dryrun.Report
				Against *growing.Against `json:"against,omitempty"`
			}{r, against})
		}
		if err := report.PrintCheck(w, r); err != nil || against == nil {
			return err
		}
		return against.Print(w)
	})
	if err != nil {
		return err
	}
	if against != nil && against.Refused != "" && len(k.override) > 0 {
		return exit.Failuref("%s", against.Refused)
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

// usage refuses flags that do not go together.
func (k *check) usage(c *cobra.Command) error {
	switch {
	case k.ranks < 1:
		return exit.Usagef("millrace check: --ranks %d: want at least 1", k.ranks)
	case k.steps < 0:
		return exit.Usagef("millrace check: --steps %d: want at least 0", k.steps)
	case len(k.override) > 0 && k.against == "":
		return exit.Usagef("millrace check: --override goes with --against")
	case c.Flags().Changed("stream") && k.against == "":
		return exit.Usagef("millrace check: --stream goes with --against; all streams are checked")
	case k.read < 0:
		return exit.Usagef("millrace check: --read %d: want at least 0; --deep reads all", k.read)
	}
	return nil
}

// all checks all streams. The report of the main one has those of the others.
func (k *check) all(c *cobra.Command, cfg *config.Config, resources *setup.Resources) (*dryrun.Report, error) {
	var r *dryrun.Report
	for name, one := range cfg.All() {
		of, err := k.check(c, one, resources.Streams[name])
		switch {
		case err != nil:
			return nil, err
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
	return r, nil
}

// compare compares a stream of the mixture file, and its files, with a saved state.
func (k *check) compare(c *cobra.Command, cfg *config.Config, part setup.Part) (*growing.Against, error) {
	text, err := os.ReadFile(k.against)
	if err != nil {
		return nil, exit.Usagef("millrace check: read the state: %w", err)
	}
	log := roles.NewLogger("check")
	opened, err := dryrun.Open(c.Context(), cfg, dryrun.Options{Part: &part, Logger: log, Measure: true})
	if opened != nil {
		defer opened.Close()
	}
	if err != nil {
		return nil, report.Problems(c.ErrOrStderr(), err)
	}
	of, err := roles.OrchestratorConfig(&setup.Stream{Config: cfg, Facts: opened.Facts, Part: part}, k.ranks,
		programVersion())
	if err != nil {
		return nil, err
	}
	now := growing.Now{Spec: of.Spec, Identity: of.Identity, Files: opened.Manifests(), Rules: of.Rules}
	against, err := growing.Compare(cfg, text, now, k.override, log)
	if err != nil {
		return nil, exit.Failuref("%s: %v", k.against, err)
	}
	return against, nil
}

// check checks one stream.
func (k *check) check(c *cobra.Command, cfg *config.Config, part setup.Part) (*dryrun.Report, error) {
	m := newMeter(c)
	defer m.clear()
	return dryrun.Check(
		c.Context(),
		cfg,
		dryrun.CheckOptions{
			Ranks:    k.ranks,
			Part:     &part,
			Steps:    k.steps,
			Budget:   k.read << 20,
			Deep:     k.deep,
			Progress: m.show,
			Logger:   roles.NewLogger("check"),
		},
	)
}
