package planner

import (
	"fmt"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner/progress"
)

// replay applies the events of one window to a state: segments drawn, documents passed over, sources that leave. A
// draft applies each event as it draws. If the end of a draft is left to the next window, a second replay repeats the
// events up to there. Both use the same methods, so the state after a prefix of the draws is the same.
type replay struct {
	spec     *Spec
	division *division
	stage    Stage             // of the window's steps
	state    progress.State    // Step and Tokens stay those before the window; deficits are in mix
	at       progress.Position // of the step whose leg is drawn
	mix      *mixing.Apportioner
	shares   []uint32 // in force; all zero when nothing can be drawn any more
	drawn    uint64   // document tokens
}

func newReplay(division *division, before progress.State) (*replay, error) {
	mix, err := before.Apportioner()
	if err != nil {
		return nil, fmt.Errorf("plan step %s: %w", before.Step, err)
	}
	spec := division.spec
	r := &replay{
		spec:     spec,
		division: division,
		stage:    spec.stageAt(before.Position()),
		state:    before.Clone(),
		mix:      mix,
	}
	r.beginLeg(before.Position())
	return r, nil
}

// beginLeg begins the leg of a step.
func (r *replay) beginLeg(at progress.Position) {
	r.at = at
	r.updateShares()
}

// updateShares puts the mixture of the leg in force for the sources that are left.
func (r *replay) updateShares() {
	r.shares = r.division.At(&r.state, r.at)
	r.mix.SetShares(r.shares)
}

// passed is an event between segments: a document that was passed over, a document with notes that begins, or a source
// that left. It comes before segment number `before`.
type passed struct {
	before int
	source int
	left   bool // the source left; meta is zero
	drawn  bool // segment number `before` is the document's first
	meta   millrace.SampleMeta
}

// passOver consumes a document that counts nothing: rejected, refused by a filter, or without tokens.
func (r *replay) passOver(source int, meta *millrace.SampleMeta) {
	src := &r.state.Sources[source]
	src.Ordinal++
	src.Epoch = meta.Epoch
	r.note(source, meta)
}

// note counts a document by its notes, once: with its first piece.
func (r *replay) note(source int, meta *millrace.SampleMeta) {
	if meta.Offset == 0 {
		r.state.Sources[source].Counts.Add(meta.Refused)
	}
}

// repeat applies the events before a segment, from number next on, and returns the number of the first later event.
func (r *replay) repeat(events []passed, next, segment int) int {
	for ; next < len(events) && events[next].before <= segment; next++ {
		switch p := &events[next]; {
		case p.left:
			r.removeSource(p.source)
		case p.drawn:
			r.note(p.source, &p.meta)
		default:
			r.passOver(p.source, &p.meta)
		}
	}
	return next
}

// removeSource takes a source that has ended out of the mixture.
func (r *replay) removeSource(source int) {
	r.state.Sources[source].Finished = true
	r.mix.Leave(source)
	r.updateShares()
}

// consume takes a segment and charges its source. The rest of a document may come while all shares are 0: it counts as
// drawn, and moves no deficit.
func (r *replay) consume(seg *millrace.Segment) {
	src := &r.state.Sources[seg.Source]
	spec := &r.spec.Sources[seg.Source]
	if charge := r.charge(int(seg.Source), seg.Offset, seg.Length); charge > 0 {
		r.mix.Place(int(seg.Source), charge)
	}
	if spec.begins(seg.Offset) {
		src.Samples++
	}
	src.Tokens += uint64(seg.Length)
	if spec.Untrained {
		src.Counts.Trained += uint64(seg.Labels())
	}
	r.drawn += uint64(seg.Length)
	src.Epoch = seg.Epoch
	src.Offset = seg.Offset + seg.Length
	if spec.ends(seg) {
		src.Ordinal++
		src.Offset = 0
	}
}

// charge returns the cost of a segment to its source, in the unit of the mixture.
func (r *replay) charge(source int, offset, length uint32) int64 {
	switch {
	case r.spec.Unit == millrace.UnitTokens:
		return int64(length)
	case r.spec.Sources[source].begins(offset):
		return 1
	default:
		return 0
	}
}

// stateAfter returns the state after `steps` steps, which placed `placed` document tokens and left the carried
// segments.
func (r *replay) stateAfter(steps int, placed uint64, carried []progress.Carried) progress.State {
	s := r.state.Clone()
	s.Step += millrace.Step(steps)
	s.Tokens += placed
	s.Carried = carried
	for i, account := range r.mix.State() {
		s.Sources[i].Deficit = account.Deficit
	}
	return s
}
