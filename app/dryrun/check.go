package dryrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"millrace"
	"millrace/app/config"
	"millrace/app/config/tree"
	"millrace/app/setup"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/sources"
	"millrace/text/tokenize"
)

// CheckOptions say how much of a mixture is read and planned.
type CheckOptions struct {
	Ranks    int
	Part     *setup.Part // of the stream in a run's resources; nil: all limits of the file
	Steps    int         // planned, fetched and built
	Budget   int64       // bytes of files read to their end; negative: all
	Deep     bool        // all files, and their hashes
	Progress func(what string, done, total int64)
	Logger   *slog.Logger
}

const (
	sampled    = 256     // records of each source that are read, at least
	cheapRun   = 8 << 20 // tokens of a finite run that is planned to its end although its lengths are unknown
	cheapKnown = 4 << 20 // documents of a finite run with known lengths that is planned to its end
	mostCP     = 1024    // largest context parallelism that is listed
)

// Check reads and plans a mixture and reports the course of its run. It returns an error for a mistake in the
// mixture file and for the end of ctx. Problems of the data are in the report.
func Check(ctx context.Context, c *config.Config, o CheckOptions) (*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	k := &check{
		c: c,
		o: o,
		report: &Report{
			Mixture:     c.File,
			Ranks:       o.Ranks,
			Payload:     c.Payload() == nil,
			Problems:    []Complaint{},
			Sources:     []SourceReport{},
			FirstSteps:  []StepReport{},
			Quarantined: Quarantined{Recent: []millrace.Quarantine{}},
		},
	}
	k.o.Part = orAlone(o.Part, c, o.Ranks)
	var err error
	if k.topology, err = c.Topology(o.Ranks); err != nil {
		return nil, err
	}
	if err := setup.CheckIndexDir(c); err != nil {
		return nil, err
	}
	if err := k.run(ctx); err != nil {
		return nil, err
	}
	k.report.OK = len(k.report.Problems) == 0
	return k.report, nil
}

// check is the state of one Check.
type check struct {
	c        *config.Config
	o        CheckOptions
	topology millrace.Topology
	spec     *planner.Spec
	report   *Report
	opened   *Opened
	shares   []setup.Share
	scans    []Scan
	found    []Found
	outlook  *Outlook
	tokens   float64 // of the first steps
	places   float64 // of these
}

func (k *check) complain(source string, format string, args ...any) {
	k.report.Problems = append(k.report.Problems, Complaint{Source: source, Reason: fmt.Sprintf(format, args...)})
}

func (k *check) run(ctx context.Context) error {
	k.memory()
	var err error
	k.opened, err = Open(ctx, k.c, Options{Deep: k.o.Deep, Measure: true, Part: k.o.Part, Logger: k.o.Logger,
		Looked:   func(s string, done, total int64) { k.o.Progress("look at the files of "+s, done, total) },
		Progress: func(s string, done, total int64) { k.o.Progress("index "+s, done, total) }})
	if k.opened == nil {
		return err
	}
	defer k.opened.Close()
	k.report.Tokenizer = tokenizerReport(k.opened.Encoding)
	var problems Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	for _, p := range problems {
		k.problem(p)
	}
	if k.opened.Facts.Sizes != nil || !k.c.Mixture.Derives() {
		if k.spec, err = setup.PlanSpec(k.c, k.opened.Facts); err != nil {
			return err
		}
		if err := k.share(); err != nil {
			return err
		}
	}
	budget := k.o.Budget
	if k.o.Deep {
		budget = -1
	}
	if k.scans, err = k.opened.Scan(ctx, ScanOptions{Budget: budget, Progress: func(done,
		total int64) {
		k.o.Progress("read files", done, total)
	}}); err != nil {
		return err
	}
	for i := range k.scans {
		for _, p := range k.scans[i].Broken {
			k.problem(p)
		}
	}
	var failed error
	if len(k.report.Problems) == 0 {
		if err := k.opened.Walk(ctx, k.o.Ranks, k.walk); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			failed = err
		}
	}
	if err := k.sources(ctx); err != nil {
		return err
	}
	// Sources without a usable record explain a failed plan, so they replace its error.
	if failed != nil && len(k.report.Problems) == 0 {
		k.complain("", "%s", failed)
	}
	return nil
}

func (k *check) problem(p *Problem) {
	k.report.Problems = append(k.report.Problems, Complaint{Source: p.Source, Reason: p.Error()})
}

// walk plans, fetches and builds the first steps. It plans to the end of the run if that takes seconds only.
func (k *check) walk(ctx context.Context, w *Walk) error {
	defer func() { k.found = w.Found() }()
	if err := w.Sample(ctx, sampled); err != nil {
		return err
	}
	if k.o.Steps > 0 && k.quick(ctx) {
		k.o.Progress("plan with other settings", 0, 1)
		var err error
		if k.report.Prices, err = w.Prices(ctx); err != nil {
			return err
		}
	}
	for range k.o.Steps {
		k.o.Progress("plan and build steps", int64(len(k.report.FirstSteps)), int64(k.o.Steps))
		s, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if s == nil {
			break
		}
		k.step(s, w.Explain())
		if !k.report.Payload {
			continue // lengths alone cannot be built
		}
		if err := k.build(ctx, w, s); err != nil {
			return err
		}
	}
	if k.outlook = w.Outlook(); !k.outlook.Exact {
		supply := k.supply(ctx, w.Found())
		k.outlook = Forecast(k.c, k.spec, supply, k.tokens/max(k.places, 1))
		if k.cheap(ctx, supply) {
			total := int64(k.outlook.Tokens)
			exact, err := w.ToEnd(
				ctx, func(s *Step) { k.o.Progress("plan to the end", min(int64(s.After.Tokens), total), total) },
			)
			if err != nil {
				return err
			}
			k.outlook = exact
		}
	}
	return nil
}

func (k *check) step(s *Step, e *Explained) {
	k.report.FirstSteps = append(k.report.FirstSteps, StepReport{Step: e.Step, Tokens: e.Tokens, Fill: e.Fill,
		Balance: 1 + e.Overhead.FSDP, Ranks: 1 + e.Overhead.DP, Context: e.Context, Content: e.Content, Explain: e})
	if s.Incomplete && k.places > 0 {
		return
	}
	in := k.c.AllStages()[s.Stage]
	sequences := float64(s.GlobalBatch) / float64(max(s.Times, 1))
	k.tokens, k.places = k.tokens+float64(s.Stats.Tokens), k.places+sequences*float64(in.SequenceLength)
}

// build builds every microbatch of a step, so that damage to a planned sample shows before a run.
func (k *check) build(ctx context.Context, w *Walk, s *Step) error {
	for r := range s.Plan.Ranks {
		for m := range s.Plan.Microbatches {
			_, err := w.Build(ctx, k.topology.Rank(millrace.Coordinates{DP: int(r)}), m)
			faults := Faults(err)
			if err != nil && len(faults) == 0 {
				return err
			}
			for _, q := range faults {
				k.complain(
					q.Source, "source %s: step %d needs %s at byte %d: %s", q.Source, s.Step, q.ID, q.Offset, q.Reason,
				)
			}
		}
	}
	return nil
}

// quick reports whether the first steps can be drawn several times within about two seconds, because their lengths are
// known or few.
func (k *check) quick(ctx context.Context) bool {
	steps := uint64(pricedSteps)
	if k.spec != nil {
		steps = max(steps, uint64(k.spec.LongestWindow()))
	}
	return steps*k.c.StepTokens() <= cheapRun || k.known(ctx)
}

// known reports whether the length of every record is known.
func (k *check) known(ctx context.Context) bool {
	return !slices.ContainsFunc(k.opened.Sources, func(src *sources.Source) bool {
		st, err := src.Stats(ctx)
		return err != nil || !st.Counted || st.Known < st.Records
	})
}

// supply returns the tokens and records of one pass of each source.
func (k *check) supply(ctx context.Context, found []Found) []Supply {
	out := make([]Supply, len(k.opened.Sources))
	for i, src := range k.opened.Sources {
		r := k.count(ctx, i, found)
		out[i] = Supply{
			Tokens:  float64(r.Tokens),
			Records: float64(r.Records - min(r.Refused+r.Missing, r.Records)),
			Passes:  src.Epochs(),
		}
	}
	return out
}

// cheap reports whether the run ends and can be planned to its end in seconds.
func (k *check) cheap(ctx context.Context, supply []Supply) bool {
	if k.outlook.Endless {
		return false
	}
	tokens, records := 0.0, 0.0
	for i := range supply {
		tokens, records = tokens+supply[i].Tokens, records+supply[i].Records
	}
	if k.known(ctx) {
		return k.outlook.Tokens*records <= cheapKnown*max(tokens, 1)
	}
	return k.outlook.Tokens <= cheapRun
}

// count returns a source's records and tokens. They are exact if the files or the length store have them.
func (k *check) count(ctx context.Context, i int, found []Found) SourceReport {
	src, scan := k.opened.Sources[i], &k.scans[i]
	r := SourceReport{Name: src.Name(), FilesRead: scan.Files}
	st, err := src.Stats(ctx)
	if err != nil {
		st = sources.Stats{} // only an estimate is lost
	}
	r.Files, r.Bytes = len(src.Manifest().Shards), st.Bytes
	switch {
	case st.Counted:
		r.Records, r.RecordsExact = st.Records, true
	case scan.Complete():
		r.Records, r.RecordsExact = scan.Records, true
	case scan.Bytes > 0:
		r.Records = uint64(float64(scan.Records) / float64(scan.Bytes) * float64(st.Bytes))
	}
	var seen Found
	if found != nil {
		seen = found[i]
	}
	switch {
	case st.Counted && st.Known == st.Records:
		r.Tokens, r.Refused, r.Missing, r.TooLong = st.Tokens, st.Refused, st.Skipped, st.TooLong
		r.TokensExact = true
	case r.RecordsExact && seen.Records == r.Records:
		r.Tokens, r.Refused, r.Missing, r.TooLong = seen.Tokens, seen.Refused, seen.Missing, seen.TooLong
		r.TokensExact = true
	case seen.Records > 0:
		all := float64(r.Records) / float64(seen.Records)
		r.Tokens, r.Refused = uint64(float64(seen.Tokens)*all), uint64(float64(seen.Refused)*all)
		r.Missing, r.TooLong = uint64(float64(seen.Missing)*all), uint64(float64(seen.TooLong)*all)
	}
	if src.HasUntrained() {
		trained := trainedOf(&r, &st, &seen)
		r.Trained = &trained
	}
	return r
}

// sources reports every source and complains of those with too many bad records.
func (k *check) sources(ctx context.Context) error {
	shares := make([]uint32, len(k.c.Sources)) // zero while the sizes are unknown
	if k.spec != nil {
		shares = k.spec.Schedule.Divide(k.spec.Schedule.At(0, 0), nil)
	}
	allowed := setup.Allowed(k.c)
	var err error
	for i, src := range k.opened.Sources {
		r := k.count(ctx, i, k.found)
		r.Skipped = []SkippedFile{}
		m := src.Manifest()
		at := slices.Index(k.c.Sources.Names(), r.Name)
		for _, shard := range m.Shards {
			k.report.uses = append(k.report.uses, setup.Use{Source: r.Name, Path: shard.Path, Content: shard.Digest,
				Filtered: k.c.Sources[at].Filter != ""})
		}
		r.Format, r.Shuffle, r.Why, r.Epochs = m.Format, string(m.Shuffle), m.Why, src.Epochs()
		r.OnExhausted, r.Target = string(k.c.Sources[at].OnExhausted), float64(shares[at])/mixing.One
		r.Allowed = allowed(setup.Counted(m), r.Records)
		for _, f := range k.opened.skipped[i] {
			r.Skipped = append(r.Skipped, SkippedFile{Path: f.Path, Why: f.Reason})
		}
		k.quarantine(i, &r)
		k.course(i, &r)
		if r.Reading, err = k.reading(ctx, i, &r); err != nil {
			return err
		}
		if r.Storage, err = k.storage(ctx, i, &r); err != nil {
			return err
		}
		k.report.Sources = append(k.report.Sources, r)
	}
	k.report.Longest = k.longest(ctx, k.tokenShares(k.report.Sources))
	k.ending()
	return ctx.Err()
}

func (k *check) course(i int, r *SourceReport) {
	if k.outlook == nil {
		return
	}
	course := &k.outlook.Sources[i]
	r.Share = course.Share
	if course.Dry != nil {
		step := uint64(*course.Dry)
		r.DryStep = &step
	}
	if course.Stale != nil {
		step := uint64(*course.Stale)
		r.StaleStep = &step
	}
	if !k.outlook.Endless && r.Tokens > 0 {
		passes := course.Tokens / float64(r.Tokens)
		r.Passes = &passes
	}
}

func (k *check) ending() {
	run := &k.report.Run
	k.stages()
	run.Microbatches = k.c.AllStages()[0].Microbatches(k.topology)
	if k.outlook == nil {
		return
	}
	run.Endless, run.Exact, run.Reason = k.outlook.Endless, k.outlook.Exact, k.outlook.Reason
	if !run.Endless {
		tokens := uint64(k.outlook.Tokens)
		run.Steps, run.Tokens = &k.outlook.Steps, &tokens
	}
}

// quarantine counts the bad records that the scan and the planning found, and compares them with the budget.
func (k *check) quarantine(i int, r *SourceReport) {
	scan := &k.scans[i]
	bad := scan.Rejects
	r.Bad = scan.Bad
	if k.found != nil {
		for _, x := range k.found[i].Rejects {
			// in a file that was not read to its end, or refused by the filter or the tokenizer
			if !scan.bad[x.Sample] {
				bad = append(bad, x.Quarantine)
				r.Bad++
			}
		}
	}
	k.report.Quarantined.Count += r.Bad
	k.report.Quarantined.Recent = append(k.report.Quarantined.Recent, bad[:min(len(bad), shownRejects)]...)
	if len(scan.Broken) > 0 {
		return
	}
	if i := slices.IndexFunc(bad, millrace.Quarantine.HasMedia); i >= 0 {
		k.complain(r.Name, "source %s: %s: %s: %s", r.Name, bad[i].ID, bad[i].Reason, bad[i].Cure())
		return
	}
	if r.Bad > r.Allowed {
		q := bad[0]
		k.complain(r.Name, "source %s: %d of %d records cannot be decoded, its quarantine budget takes %d; the first "+
			"is %s at byte %d: %s: %s", r.Name, r.Bad, r.Records, r.Allowed, q.ID, q.Offset, q.Reason, q.Cure())
		return
	}
	k.early(i, r)
}

// early complains of a source without a count if too many of its first records are bad. A run applies the budget to the
// records that it has read so far.
func (k *check) early(i int, r *SourceReport) {
	if k.found == nil || setup.Counted(k.opened.Sources[i].Manifest()) {
		return
	}
	allowed := setup.Allowed(k.c)
	for n, x := range k.found[i].Rejects {
		records := uint64(x.Ordinal) + 1
		if most := allowed(false, records); uint64(n) >= most {
			k.complain(
				r.Name,
				"source %s: %d of the first %d records cannot be decoded, its quarantine budget takes %d there; the "+
					"last is "+
					"%s at byte %d: %s: %s, or count the source with millrace index",
				r.Name,
				n+1,
				records,
				most,
				x.ID,
				x.Offset,
				x.Reason,
				x.Cure(),
			)
			return
		}
	}
}

// memory compares a run's memory with the limits, as the roles do at their start.
func (k *check) memory() {
	c, part, m := k.c, k.o.Part, &k.report.Memory
	m.Frame, m.SidecarNeeded = setup.SidecarMemory(c, k.o.Ranks)
	m.LoaderLimit, m.SidecarLimit = part.LoaderMemory, part.SidecarMemory
	m.StepPayload = 4 * int64(c.StepTokens())
	k.report.Run.Loaders, k.report.Run.Shadows = part.Fleet.Loaders, part.Fleet.Shadows
	k.report.Run.MostLoaders = int(c.Loaders.Most)
	m.PayloadSteps = part.Reader.Heap * int64(part.Fleet.Loaders) / 2 / m.StepPayload
	for cp := 1; cp == 1 || 2*cp <= int(c.PadMultiple) && cp <= mostCP; cp++ {
		// A rank takes a piece of each end of a segment, so that causal attention costs all ranks the same.
		if cp == 1 || int(c.PadMultiple)%(2*cp) == 0 {
			k.report.CPSizes = append(k.report.CPSizes, cp)
		}
	}
	for _, err := range []error{setup.CheckLoaderMemory(c, *part), setup.CheckSidecarMemory(c, *part, k.o.Ranks)} {
		var at *tree.Error
		if errors.As(err, &at) {
			k.complain("", "%s:%d:%d: %s: %s", at.File, at.Line, at.Column, at.Msg, at.Cure)
		}
	}
}

func tokenizerReport(e *tokenize.Encoding) *TokenizerReport {
	if e == nil {
		return nil
	}
	special := func(id uint32, ok bool) (*string, *uint32) {
		if !ok {
			return nil, nil
		}
		spelling, err := e.Decode(nil, []uint32{id})
		if err != nil {
			return nil, &id
		}
		text := string(spelling)
		return &text, &id
	}
	r := &TokenizerReport{Name: e.Name(), Pattern: e.Pattern(), Vocabulary: e.VocabSize()}
	r.BOS, r.BOSID = special(e.BOS())
	r.EOS, r.EOSID = special(e.EOS())
	return r
}
