package planner

import (
	"cmp"
	"math/bits"
	"slices"

	"millrace"
)

// Selection is what a step holds: equal under every topology, and immutable.
type Selection struct {
	Step     millrace.Step
	Segments []millrace.Segment // in draw order
	Bin      []uint32           // of each segment, from 0
	NumBins  int                // bins that hold something; in every step but an incomplete last one these are all

	GlobalBatch    int // bins in the step
	SequenceLength uint32
	MicroBatch     uint32 // rows of a microbatch where the stage says; 0: what PlaceOptions say
	PadMultiple    uint32
	Stage          int // number of the step's stage, from 0

	Last       bool // no step follows
	Incomplete bool // the last step, with bins that hold nothing

	Content millrace.Digest
	Rejects []Rejected // consumed in this step, or with the first step of a window in all of it, by source and ordinal
	After   State
	Legs    []Leg // with the last step of a window: what Differ.Diff needs beside the states
	Stats   Stats
}

// Rejected is a document that was refused with a reason, and counts nothing.
type Rejected struct {
	Source uint32
	millrace.SampleMeta
}

// Stats counts what a step holds.
type Stats struct {
	Tokens  uint64 // of documents
	Padded  uint64 // with every segment rounded up to the pad multiple
	FillPPM uint64 // Padded, in millionths of GlobalBatch × SequenceLength
	Moved   uint64 // steps between where segments are and where they were drawn, over all segments; carried ones count from the window that drew them
	Most    int    // the largest of these
	Drawn   int    // with the first step of a window: segments that it was packed from, carried ones among them
	Packs   int    // likewise: times the packer ran
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

// reject lists the documents that counted nothing.
func (sel *Selection) reject(events []passed) {
	for i := range events {
		p := &events[i]
		switch {
		case p.left:
		case p.meta.Reject == "" && p.meta.Lengths.Tokens > 0: // it was passed over all the same
			sel.Stats.Sources[p.source].Refused++
		case p.meta.Reject == "":
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

func (sel *Selection) count() {
	st, pad := &sel.Stats, uint64(sel.PadMultiple)
	for i := range sel.Segments {
		seg := &sel.Segments[i]
		st.Tokens += uint64(seg.Length)
		st.Padded += (uint64(seg.Length) + pad - 1) / pad * pad
		st.Sources[seg.Source].Tokens += uint64(seg.Length)
		if seg.Offset == 0 {
			st.Sources[seg.Source].Samples++
		}
	}
	hi, lo := bits.Mul64(st.Padded, 1_000_000)
	st.FillPPM, _ = bits.Div64(hi, lo, uint64(sel.GlobalBatch)*uint64(sel.SequenceLength)) // at most a million
}

// Reason is why a run ended.
type Reason string

// The reasons.
const (
	SourcesThrough Reason = "sources" // no unfinished source can still receive weight
	SourceStopped  Reason = "stop"    // a source whose on_exhausted is stop ended
	StepsReached   Reason = "steps"
	TokensReached  Reason = "tokens"
)

// OutcomeKind is what Advance came to.
type OutcomeKind uint8

// What Advance comes to.
const (
	Sealed   OutcomeKind = iota // a selection
	Waiting                     // a fact is missing: call again when it is there
	Finished                    // no step follows
)

// Outcome says what Advance came to.
type Outcome struct {
	Kind    OutcomeKind
	Source  int              // Waiting: the source whose fact is missing; SourceStopped: that source
	Ordinal millrace.Ordinal // Waiting: the ordinal needed
	Reason  Reason           // Finished, or Sealed with Last: why the run ends
	Unread  []string         // likewise, SourcesThrough and SourceStopped: sources that still had documents
}
