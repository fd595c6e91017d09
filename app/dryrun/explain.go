package dryrun

import (
	"math/bits"
	"millrace"

	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
)

// Explained is the cost of a step with its causes. Scripts rely on its JSON names: they are never removed. Costs are
// predictions of the mixture file's model or cost.
type Explained struct {
	Step           uint64     `json:"step"`
	Stage          int        `json:"stage"`
	Incomplete     bool       `json:"incomplete"` // the last step, with sequences that hold nothing
	GlobalBatch    int        `json:"global_batch_size"`
	SequenceLength uint32     `json:"sequence_length"`
	Microbatches   uint32     `json:"microbatches"` // of each rank
	Content        string     `json:"content_digest"`
	Segments       int        `json:"segments"`
	Tokens         uint64     `json:"tokens"`     // of documents
	Fill           float64    `json:"fill"`       // tokens, of all places of the step
	Stranded       uint64     `json:"stranded"`   // places that hold nothing
	Rounding       uint64     `json:"rounding"`   // places lost to pad_multiple
	Largest        uint32     `json:"largest"`    // places of the fullest microbatch that are taken
	Cap            uint32     `json:"cap"`        // most places of a microbatch
	Balance        string     `json:"balance"`    // in force
	Overhead       Objectives `json:"overhead"`   // over the mean
	Bound          Objectives `json:"bound"`      // of the overhead: no placement of these documents has less
	Gap            Objectives `json:"gap"`        // from the bound: the most that another placement saves
	Context        float64    `json:"context"`    // max/mean cost of the context-parallel ranks that share a microbatch
	Slices         int        `json:"slices"`     // of documents that are split over data-parallel ranks
	MovedMean      float64    `json:"moved_mean"` // mean steps by which window and carry moved segments
	MovedMost      int        `json:"moved_most"`
	Mixture        []Mixed    `json:"mixture"`
	Ranks          []float64  `json:"ranks"` // cost of each data-parallel rank, of the mean rank's
	// Costs are by data-parallel rank and microbatch, of the mean microbatch's.
	Costs [][]float64 `json:"costs"`
}

// Objectives are fractions, by the way in which ranks wait for each other.
type Objectives struct {
	FSDP float64 `json:"fsdp"` // the dearest rank of every column of microbatches
	DP   float64 `json:"dp"`   // the dearest rank's sum
	PP   float64 `json:"pp"`   // the same, and the pipeline's bubble around its dearest microbatch
}

// Of returns the fraction for a balance. Without a balance, ranks are assumed to wait as with fsdp.
func (o Objectives) Of(balance string) float64 {
	switch balance {
	case string(millrace.BalanceDP):
		return o.DP
	case string(millrace.BalancePP):
		return o.PP
	}
	return o.FSDP
}

// Mixed is a source's share of all steps so far, in the unit of the mixture.
type Mixed struct {
	Source string  `json:"source"`
	Share  float64 `json:"share"`  // target of the step
	Target uint64  `json:"target"` // of all steps so far
	Placed uint64  `json:"placed"`
	Off    int64   `json:"off"`  // placed - target
	Here   uint64  `json:"here"` // placed in this step
}

func objectives(o cost.Overhead) Objectives {
	return Objectives{FSDP: float64(o.FSDP) / million, DP: float64(o.DP) / million, PP: float64(o.PP) / million}
}

const million = 1_000_000

// prefix is the target and the placed amount of every source so far.
type prefix struct {
	unit    millrace.Unit
	targets []mixing.Target
	placed  []int64
}

func newPrefix(spec *planner.Spec) *prefix {
	return &prefix{
		unit:    spec.Unit,
		targets: make([]mixing.Target, len(spec.Sources)),
		placed:  make([]int64, len(spec.Sources)),
	}
}

func (p *prefix) size(s *planner.SourceStats) int64 {
	if p.unit == millrace.UnitSamples {
		return int64(s.Samples)
	}
	return int64(s.Tokens)
}

// add counts a step. Its targets are those at its beginning.
func (p *prefix) add(sel *planner.Selection) {
	all := int64(0)
	for i := range sel.Stats.Sources {
		size := p.size(&sel.Stats.Sources[i])
		all += size
		p.placed[i] += size
	}
	for i := range sel.Stats.Sources {
		p.targets[i] = p.targets[i].Plus(sel.Stats.Sources[i].Share, all)
	}
}

// Explain returns the cost of the newest step with its causes.
func (w *Walk) Explain() *Explained {
	s, place := w.last, w.strategy.Options()
	weighing := place.Weighing(s.Selection, w.topology)
	weight := cost.Weigh(s.Plan, weighing)
	places := uint64(s.GlobalBatch) * uint64(s.SequenceLength)
	e := &Explained{
		Step:           uint64(s.Step),
		Stage:          s.Stage,
		Incomplete:     s.Incomplete,
		GlobalBatch:    s.GlobalBatch,
		SequenceLength: s.SequenceLength,
		Microbatches:   s.Plan.Microbatches,
		Content:        s.Content.String(),
		Segments:       len(s.Segments),
		Tokens:         s.Stats.Tokens,
		Fill:           float64(s.Stats.Tokens) / float64(places),
		Stranded: places - min(
			s.Stats.Padded, places,
		),
		Rounding: s.Stats.Padded - s.Stats.Tokens,
		Largest:  weight.Fullest,
		Cap:      weighing.Cap,
		Balance: string(
			place.Balance,
		),
		Overhead:  objectives(weight.Over),
		Bound:     objectives(weight.Bound),
		Gap:       objectives(weight.Gap()),
		Slices:    weight.Slices,
		MovedMost: s.Stats.Most,
	}
	if len(s.Segments) > 0 {
		e.MovedMean = float64(s.Stats.Moved) / float64(len(s.Segments))
	}
	context, _ := cost.WeighContext(s.Plan, place.Cost, w.topology.CP, s.PadMultiple)
	e.Context = 1 + float64(context)/million
	for i, at := range s.Stats.Sources {
		target, placed := w.prefix.targets[i], w.prefix.placed[i]
		e.Mixture = append(
			e.Mixture,
			Mixed{Source: w.opened.Sources[i].Name(), Share: float64(at.Share) / mixing.One, Target: nearest(target),
				Placed: uint64(
					placed,
				), Off: placed - int64(nearest(target)), Here: uint64(w.prefix.size(&s.Stats.Sources[i]))},
		)
	}
	for r, cost := range weight.Ranks {
		e.Ranks = append(e.Ranks, float64(cost)/million)
		var of []float64
		for _, c := range weight.Micro[r*int(s.Plan.Microbatches) : (r+1)*int(s.Plan.Microbatches)] {
			of = append(of, float64(c)/million)
		}
		e.Costs = append(e.Costs, of)
	}
	return e
}

func nearest(t mixing.Target) uint64 { return uint64(t.Whole) + uint64(t.Parts)/(mixing.One/2) }

// Lengths counts the segments of the newest step by their length: slot i has those of 2^i to 2^(i+1)-1 tokens.
func (w *Walk) Lengths() (slots [32]uint64) {
	for i := range w.last.Segments {
		slots[bits.Len32(w.last.Segments[i].Length)-1]++
	}
	return slots
}
