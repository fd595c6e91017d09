// Package index builds the indexes of a mixture's sources ahead of a run, for `millrace index`.
package index

import (
	"context"
	"slices"
	"time"

	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/profile"
	"millrace/app/profile/measure"
	"millrace/app/roles"
	"millrace/app/setup"
)

// Index is the work.
type Index struct {
	Mixture, Stream string
	Source          string // this source alone; empty: all
	Lengths         bool   // tokenise every document and keep its length
	Tokens          bool   // tokenise every document and keep its tokens in the token cache
	Profile         bool   // measure and keep the cost of reading each source
	// Progress shows the progress of long work. Done and total count files, bytes, records or sources.
	Progress func(what string, done, total int64)
}

// Run does the work and describes the sources. Its error is dryrun.Problems if sources cannot be read; it then also
// returns the other sources.
func (x *Index) Run(ctx context.Context) ([]Source, error) {
	c, err := config.LoadStream(x.Mixture, x.Stream)
	if err != nil {
		return nil, err
	}
	if _, ok := c.Source(x.Source); x.Source != "" && !ok {
		return nil, exit.Usagef("millrace index: --source %s: the mixture has %v", x.Source, c.Sources.Names())
	}
	if x.Tokens && !c.KeepsTokens() {
		return nil, c.ErrorAt("cache", "index --tokens fills the token cache, and the mixture file has none",
			"add `cache: {tokens: 200GiB, dir: /local/cache}`, with a directory on a local disk")
	}
	opened, failed := dryrun.Open(ctx, c, dryrun.Options{OnePass: true, Whole: true, Only: x.Source,
		Logger: roles.NewLogger("index"), Looked: x.of("look at the files of "), Progress: x.of("index ")})
	if opened == nil {
		return nil, failed
	}
	defer opened.Close()
	if x.Lengths {
		if err := opened.Lengths(ctx, x.of("lengths of ")); err != nil {
			return nil, exit.Failure(err)
		}
	}
	var fills []dryrun.CacheFill
	if x.Tokens {
		if fills, err = opened.Tokens(ctx, x.of("tokens of ")); err != nil {
			return nil, exit.Failure(err)
		}
	}
	var costs []Cost
	if x.Profile && failed == nil {
		if costs, err = x.measure(ctx, c); err != nil {
			return nil, exit.Failure(err)
		}
	}
	out, err := describe(ctx, opened)
	if err != nil {
		return nil, exit.Failure(err)
	}
	for i := range fills {
		out[i].Cache = &fills[i]
	}
	for i := range costs {
		out[i].Profile = &costs[i]
	}
	return out, failed
}

// of returns a function that shows the progress of one kind of work on each source.
func (x *Index) of(work string) func(source string, done, total int64) {
	return func(source string, done, total int64) { x.Progress(work+source, done, total) }
}

// profileFor is the time for which each source is read for its profile.
const profileFor = 2 * time.Second

// measure measures the sources and keeps the figures.
func (x *Index) measure(ctx context.Context, c *config.Config) ([]Cost, error) {
	found, err := measure.Sources(ctx, c,
		measure.Options{Each: profileFor, Only: x.Source, Progress: x.of("profile of ")})
	if err != nil {
		return nil, err
	}
	if err := profile.Save(c, found); err != nil {
		return nil, err
	}
	profiles, err := profile.Load(c)
	if err != nil {
		return nil, err
	}
	facts, err := dryrun.Measure(ctx, c, dryrun.Options{})
	if err != nil {
		return nil, err
	}
	stream := setup.Stream{Config: c, Facts: facts,
		Part: setup.Alone(c, setup.ThisHost(1), setup.Measured{Profiles: profiles})}
	shares, err := stream.Shares()
	if err != nil {
		return nil, err
	}
	out := make([]Cost, len(found))
	for i, f := range found {
		out[i] = Cost{f, shares[slices.Index(c.Sources.Names(), f.Source)].Stripes}
	}
	return out, nil
}

// describe describes the opened sources.
func describe(ctx context.Context, opened *dryrun.Opened) ([]Source, error) {
	out := make([]Source, 0, len(opened.Sources))
	for _, s := range opened.Sources {
		st, err := s.Stats(ctx)
		if err != nil {
			return nil, err
		}
		m := s.Manifest()
		out = append(out, Source{
			Name:    s.Name(),
			Files:   st.Files,
			Bytes:   st.Bytes,
			Records: st.Records,
			Counted: st.Counted,
			Tokens:  st.Tokens,
			Known:   st.Known,
			Shuffle: string(m.Shuffle),
			Why:     m.Why,
		})
	}
	return out, nil
}
