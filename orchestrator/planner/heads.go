package planner

import (
	"errors"
	"fmt"

	"millrace"
)

// EmptyError says that the first step of a run has no document.
type EmptyError struct{ Step millrace.Step }

// Error says what to check.
func (e *EmptyError) Error() string {
	return fmt.Sprintf("plan step %s: no source that can receive weight holds a token; check the paths and the weights",
		e.Step)
}

// Unwrap returns the class of the error.
func (e *EmptyError) Unwrap() error { return millrace.ErrInvalid }

// FoundNothing reports whether an error of planning says that sources hold no document with a token.
func FoundNothing(err error) bool {
	var none *EmptyError
	var exhausted *ExhaustedError
	return errors.As(err, &none) || errors.As(err, &exhausted) && exhausted.Empty
}

// ExhaustedError reports a source that ended although it must not: on_exhausted is error, or it is repeat and the
// source is empty.
type ExhaustedError struct {
	Source  string
	Step    millrace.Step
	Empty   bool   // a whole epoch had no token
	Filters string // the source's filters, if Empty is set; empty: it has none
}

func (e *ExhaustedError) Error() string {
	if e.Empty && e.Filters != "" {
		return fmt.Sprintf("plan step %s: source %q holds no document with a token that its filters keep: %s; "+
			"loosen them, or take the source out of the mixture", e.Step, e.Source, e.Filters)
	}
	if e.Empty {
		return fmt.Sprintf("plan step %s: source %q holds no document with a token; "+
			"take it out of the mixture or check its path and filters", e.Step, e.Source)
	}
	return fmt.Sprintf("plan step %s: source %q is exhausted and its on_exhausted is error; "+
		"set renormalize, repeat or stop to go on without it", e.Step, e.Source)
}

// Unwrap marks it as an invalid mixture.
func (e *ExhaustedError) Unwrap() error { return millrace.ErrInvalid }

// heads holds the next document of every source, at the cursors of a replay.
type heads struct {
	known []bool
	metas []millrace.SampleMeta // of those that are known
	// idle is, per source, the epoch in which the present run of documents without tokens began.
	idle   []millrace.Epoch
	idling []bool
	onPass func(source int, meta millrace.SampleMeta)
}

// newHeads returns heads that call onPass for every document that is passed over.
func newHeads(sources int, onPass func(int, millrace.SampleMeta)) *heads {
	return &heads{
		known: make([]bool, sources), metas: make([]millrace.SampleMeta, sources),
		idle: make([]millrace.Epoch, sources), idling: make([]bool, sources), onPass: onPass,
	}
}

// resolve moves a source's cursor to its next document with tokens and keeps its metadata. A whole epoch without such a
// document is an error.
func (h *heads) resolve(r *replay, o Offers, source int) (Availability, error) {
	for !h.known[source] {
		at := &r.state.Sources[source]
		fact, a := o.Peek(source, at.Ordinal)
		if a != Ready {
			return a, nil
		}
		meta := &h.metas[source]
		*meta = fact
		meta.Ordinal = at.Ordinal
		// A document that has begun is drawn to its end, even if a later stage's filter refuses it.
		refused := at.Offset == 0 && meta.Refused&(ownFilter|r.stage.Filters) != 0
		fits := at.Offset == 0 || at.Offset > meta.Offset
		if fits && !meta.Rejected && h.rest(r, source) > 0 && !refused {
			h.known[source], h.idling[source] = true, false
			break
		}
		if at.Offset > 0 {
			return a, millrace.Errorf(
				millrace.ErrMismatch,
				"plan step %s: source %q: document %s has tokens %d to %d, and those below %d are placed already; "+
					"the document changed: restore the source files",
				r.state.Step,
				r.spec.Sources[source].Name,
				at.Ordinal,
				meta.Offset,
				r.spec.Sources[source].endOf(meta),
				at.Offset,
			)
		}
		if !h.idling[source] {
			h.idling[source], h.idle[source] = true, meta.Epoch
		} else if meta.Epoch > h.idle[source]+1 {
			return a, r.emptySource(source)
		}
		r.passOver(source, meta)
		h.onPass(source, *meta)
	}
	return Ready, nil
}

// emptySource is the error for a source without a token in a whole epoch.
func (r *replay) emptySource(source int) error {
	src := &r.spec.Sources[source]
	return &ExhaustedError{Source: src.Name, Step: r.state.Step, Empty: true, Filters: src.Filters}
}

// next returns the offset of a head's next token in its document.
func (h *heads) next(r *replay, source int) uint32 {
	return max(h.metas[source].Offset, r.state.Sources[source].Offset)
}

// rest returns the tokens of a source's head that are not drawn yet.
func (h *heads) rest(r *replay, source int) uint32 {
	end, next := r.spec.Sources[source].endOf(&h.metas[source]), h.next(r, source)
	return end - min(next, end)
}

// fill writes the next segment of a source's resolved head into seg, of at most `most` tokens. seg must be zero.
func (h *heads) fill(r *replay, source int, most uint32, seg *millrace.Segment) {
	meta, offset := &h.metas[source], h.next(r, source)
	seg.Source, seg.Ordinal, seg.Epoch, seg.ID = uint32(source), meta.Ordinal, meta.Epoch, meta.ID
	seg.Offset, seg.Length = offset, min(h.rest(r, source), most)
	seg.More = offset+seg.Length < meta.Lengths.Tokens
	if offset == 0 {
		seg.Patches = meta.Lengths.Patches
	}
}

// forget drops a head that was drawn to its end.
func (h *heads) forget(r *replay, seg *millrace.Segment) {
	if r.spec.Sources[seg.Source].ends(seg) {
		h.known[seg.Source] = false
	}
}
