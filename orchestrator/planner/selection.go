package planner

import (
	"cmp"
	"math/bits"
	"slices"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

// Selection is the content of a step. It is equal under every topology, and immutable.
type Selection struct {
	Step     millrace.Step
	Segments []millrace.Segment // in draw order
	Bin      []uint32           // of each segment, from 0
	NumBins  int                // bins with segments; fewer than GlobalBatch only in an incomplete last step

	GlobalBatch    int // bins in the step
	SequenceLength uint32
	MicroBatch     uint32 // rows of a microbatch, if the stage sets them; 0: PlaceOptions decide
	Times          uint32 // with token rows: multiplies the rows of both batches of the stage; 0 means 1
	PadMultiple    uint32
	Stage          int // number of the step's stage, from 0

	Counted    bool // Untrained of each segment is known (millrace.Plan.Counted)
	Last       bool // no step follows
	Incomplete bool // the last step, with empty bins

	Content millrace.Digest
	// documents rejected in this step, by source and ordinal; the first step of a window has those of all its steps
	Rejects []Rejected
	After   progress.State
	Legs    []progress.Leg // with the last step of a window: the last argument of Differ.Diff
	Stats   Stats
}

// Rejected is a document that could not be decoded. It counts nothing.
type Rejected struct {
	Source uint32
	millrace.SampleMeta
}

// Stats counts a step's content.
type Stats struct {
	Tokens  uint64 // of documents
	Padded  uint64 // with every segment rounded up to the pad multiple
	FillPPM uint64 // Padded, in millionths of GlobalBatch × SequenceLength
	// steps between the draw and the placement of each segment, summed; carried segments count from the
	// window that drew them
	Moved   uint64
	Most    int // the largest of these distances
	Drawn   int // with the first step of a window: segments that it was packed from, carried ones included
	Packs   int // with the first step of a window: runs of the packer
	Sources []SourceStats
}

// SourceStats is a source's part of Stats.
type SourceStats struct {
	Tokens  uint64
	Samples uint64
	Share   uint32 // target, in parts of mixing.One, at the start of the step
	Rejects int
	Empty   int // documents without tokens that were not rejected
	Refused int // documents that filters refused
}

// reject counts the documents that were passed over, and lists those that could not be decoded.
func (sel *Selection) reject(events []passed) {
	for i := range events {
		p := &events[i]
		switch {
		case p.left, p.drawn:
		case !p.meta.Rejected && p.meta.Lengths.Tokens > 0: // it has tokens, so a filter refused it
			sel.Stats.Sources[p.source].Refused++
		case !p.meta.Rejected:
			sel.Stats.Sources[p.source].Empty++
		default:
			sel.Stats.Sources[p.source].Rejects++
			sel.Rejects = append(sel.Rejects, Rejected{Source: uint32(p.source), SampleMeta: p.meta})
		}
	}
	slices.SortFunc(sel.Rejects, func(a, b Rejected) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Ordinal, b.Ordinal))
	})
}

func (s *Stats) move(steps int) { s.Moved, s.Most = s.Moved+uint64(steps), max(s.Most, steps) }

// countTokens fills in the counts that follow from the segments.
func (sel *Selection) countTokens(spec *Spec) {
	st, pad := &sel.Stats, uint64(sel.PadMultiple)
	for i := range sel.Segments {
		seg := &sel.Segments[i]
		st.Tokens += uint64(seg.Length)
		st.Padded += (uint64(seg.Length) + pad - 1) / pad * pad
		st.Sources[seg.Source].Tokens += uint64(seg.Length)
		if spec.Sources[seg.Source].begins(seg.Offset) {
			st.Sources[seg.Source].Samples++
		}
	}
	hi, lo := bits.Mul64(st.Padded, 1_000_000)
	st.FillPPM, _ = bits.Div64(hi, lo, uint64(sel.GlobalBatch)*uint64(sel.SequenceLength)) // at most a million
}
