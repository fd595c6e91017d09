package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"millrace"
	"millrace/internal/app/config/decode"
	"millrace/internal/app/config/tree"
	"millrace/internal/app/config/value"
)

// Stage is a later part of the run, with batches of its own. What it leaves out is as in the stage before; the first stage is what the
// file says outside of stages.
type Stage struct {
	// FromStep is the step at which the stage begins. Stages count in steps or in tokens, not in both.
	FromStep *uint64 `yaml:"from_step" jsonschema:"minimum=1,maximum=9007199254740991"`
	// FromTokens is the number of document tokens placed before the step at which the stage begins.
	FromTokens *uint64 `yaml:"from_tokens" jsonschema:"minimum=1,maximum=9007199254740991"`
	// SequenceLength is the number of tokens in one sequence.
	SequenceLength uint32 `yaml:"sequence_length" jsonschema:"minimum=1,maximum=16777216"`
	// GlobalBatchSize is the number of sequences in one step, over all ranks.
	GlobalBatchSize uint32 `yaml:"global_batch_size" jsonschema:"minimum=1,maximum=1048576"`
	// RampupBatchSize is how the batch grows to global_batch_size. It is the stage's own; a stage that has none is not ramped.
	RampupBatchSize *Rampup `yaml:"rampup_batch_size"`
	// MicroBatchSize is the number of sequences in one microbatch of one data-parallel rank.
	MicroBatchSize uint32 `yaml:"micro_batch_size" jsonschema:"minimum=1,maximum=1048576"`
	// Packing is how documents become sequences.
	Packing millrace.Packing `yaml:"packing" jsonschema:"enum=best_fit,enum=pad,enum=concat,enum=bucketed"`
	// Filters are further expressions of this stage, by source, beside each source's own filter: a document that begins in the stage has to
	// pass both. `{}` ends those of the stage before.
	Filters StageFilters `yaml:"filters"`
}

// StageFilters are the filters of one stage, sorted by the source's name; nil where the stage says nothing.
type StageFilters []StageFilter

// StageFilter is the filter of one source in one stage.
type StageFilter struct {
	Source string
	Filter string
}

// Of returns the filter of a source, empty where there is none.
func (f StageFilters) Of(source string) string {
	for _, x := range f {
		if x.Source == source {
			return x.Filter
		}
	}
	return ""
}

// DecodeNode reads filters by source.
func (f *StageFilters) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping from sources to filters", "write it as `{web: 'quality > 0.5'}`")
		return
	}
	*f = make(StageFilters, len(n.Entries))
	for i, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		(*f)[i].Source = e.Key.Text
		d.Decode(at, e.Value, reflect.ValueOf(&(*f)[i].Filter).Elem(), decode.Rules{})
	}
	slices.SortFunc(*f, func(a, b StageFilter) int { return strings.Compare(a.Source, b.Source) })
}

// StageFilterSets returns the different sets of filters that stages have, in order, and of every stage the number of its own, from 1, or 0 where it
// has none: the bit by which loaders answer for it.
func (c *Config) StageFilterSets() (sets []StageFilters, of []int) {
	for _, s := range c.AllStages() {
		at := 0
		if len(s.Filters) > 0 {
			if at = 1 + slices.IndexFunc(sets, func(x StageFilters) bool { return slices.Equal(x, s.Filters) }); at == 0 {
				sets = append(sets, s.Filters)
				at = len(sets)
			}
		}
		of = append(of, at)
	}
	return sets, of
}

// Rampup lets a stage begin with small batches: the three numbers of Megatron-LM's --rampup-batch-size.
type Rampup struct {
	// Start is the number of sequences in the stage's first step.
	Start uint32 `yaml:"start" jsonschema:"required,minimum=1,maximum=1048576"`
	// Increment is how many sequences are added at a time. It divides what is between start and global_batch_size.
	Increment uint32 `yaml:"increment" jsonschema:"required,minimum=1,maximum=1048576"`
	// Samples is the number of sequences after which the batch has its full size; it grows at equal distances until then.
	Samples uint64 `yaml:"samples" jsonschema:"required,minimum=1,maximum=9007199254740991"`
}

// Ramp returns the rule; nil is no ramp.
func (r *Rampup) Ramp() millrace.Rampup {
	if r == nil {
		return millrace.Rampup{}
	}
	return millrace.Rampup{Start: r.Start, Increment: r.Increment, Samples: r.Samples}
}

// AllStages returns the stages of the run in order, with every value filled in; the first begins at step 0.
func (c *Config) AllStages() []Stage {
	first := Stage{SequenceLength: c.SequenceLength, GlobalBatchSize: c.GlobalBatchSize, RampupBatchSize: c.RampupBatchSize,
		MicroBatchSize: c.MicroBatchSize, Packing: c.Packing}
	return append([]Stage{first}, c.Stages...)
}

// From returns where the stage begins and whether that counts tokens instead of steps.
func (s *Stage) From() (at uint64, tokens bool) {
	switch {
	case s.FromTokens != nil:
		return *s.FromTokens, true
	case s.FromStep != nil:
		return *s.FromStep, false
	}
	return 0, false
}

// when names the steps from one of the stage on: `step 12`, `the step after 5000 tokens`.
func (s *Stage) when(step uint64) string {
	from, tokens := s.From()
	if tokens {
		return fmt.Sprintf("the step after %d tokens", from)
	}
	return fmt.Sprintf("step %d", from+step)
}

// identity writes what of a stage decides about content in one line: `step 1000: 128 x 8192 best_fit, ramp 32 by 32 over 1000`.
func (s *Stage) identity() string {
	from, tokens := s.From()
	unit := "step"
	if tokens {
		unit = "tokens"
	}
	text := fmt.Sprintf("%s %d: %d x %d %s", unit, from, s.GlobalBatchSize, s.SequenceLength, s.Packing)
	if r := s.RampupBatchSize; r != nil {
		text += ", ramp " + r.identity()
	}
	for _, f := range s.Filters {
		text += fmt.Sprintf(", %s filtered by %s", f.Source, f.Filter)
	}
	return text
}

func (r *Rampup) identity() string {
	return fmt.Sprintf("%d by %d over %d", r.Start, r.Increment, r.Samples)
}

// Shapes returns what decides the bytes of each stage's microbatches apart from their segments, the first stage's first.
func (c *Config) Shapes() []millrace.Shape {
	var out []millrace.Shape
	for _, in := range c.AllStages() {
		shape := c.Shape()
		shape.SequenceLength, shape.MicroBatch, shape.CapTokens = in.SequenceLength, in.MicroBatchSize, uint32(c.capTokens(&in))
		out = append(out, shape)
		for n := 0; in.Packing == millrace.Bucketed && n < millrace.MostHalvings && in.SequenceLength%2 == 0 && in.SequenceLength/2%c.PadMultiple == 0; n++ {
			in.SequenceLength /= 2 // as the planner does
			shape.SequenceLength, shape.CapTokens = in.SequenceLength, uint32(c.capTokens(&in))
			out = append(out, shape)
		}
	}
	return out
}

// capTokens is a stage's micro_batch_size * sequence_length * cap_slack, rounded down, exactly.
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

// divides returns the place, the message and the cure of the first batch size of the run that does not divide into whole microbatches
// of a number of data-parallel ranks; ok tells that all do. The stages are otherwise valid.
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
				path, cure = stageKey(i, "rampup_batch_size"), fmt.Sprintf("let start and increment be multiples of %d", unit)
			}
			of := ""
			if len(c.Stages) > 0 || in.RampupBatchSize != nil {
				of = " of " + in.when(step)
			}
			return path, fmt.Sprintf("global_batch_size %d%s does not divide by micro_batch_size %d%s", size, of, in.MicroBatchSize, by), cure, false
		}
	}
	return "", "", "", true
}

// stageKey is the path of a stage's key; the first stage's stand at the top.
func stageKey(stage int, key string) string {
	if stage == 0 {
		return key
	}
	return fmt.Sprintf("stages[%d].%s", stage-1, key)
}
