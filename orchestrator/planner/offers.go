package planner

import (
	"fmt"

	"millrace"
)

// Availability is what is known of an ordinal.
type Availability uint8

// What is known.
const (
	Pending Availability = iota // nothing yet
	Ready                       // its metadata
	Ended                       // the source has neither it nor any later one
)

// Offers is where facts come from: what loaders have offered, in ordinal order. Facts never change, and those from a source's
// floor in the last State on must stay until a later State moves past them: the draws that a step cut off are made again.
type Offers interface {
	Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, Availability)
}

// Seek points is what Offers implement besides where a source's order needs seek points: the newest seek point at or before an ordinal, the zero
// SeekPoint if there is none.
type SeekPoints interface {
	SeekPoint(source int, at millrace.Ordinal) millrace.SeekPoint
}

// seek point brings the seek points up to the floors, as far as offers know them.
func (s *State) seekPoint(o Offers) {
	known, ok := o.(SeekPoints)
	if !ok {
		return
	}
	for i := range s.Sources {
		src := &s.Sources[i]
		floor := s.Floor(i)
		if a := known.SeekPoint(i, floor); a.Ordinal >= src.SeekPoint.Ordinal && a.Ordinal <= floor && a != (millrace.SeekPoint{}) {
			src.SeekPoint = a
		}
	}
}

// ExhaustedError says that a source ended that must not: on_exhausted is error, or repeat and it holds nothing.
type ExhaustedError struct {
	Source  string
	Step    millrace.Step
	Empty   bool   // it ended or went round without a single token
	Filters string // that refuse its documents, where it is empty and has any
}

func (e *ExhaustedError) Error() string {
	if e.Empty && e.Filters != "" {
		return fmt.Sprintf("plan step %s: source %q holds no document with a token that its filters keep: %s; loosen them, or take the source out of the mixture", e.Step, e.Source, e.Filters)
	}
	if e.Empty {
		return fmt.Sprintf("plan step %s: source %q holds no document with a token; take it out of the mixture or check its path and filters", e.Step, e.Source)
	}
	return fmt.Sprintf("plan step %s: source %q is exhausted and its on_exhausted is error; say renormalize, repeat or stop to go on without it", e.Step, e.Source)
}

// Unwrap makes it an invalid mixture to whoever asks for the sentinel.
func (e *ExhaustedError) Unwrap() error { return millrace.ErrInvalid }

// heads knows the next document of every source, as far as the walk's cursors have come.
type heads struct {
	known []bool
	metas []millrace.SampleMeta // of those that are known
	// idle is, per source, the epoch in which the present run of documents without tokens began.
	idle    []millrace.Epoch
	idling  []bool
	skipped func(source int, meta millrace.SampleMeta)
}

func newHeads(sources int, skipped func(int, millrace.SampleMeta)) *heads {
	return &heads{
		known: make([]bool, sources), metas: make([]millrace.SampleMeta, sources),
		idle: make([]millrace.Epoch, sources), idling: make([]bool, sources), skipped: skipped,
	}
}

// resolve moves a source's cursor to its next document with tokens and remembers it. A source that went round a whole epoch
// without one is an error.
func (h *heads) resolve(w *walk, o Offers, source int) (Availability, error) {
	for !h.known[source] {
		at := &w.state.Sources[source]
		fact, a := o.Peek(source, at.Ordinal)
		if a != Ready {
			return a, nil
		}
		meta := &h.metas[source]
		*meta = fact
		meta.Ordinal = at.Ordinal
		// A document that has begun goes on, whatever a later stage says of it.
		refused := at.Offset == 0 && meta.Refused&(ownFilter|w.stage.Filters) != 0
		if meta.Reject == "" && meta.Lengths.Tokens > at.Offset && !refused {
			h.known[source], h.idling[source] = true, false
			break
		}
		if at.Offset > 0 {
			return a, millrace.Errorf(millrace.ErrMismatch, "plan step %s: source %q: document %s has %d tokens, of which %d are placed already; it is not the document it was",
				w.state.Step, w.spec.Sources[source].Name, at.Ordinal, meta.Lengths.Tokens, at.Offset)
		}
		if !h.idling[source] {
			h.idling[source], h.idle[source] = true, meta.Epoch
		} else if meta.Epoch > h.idle[source]+1 {
			return a, w.empty(source)
		}
		w.skip(source, meta)
		h.skipped(source, *meta)
	}
	return Ready, nil
}

// empty is the error of a source that gave nothing in a whole epoch.
func (w *walk) empty(source int) error {
	src := &w.spec.Sources[source]
	return &ExhaustedError{Source: src.Name, Step: w.state.Step, Empty: true, Filters: src.Filters}
}

// left returns the tokens of a source's resolved head that are not drawn yet.
func (h *heads) left(w *walk, source int) uint32 {
	return h.metas[source].Lengths.Tokens - w.state.Sources[source].Offset
}

// next makes seg, which is zero, the segment of at most so many tokens that a source's resolved head gives next.
func (h *heads) next(w *walk, source int, most uint32, seg *millrace.Segment) {
	meta, offset, left := &h.metas[source], w.state.Sources[source].Offset, h.left(w, source)
	seg.Source, seg.Ordinal, seg.Epoch, seg.ID = uint32(source), meta.Ordinal, meta.Epoch, meta.ID
	seg.Offset, seg.Length = offset, min(left, most)
	seg.More = seg.Length < left
	if offset == 0 {
		seg.Patches = meta.Lengths.Patches
	}
}

// take forgets a head whose document is through.
func (h *heads) take(seg *millrace.Segment) {
	if !seg.More {
		h.known[seg.Source] = false
	}
}
