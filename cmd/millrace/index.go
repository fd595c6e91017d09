package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/profile"
	"millrace/app/profile/measure"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/setup"
)

// index is the flags of `millrace index`.
type index struct {
	stream                string
	source                string
	lengths, tokens, json bool
	profile               bool
}

func indexCommand() *cobra.Command {
	x := &index{}
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
		RunE: func(c *cobra.Command, args []string) error { return x.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&x.source, "source", "", "one source (default: all)")
	streamFlag(f, &x.stream)
	f.BoolVar(&x.lengths, "lengths", false, "tokenise every document and keep its length")
	f.BoolVar(&x.tokens, "tokens", false, "tokenise every document and keep its tokens in the token cache")
	f.BoolVar(&x.profile, "profile", false, "measure and keep what reading each source costs")
	f.BoolVar(&x.json, "json", false, "print one JSON object")
	return c
}

func (x *index) run(c *cobra.Command, mixture string) error {
	cfg, err := loadStream(mixture, x.stream)
	if err != nil {
		return err
	}
	if _, ok := cfg.Source(x.source); x.source != "" && !ok {
		return exit.Usagef("millrace index: --source %s: the mixture has %v", x.source, cfg.Sources.Names())
	}
	if x.tokens && !cfg.KeepsTokens() {
		return cfg.ErrorAt("cache", "index --tokens fills the token cache, and the mixture file has none",
			"add `cache: {tokens: 200GiB, dir: /local/cache}`, with a directory on a local disk")
	}
	roles.LimitMemory(toolMemory)
	m := newMeter(c)
	defer m.clear()
	opened, failed := dryrun.Open(
		c.Context(),
		cfg,
		dryrun.Options{OnePass: true, Whole: true, Only: x.source, Logger: roles.NewLogger("index"),
			Looked:   func(source string, done, total int64) { m.show("look at the files of "+source, done, total) },
			Progress: func(source string, done, total int64) { m.show("index "+source, done, total) }},
	)
	if opened == nil {
		return failed
	}
	defer opened.Close()
	if x.lengths {
		if err := opened.Lengths(c.Context(), func(source string, done, total int64) {
			m.show("lengths of "+source,
				done, total)
		}); err != nil {
			return exit.Failure(err)
		}
	}
	var fills []dryrun.CacheFill
	if x.tokens {
		if fills, err = opened.Tokens(c.Context(), func(source string, done, total int64) {
			m.show("tokens of "+source, done, total)
		}); err != nil {
			return exit.Failure(err)
		}
	}
	var costs []profiled
	if x.profile && failed == nil {
		costs, err = x.measure(c.Context(), cfg, func(source string, done, total int64) {
			m.show("profile of "+source, done, total)
		})
		if err != nil {
			return exit.Failure(err)
		}
	}
	m.clear()
	rows, err := x.rows(c.Context(), opened, fills)
	if err != nil {
		return exit.Failure(err)
	}
	for i := range costs {
		rows[i].Profile = &costs[i]
	}
	if err := page(c, func(w *bufio.Writer) error { return x.print(w, rows) }); err != nil || failed == nil {
		return err
	}
	return report.Problems(c.ErrOrStderr(), failed)
}

// profileFor is the time for which --profile reads each source.
const profileFor = 2 * time.Second

// profiled is the cost of reading a source, and what runs of the mixture make of it.
type profiled struct {
	profile.Source
	Stripes int `json:"stripes"`
}

// measure measures the sources and keeps the figures.
func (x *index) measure(
	ctx context.Context, cfg *config.Config, progress func(source string, done, total int64),
) ([]profiled, error) {
	found, err := measure.Sources(ctx, cfg,
		measure.Options{Each: profileFor, Only: x.source, Progress: progress})
	if err != nil {
		return nil, err
	}
	if err := profile.Save(cfg, found); err != nil {
		return nil, err
	}
	profiles, err := profile.Load(cfg)
	if err != nil {
		return nil, err
	}
	facts, err := dryrun.Measure(ctx, cfg, dryrun.Options{})
	if err != nil {
		return nil, err
	}
	stream := setup.Stream{Config: cfg, Facts: facts,
		Part: setup.Alone(cfg, setup.ThisHost(1), setup.Measured{Profiles: profiles})}
	shares, err := stream.Shares()
	if err != nil {
		return nil, err
	}
	out := make([]profiled, len(found))
	for i, f := range found {
		out[i] = profiled{f, shares[slices.Index(cfg.Sources.Names(), f.Source)].Stripes}
	}
	return out, nil
}

// indexView describes a source. Scripts read the JSON names.
type indexView struct {
	Name    string `json:"name"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Records uint64 `json:"records"`
	Counted bool   `json:"counted"`
	Tokens  uint64 `json:"tokens"`
	Known   uint64 `json:"known"` // records whose length is known
	Shuffle string `json:"shuffle"`
	Why     string `json:"why,omitempty"`
	// with --tokens
	Cache *dryrun.CacheFill `json:"cache,omitempty"`
	// with --profile
	Profile *profiled `json:"profile,omitempty"`
}

// rows describes the sources. fills has the shards in the token cache by source; it is empty if none was filled.
func (x *index) rows(ctx context.Context, opened *dryrun.Opened, fills []dryrun.CacheFill) ([]indexView, error) {
	out := make([]indexView, 0, len(opened.Sources))
	for i, s := range opened.Sources {
		st, err := s.Stats(ctx)
		if err != nil {
			return nil, err
		}
		m := s.Manifest()
		out = append(
			out,
			indexView{
				Name:    s.Name(),
				Files:   st.Files,
				Bytes:   st.Bytes,
				Records: st.Records,
				Counted: st.Counted,
				Tokens:  st.Tokens,
				Known:   st.Known,
				Shuffle: string(m.Shuffle),
				Why:     m.Why,
			},
		)
		if len(fills) > 0 {
			out[i].Cache = &fills[i]
		}
	}
	return out, nil
}

func (x *index) print(w io.Writer, views []indexView) error {
	if x.json {
		return report.Encode(w, map[string]any{"sources": views})
	}
	rows := []string{report.Row("SOURCE", "FILES", "SIZE", "RECORDS", "LENGTHS KNOWN", "TOKENS", "SHUFFLE")}
	for _, v := range views {
		records, shuffle := "not counted", v.Shuffle
		if v.Counted {
			records = report.Count(v.Records)
		}
		if v.Why != "" {
			shuffle += ": " + v.Why
		}
		rows = append(
			rows,
			report.Row(
				v.Name, v.Files, report.Size(v.Bytes), records, report.Count(v.Known),
				report.About(v.Tokens, v.Counted && v.Known == v.Records), shuffle,
			),
		)
	}
	if err := report.Table(w, rows...); err != nil {
		return err
	}
	for _, v := range views {
		if v.Cache == nil || v.Cache.Cached+v.Cache.Left == 0 {
			continue
		}
		fmt.Fprintf(w, "%s: %d of %d files are in the token cache", v.Name, v.Cache.Cached, v.Files)
		if v.Cache.Left > 0 {
			fmt.Fprint(w, "; it has no room for the others: raise cache.tokens, or free its disk")
		}
		fmt.Fprintln(w)
	}
	return printProfile(w, views)
}

// printProfile writes what --profile found, if it was asked for.
func printProfile(w io.Writer, views []indexView) error {
	rows := []string{report.Row("\nSOURCE", "SECONDS PER M TOKENS", "OF THESE FOR FILES", "BYTES PER TOKEN",
		"MEMORY OF A LOADER", "STRIPES")}
	for _, v := range views {
		if p := v.Profile; p != nil {
			rows = append(rows, report.Row(v.Name, fmt.Sprintf("%.3g", p.Work), fmt.Sprintf("%.3g", p.Reading),
				fmt.Sprintf("%.3g", p.Bytes), report.Size(p.Resident), p.Stripes))
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return report.Table(w, rows...)
}
