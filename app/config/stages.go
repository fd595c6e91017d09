package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
)

// Stage is a later part of the run with its own batches. A key that is left out has the value of the stage before. The
// first stage is described by the top level of the file.
type Stage struct {
	// FromStep is the step at which the stage begins. Stages count in steps or in tokens, not in both.
	FromStep *uint64 `yaml:"from_step" jsonschema:"minimum=1,maximum=9007199254740991"`
	// FromTokens is the number of document tokens placed before the step at which the stage begins.
	FromTokens *uint64 `yaml:"from_tokens" jsonschema:"minimum=1,maximum=9007199254740991"`
	// SequenceLength is the number of tokens in one sequence.
	SequenceLength uint32 `yaml:"sequence_length" jsonschema:"minimum=1,maximum=16777216"`
	// GlobalBatchSize is the number of sequences in one step, over all ranks.
	GlobalBatchSize uint32 `yaml:"global_batch_size" jsonschema:"minimum=1,maximum=1048576"`
	// RampupBatchSize is the growth of the batch to global_batch_size in this stage. A stage without it starts with its
	// full batch.
	RampupBatchSize *Rampup `yaml:"rampup_batch_size"`
	// MicroBatchSize is the number of sequences in one microbatch of one data-parallel rank.
	MicroBatchSize uint32 `yaml:"micro_batch_size" jsonschema:"minimum=1,maximum=1048576" resume:"place"`
	// Packing is the way in which documents become sequences.
	Packing millrace.Packing `yaml:"packing"`
	// Filters are further expressions of this stage, by source. A document that begins in the stage has to pass its
	// source's own filter and this one. `{}` ends the filters of the stage before.
	Filters StageFilters `yaml:"filters"`
}

// StageFilters are the filters of one stage, sorted by the source's name, or nil if the stage has none of its own.
type StageFilters []StageFilter

// StageFilter is the filter of one source in one stage.
type StageFilter struct {
	Source string
	Filter string
}

// Of returns the filter of a source, or nothing.
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

// Rampup lets a stage begin with small batches: the three numbers of Megatron-LM's --rampup-batch-size.
type Rampup struct {
	// Start is the number of sequences in the stage's first step.
	Start uint32 `yaml:"start" jsonschema:"required,minimum=1,maximum=1048576"`
	// Increment is the number of sequences that are added at a time. It divides the difference of start and
	// global_batch_size.
	Increment uint32 `yaml:"increment" jsonschema:"required,minimum=1,maximum=1048576"`
	// Samples is the number of sequences after which the batch has its full size. It grows at equal distances until
	// then.
	Samples uint64 `yaml:"samples" jsonschema:"required,minimum=1,maximum=9007199254740991"`
}

// Ramp returns the rule; nil is no ramp.
func (r *Rampup) Ramp() millrace.Rampup {
	if r == nil {
		return millrace.Rampup{}
	}
	return millrace.Rampup{Start: r.Start, Increment: r.Increment, Samples: r.Samples}
}

// From returns the beginning of the stage, and whether it counts tokens instead of steps.
func (s *Stage) From() (at uint64, tokens bool) {
	switch {
	case s.FromTokens != nil:
		return *s.FromTokens, true
	case s.FromStep != nil:
		return *s.FromStep, false
	}
	return 0, false
}

// when names the step that many steps after the stage's first one: `step 12`, `the step after 5000 tokens`.
func (s *Stage) when(step uint64) string {
	from, tokens := s.From()
	if tokens {
		return fmt.Sprintf("the step after %d tokens", from)
	}
	return fmt.Sprintf("step %d", from+step)
}

// identity writes the settings of a stage that decide content in one line: `step 1000: 128 x 8192 best_fit, ramp 32 by
// 32 over 1000`.
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

// Microbatches returns the number of microbatches of a step on each data-parallel rank, after the stage's ramp.
func (s *Stage) Microbatches(t millrace.Topology) uint32 {
	return s.GlobalBatchSize / (s.MicroBatchSize * uint32(t.DP()))
}
