package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config/tree"
	"millrace/app/config/value"
	"millrace/internal/bucket"
	"millrace/sources/find"
	"millrace/sources/format/registry"
)

// Abs returns a path of the file as an absolute one. URLs stay unchanged.
func (c *Config) Abs(path string) string {
	if find.IsURL(path) || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.Base, path)
}

// IndexPath returns the absolute index_dir.
func (c *Config) IndexPath() string { return c.Abs(c.IndexDir) }

// CachePath returns the absolute directory of the caches, which the file must have.
func (c *Config) CachePath() string { return c.Abs(c.Cache.Dir) }

// KeepsTokens reports whether documents are kept as tokens on a local disk.
func (c *Config) KeepsTokens() bool { return c.Cache != nil && c.Cache.Tokens > 0 }

// KeepsFiles reports whether parts of remote files are kept on a local disk.
func (c *Config) KeepsFiles() bool { return c.Cache != nil && c.Cache.Files > 0 && c.IsRemote() }

// Source returns the source of that name.
func (c *Config) Source(name string) (*Source, bool) {
	i, ok := slices.BinarySearchFunc(
		c.Sources, name, func(s Source, n string) int { return strings.Compare(s.Name, n) },
	)
	if !ok {
		return nil, false
	}
	return &c.Sources[i], true
}

// Epochs returns the number of passes after which the run ends, or 0 if it does not end by epochs.
func (c *Config) Epochs() uint32 {
	if c.Stop == nil {
		return 0
	}
	return c.Stop.Epochs
}

// Passes returns the number of passes after which the source is exhausted, or 0 for a source without end.
func (c *Config) Passes(s *Source) uint32 {
	if n := c.Epochs(); n > 0 {
		return n
	}
	return s.MaxEpochs
}

// Payload returns an error if a source has no documents to serve: it has lengths alone. The error
// names the place in the file.
func (c *Config) Payload() error {
	for i := range c.Sources {
		s := &c.Sources[i]
		if s.Format == registry.Lengths {
			return c.ErrorAt(
				"sources."+s.Name+".format",
				"source "+tree.Quote(
					s.Name,
				)+" has the lengths of documents without their tokens, so a run cannot serve it",
				"write the path of files of jsonl, parquet or megatron; `millrace check` and `millrace plan` take "+
					"lengths",
			)
		}
	}
	return nil
}

// IsRemote reports whether a source is in a store.
func (c *Config) IsRemote() bool {
	return slices.ContainsFunc(c.Sources, func(s Source) bool { return s.IsRemote() })
}

// Budget returns the amount that unimax divides, in tokens or samples as the mixture counts.
func (c *Config) Budget(d *Derived) uint64 {
	if n := d.BudgetTokens + d.BudgetSamples; n > 0 || c.Stop == nil || c.Mixture.Unit != millrace.UnitTokens {
		return n
	}
	return c.Stop.Tokens
}

// Bounds returns the least and the largest fraction of the mixture for a source with weight, in billionths.
func (c *Config) Bounds(s *Source) (least, most uint64) {
	least, most = c.Mixture.Floor.Billionths(), value.Billion
	if s.MinFraction.Text != "" {
		least = s.MinFraction.Billionths()
	}
	if s.MaxFraction.Text != "" {
		most = s.MaxFraction.Billionths()
	}
	return min(least, most), most
}

// AllStages returns the stages of the run in order, with every value filled in; the first begins at step 0.
func (c *Config) AllStages() []Stage {
	first := Stage{
		SequenceLength:  c.SequenceLength,
		GlobalBatchSize: c.GlobalBatchSize,
		RampupBatchSize: c.RampupBatchSize,
		MicroBatchSize:  c.MicroBatchSize,
		Packing:         c.Packing,
	}
	return append([]Stage{first}, c.Stages...)
}

// PairTokens returns the most tokens of a preference pair: those of the shortest sequence of all stages.
func (c *Config) PairTokens() uint32 {
	tokens := c.SequenceLength
	for _, in := range c.AllStages() {
		tokens = min(tokens, in.SequenceLength)
	}
	return tokens
}

// Uncut returns the length up to which plans never cut a document: the shortest sequence of all stages. 0: some stage
// has packing concat, which cuts any.
func (c *Config) Uncut() uint32 {
	tokens := c.SequenceLength
	for _, in := range c.AllStages() {
		if tokens = min(tokens, in.SequenceLength); in.Packing == millrace.Concat {
			return 0
		}
	}
	return tokens
}

// PieceTokens returns the tokens of a piece if the ordinals of a source are pieces of documents: the longest sequence
// of all stages. 0: ordinals are whole documents.
//
// byDefault: the file does not say so. With `shuffle: global`, sources of tokens are read in pieces then, because their
// files have the lengths of documents and give a piece alone.
func (c *Config) PieceTokens(s *Source) (tokens uint32, byDefault bool) {
	how := s.LongDocuments
	if how == "" {
		how = c.LongDocuments
	}
	byDefault = how == "" && !c.IsEarlier && c.Shuffle == millrace.Global && s.Format != "" &&
		!s.Format.HoldsText()
	if how != ShuffledPieces && !byDefault {
		return 0, false
	}
	for _, in := range c.AllStages() {
		tokens = max(tokens, in.SequenceLength)
	}
	return tokens, byDefault
}

// Earlier returns the configuration with the defaults of runs that began with a planner of version 2 or lower.
func (c *Config) Earlier() *Config {
	out := *c
	out.IsEarlier = true
	return &out
}

// StageFilterSets returns the different sets of the stages' filters in order. It also returns for every stage the
// number of its set, from 1, or 0 without filters. Loaders answer for a set by the bit of that number.
func (c *Config) StageFilterSets() (sets []StageFilters, of []int) {
	for _, s := range c.AllStages() {
		at := 0
		if len(s.Filters) > 0 {
			if at = 1 + slices.IndexFunc(sets, func(x StageFilters) bool {
				return slices.Equal(x,
					s.Filters)
			}); at == 0 {
				sets = append(sets, s.Filters)
				at = len(sets)
			}
		}
		of = append(of, at)
	}
	return sets, of
}

// Shape returns the settings that decide the bytes of the first stage's microbatches, apart from their segments.
func (c *Config) Shape() millrace.Shape {
	return millrace.Shape{
		SequenceLength: c.SequenceLength,
		MicroBatch:     c.MicroBatchSize,
		Layout:         c.Layout,
		TokenDtype:     c.TokenDtype,
		CapTokens:      uint32(c.capTokens(&c.AllStages()[0])),
		CP:             c.Parallelism.CP,
		Local:          c.CPLocal > 0 && c.Parallelism.CP > 1,
	}
}

// Shapes returns the settings that decide the bytes of each stage's microbatches, apart from their segments.
func (c *Config) Shapes() []millrace.Shape {
	var out []millrace.Shape
	for _, in := range c.AllStages() {
		shape := c.Shape()
		shape.SequenceLength, shape.MicroBatch, shape.CapTokens = in.SequenceLength, in.MicroBatchSize, uint32(
			c.capTokens(&in),
		)
		out = append(out, shape)
		for _, one := range c.rows(in) {
			shape.SequenceLength, shape.MicroBatch = one.SequenceLength, one.MicroBatchSize
			shape.CapTokens = uint32(c.capTokens(&one))
			out = append(out, shape)
		}
	}
	return out
}

// rows returns a stage with the rows of each step that it may have with packing bucketed, under either rule: a run that
// continues from a state may have the one that the file does not name.
func (c *Config) rows(in Stage) (out []Stage) {
	if in.Packing != millrace.Bucketed {
		return nil
	}
	for _, rule := range []bucket.Rule{bucket.Constant, bucket.Tokens} {
		for _, b := range bucket.Shapes(rule, in.SequenceLength/c.PadMultiple) {
			for times := range b.Times {
				one := in
				one.SequenceLength, one.MicroBatchSize = b.Length*c.PadMultiple, in.MicroBatchSize*(times+1)
				out = append(out, one)
			}
		}
	}
	return out
}

// TokenRows reports whether steps of packing bucketed have more rows if these are shorter.
func (c *Config) TokenRows() bool {
	return c.BucketRows == bucket.Tokens || c.BucketRows == "" && !c.IsEarlier
}

// capTokens returns a stage's micro_batch_size * sequence_length * cap_slack, rounded down.
func (c *Config) capTokens(in *Stage) uint64 {
	num, den := c.CapSlack.Fraction()
	return value.MulDiv(uint64(in.MicroBatchSize)*uint64(in.SequenceLength), num, den)
}

// StepTokens returns the places for tokens in the largest step of the run.
func (c *Config) StepTokens() uint64 {
	most := uint64(0)
	for _, in := range c.AllStages() {
		most = max(most, uint64(in.GlobalBatchSize)*uint64(in.SequenceLength))
	}
	return most
}

// Served returns the number of ranks that take this stream, of a run with the given number of ranks.
func (c *Config) Served(ranks int) int {
	if c.Ranks == 0 {
		return ranks
	}
	return min(ranks, int(c.Ranks))
}

// Topology arranges the ranks of the run that take this stream. If the ranks do not divide, the error names numbers
// that do; it wraps millrace.ErrInvalid.
func (c *Config) Topology(ranks int) (millrace.Topology, error) {
	ranks = c.Served(ranks)
	t := millrace.Topology{
		Ranks: ranks,
		TP:    int(c.Parallelism.TP),
		CP:    int(c.Parallelism.CP),
		PP:    int(c.Parallelism.PP),
	}
	if err := t.Validate(); err != nil {
		return t, c.ErrorAt("parallelism", err.Error(), "give another number of ranks")
	}
	if path, msg, cure, ok := c.divides(t.DP(), fmt.Sprintf(" * %d data-parallel ranks", t.DP())); !ok {
		return t, c.ErrorAt(path, msg, fmt.Sprintf("with %d ranks and this micro_batch_size, %s", ranks, cure))
	}
	_, err := c.group(t)
	return t, err
}

// Reshaped returns the configuration with another topology. The error says why the run cannot have it; it wraps
// millrace.ErrInvalid.
func (c *Config) Reshaped(t millrace.Topology) (*Config, error) {
	other := *c
	other.Parallelism = Parallelism{TP: uint32(t.TP), CP: uint32(t.CP), PP: uint32(t.PP)}
	if chunks := 2 * t.CP; t.CP > 1 && int(c.PadMultiple)%chunks != 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "cp %d needs documents padded to a multiple of %d tokens, "+
			"and pad_multiple of the run is %d: choose a cp that divides it", t.CP, chunks, c.PadMultiple)
	}
	_, err := other.Topology(t.Ranks)
	return &other, err
}

// WithAxes returns the configuration with other axes of parallelism in all streams. An axis of 0 is as in the file.
func (c *Config) WithAxes(tp, cp, pp uint32) *Config {
	out := *c
	p := c.Parallelism
	out.Parallelism = Parallelism{TP: cmp.Or(tp, p.TP), CP: cmp.Or(cp, p.CP), PP: cmp.Or(pp, p.PP)}
	out.Streams = slices.Clone(c.Streams)
	for i := range out.Streams {
		out.Streams[i].Config = out.Streams[i].Config.WithAxes(tp, cp, pp)
	}
	return &out
}

// group returns the number of data-parallel ranks that are balanced among themselves, 0 for all. An error names the
// key.
func (c *Config) group(t millrace.Topology) (int, error) {
	if c.Distribute == nil || c.Distribute.Group == 0 {
		return 0, nil
	}
	group, unit := int(c.Distribute.Group), 1
	if c.Distribute.Over == overWorld {
		unit = t.TP * t.CP
	}
	if group%unit != 0 || t.DP()%max(group/unit, 1) != 0 {
		return 0, c.ErrorAt(
			"distribute.group",
			fmt.Sprintf(
				"%d data-parallel ranks do not divide into groups of %d %s ranks", t.DP(), group, c.Distribute.Over,
			),
			fmt.Sprintf("write %d times a divisor of %d", unit, t.DP()),
		)
	}
	return group / unit, nil
}

// Group returns the number of data-parallel ranks that are balanced among themselves, 0 for all. The topology must come
// from Topology.
func (c *Config) Group(t millrace.Topology) int {
	n, _ := c.group(t) // Topology has refused ranks that do not divide
	return n
}

// divides returns the place, the message and the cure of the first batch size that does not divide into whole
// microbatches of dp ranks. It returns ok if all do. The stages must be valid otherwise.
func (c *Config) divides(dp int, by string) (path, msg, cure string, ok bool) {
	for i, in := range c.AllStages() {
		unit := uint64(in.MicroBatchSize) * uint64(dp)
		for step, size := range in.RampupBatchSize.Ramp().Sizes(in.GlobalBatchSize) {
			if uint64(size)%unit == 0 {
				continue
			}
			path, cure := stageKey(i, "global_batch_size"), fmt.Sprintf("write a multiple of %d", unit)
			if unit <= math.MaxUint32 {
				cure += ": " + multiples(size, uint32(unit))
			}
			if size != in.GlobalBatchSize {
				path, cure = stageKey(
					i, "rampup_batch_size",
				), fmt.Sprintf(
					"let start and increment be multiples of %d", unit,
				)
			}
			of := ""
			if len(c.Stages) > 0 || in.RampupBatchSize != nil {
				of = " of " + in.when(step)
			}
			return path, fmt.Sprintf(
				"global_batch_size %d%s does not divide by micro_batch_size %d%s", size, of, in.MicroBatchSize, by,
			), cure, false
		}
	}
	return "", "", "", true
}

// stageKey returns the path of a stage's key. The keys of the first stage are at the top level.
func stageKey(stage int, key string) string {
	if stage == 0 {
		return key
	}
	return fmt.Sprintf("stages[%d].%s", stage-1, key)
}

// multiples names the multiples of unit next to n.
func multiples(n, unit uint32) string {
	below, above := uint64(n)/uint64(unit)*uint64(unit), (uint64(n)/uint64(unit)+1)*uint64(unit)
	if below == 0 {
		return fmt.Sprint(above)
	}
	return fmt.Sprintf("%d or %d", below, above)
}

// ErrorAt returns an error at the place of a key, such as sources.web.path. It is for mistakes that only the caller can
// find: a missing file, a vocabulary that cannot be read. It wraps millrace.ErrInvalid.
func (c *Config) ErrorAt(path, msg, cure string) error {
	if c.doc == nil {
		return &tree.Error{File: c.File, Line: 1, Column: 1, Msg: path + ": " + msg, Cure: cure}
	}
	at, _ := c.doc.Place(path)
	return c.doc.Fail(at.Line, at.Column, at.Width, msg, cure)
}

// FailureAt is ErrorAt for a cause that may be no mistake of the user, such as a disk that is full. It wraps the cause,
// too.
func (c *Config) FailureAt(path, msg string, cause error, cure string) error {
	err := c.ErrorAt(path, msg, cure)
	var at *tree.Error
	if errors.As(err, &at) {
		at.Cause = cause
	}
	return err
}
