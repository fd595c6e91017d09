// Package check validates a mixture file and its data, predicts its run, and compares both with a saved state, for
// `millrace check`.
package check

import (
	"context"
	"errors"
	"io"

	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/growing"
	"millrace/app/profile"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/setup"
)

// Check is the question.
type Check struct {
	Mixture  string
	Ranks    int
	Steps    int    // to plan, fetch and build
	Deep     bool   // read every file to its end, and compare all bytes with those first seen
	Read     int64  // bytes of files to read to their end
	Against  string // file of a saved state; empty: none
	Stream   string // that the state is of
	Override []string
	Version  string // of this program
	// Progress shows the progress of long work. Done and total count files, bytes, records or steps.
	Progress func(what string, done, total int64)
	Err      io.Writer // for all reasons of a failure but the last
}

// Report is the answer. Scripts read its JSON names.
type Report struct {
	*dryrun.Report
	Against *growing.Against `json:"against,omitempty"`
}

// Run checks all streams of the mixture file, and compares one with the state. Problems of the data are in the report.
func (k *Check) Run(ctx context.Context) (*Report, error) {
	c, err := config.Load(k.Mixture)
	if err != nil {
		return nil, err
	}
	stream, err := c.Stream(k.Stream)
	if err != nil {
		return nil, err
	}
	if err := setup.CheckIndexDir(c); err != nil {
		return nil, err
	}
	profiles, err := profile.Load(c)
	if err != nil {
		return nil, err
	}
	resources, err := setup.Divide(c, setup.ThisHost(k.Ranks), setup.Measured{Profiles: profiles})
	if err != nil {
		return nil, err
	}
	out := &Report{}
	if out.Report, err = k.all(ctx, c, resources); err != nil {
		return nil, err
	}
	if k.Against != "" && out.OK {
		if out.Against, err = k.compare(ctx, stream, resources.Streams[k.Stream]); err != nil {
			return nil, err
		}
	}
	out.Share()
	return out, nil
}

// all checks all streams. The report of the main one has those of the others.
func (k *Check) all(ctx context.Context, c *config.Config, resources *setup.Resources) (*dryrun.Report, error) {
	var r *dryrun.Report
	for name, one := range c.All() {
		of, err := k.one(ctx, one, resources.Streams[name])
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

// one checks one stream.
func (k *Check) one(ctx context.Context, c *config.Config, part setup.Part) (*dryrun.Report, error) {
	return dryrun.Check(ctx, c, dryrun.CheckOptions{
		Ranks:    k.Ranks,
		Part:     &part,
		Steps:    k.Steps,
		Budget:   k.Read,
		Deep:     k.Deep,
		Progress: k.Progress,
		Logger:   roles.NewLogger("check"),
	})
}

// compare compares a stream of the mixture file, and its files, with the saved state.
func (k *Check) compare(ctx context.Context, c *config.Config, part setup.Part) (*growing.Against, error) {
	f, err := config.OpenFile(k.Against)
	if err != nil {
		return nil, exit.Usagef("millrace check: read the state: %w", err)
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, exit.Failuref("millrace check: read the state: %v", err)
	}
	log := roles.NewLogger("check")
	opened, err := dryrun.Open(ctx, c, dryrun.Options{Part: &part, Logger: log, Measure: true})
	if opened != nil {
		defer opened.Close()
	}
	if err != nil {
		return nil, report.Problems(k.Err, err)
	}
	of, err := roles.OrchestratorConfig(&setup.Stream{Config: c, Facts: opened.Facts, Part: part}, k.Ranks, k.Version)
	if err != nil {
		return nil, err
	}
	now := growing.Now{Spec: of.Spec, Identity: of.Identity, Files: opened.Manifests(), Rules: of.Rules}
	against, err := growing.Compare(c, text, now, k.Override, log)
	if err != nil {
		return nil, exit.Failuref("%s: %v", k.Against, err)
	}
	return against, nil
}

// Print prints the report for people.
func (r *Report) Print(w io.Writer) error {
	if err := report.PrintCheck(w, r.Report); err != nil || r.Against == nil {
		return err
	}
	return r.Against.Print(w)
}

// Reasons returns the reasons why the mixture cannot be run, or does not continue from the state with the overrides.
func (k *Check) Reasons(r *Report) (reasons []string) {
	for _, p := range r.Problems {
		reasons = append(reasons, p.Reason)
	}
	for _, name := range report.Names(r.Streams) {
		for _, p := range r.Streams[name].Problems {
			reasons = append(reasons, "stream "+name+": "+p.Reason)
		}
	}
	if r.Against != nil && r.Against.Refused != "" && len(k.Override) > 0 {
		reasons = append(reasons, r.Against.Refused)
	}
	return reasons
}
