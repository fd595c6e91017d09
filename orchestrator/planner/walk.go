package planner

import (
	"fmt"

	"millrace"
	"millrace/mixing"
)

// walk moves a state through the events of one step. Drawing and replaying go through the same three moves, so that the state
// after a prefix of the draws is the same however it is reached.
type walk struct {
	spec   *Spec
	stage  Stage // of the step
	state  State // Step and Tokens stay those before the step; deficits are in mix
	mix    *mixing.Apportioner
	shares []uint32 // in force; all zero when nothing can be drawn any more
	placed uint64   // document tokens of this step
}

func newWalk(spec *Spec, before State) (*walk, error) {
	mix, err := before.apportioner()
	if err != nil {
		return nil, fmt.Errorf("plan step %s: %w", before.Step, err)
	}
	w := &walk{spec: spec, stage: spec.stageAt(before.Step, before.Tokens), state: before.Clone(), mix: mix}
	w.share()
	return w, nil
}

// share puts the mixture of the step in force for the sources that are left.
func (w *walk) share() {
	w.shares = w.spec.sharesOf(&w.state)
	w.mix.SetShares(w.shares)
}

// mixtureOf returns the mixture of the step that a state stands before, and which sources are left: none are once a stop source has ended.
func (s *Spec) mixtureOf(st *State) (mix mixing.Proportions, active []bool) {
	active = make([]bool, len(st.Sources))
	for i := range active {
		active[i] = !st.Sources[i].Finished
	}
	if _, over := s.stoppedBy(st); over {
		clear(active)
	}
	return s.Schedule.At(uint64(st.Step), st.Tokens), active
}

// sharesOf returns the shares in force at a state. Where the mixture gives none of the sources that are left a share but a later part of the
// schedule does, that part holds already: time does not pass without steps.
func (s *Spec) sharesOf(st *State) []uint32 {
	mix, active := s.mixtureOf(st)
	shares := s.Schedule.Divide(mix, active)
	if !positive(shares) {
		step, tokens := uint64(st.Step), st.Tokens
		if ahead, ok := nextPhase(s.Schedule, step, tokens, active); ok {
			shares = s.Schedule.Divide(s.Schedule.At(step+ahead, tokens+ahead), active)
		}
	}
	return shares
}

// stoppedBy returns the stop source that has ended, if one has.
func (s *Spec) stoppedBy(st *State) (source int, ok bool) {
	for i := range st.Sources {
		if st.Sources[i].Finished && s.Sources[i].OnExhausted == Stop {
			return i, true
		}
	}
	return 0, false
}

func positive(shares []uint32) bool {
	for _, s := range shares {
		if s > 0 {
			return true
		}
	}
	return false
}

// nextPhase returns how far ahead, in the schedule's own measure, an active source has weight again. A schedule tells only who can still
// receive, so a source's phase is known by its end: of those the earliest is taken, which for phases that follow each other is
// the next.
func nextPhase(schedule *mixing.Schedule, step, tokens uint64, active []bool) (ahead uint64, ok bool) {
	const horizon = 1 << 62
	for i, can := range schedule.CanReceive(step, tokens) {
		if !can || !active[i] {
			continue
		}
		low, high := uint64(0), uint64(horizon) // it can at low; high is the first place at which it is not asked
		for low+1 < high {
			if mid := low + (high-low)/2; schedule.CanReceive(step+mid, tokens+mid)[i] {
				low = mid
			} else {
				high = mid
			}
		}
		if !ok || low < ahead {
			ahead, ok = low, true
		}
	}
	return ahead, ok
}

// skip consumes a document that counts nothing: rejected or without tokens.
func (w *walk) skip(source int, meta *millrace.SampleMeta) {
	src := &w.state.Sources[source]
	src.Ordinal++
	src.Epoch = meta.Epoch
}

// replay applies what passed before the segment numbered at, from next on, and returns the first that passed later.
func (w *walk) replay(events []passed, next, at int) int {
	for ; next < len(events) && events[next].at <= at; next++ {
		if p := &events[next]; p.left {
			w.leave(p.source)
		} else {
			w.skip(p.source, &p.meta)
		}
	}
	return next
}

// leave takes a source out that has ended.
func (w *walk) leave(source int) {
	w.state.Sources[source].Finished = true
	w.mix.Leave(source)
	w.share()
}

// place consumes a segment and charges its source.
func (w *walk) place(seg *millrace.Segment) {
	src := &w.state.Sources[seg.Source]
	if charge := w.charge(seg.Offset, seg.Length); charge > 0 {
		w.mix.Place(int(seg.Source), charge)
	}
	if seg.Offset == 0 {
		src.Samples++
	}
	src.Tokens += uint64(seg.Length)
	w.placed += uint64(seg.Length)
	src.Epoch = seg.Epoch
	src.Offset = seg.Offset + seg.Length
	if !seg.More {
		src.Ordinal++
		src.Offset = 0
	}
}

// charge returns what a segment costs its source in the mixture.
func (w *walk) charge(offset, length uint32) int64 {
	switch {
	case w.spec.Unit == Tokens:
		return int64(length)
	case offset == 0:
		return 1
	default:
		return 0
	}
}

// after returns the state once the step is over.
func (w *walk) after() State {
	s := w.state.Clone()
	s.Step++
	s.Tokens += w.placed
	for i, account := range w.mix.State() {
		s.Sources[i].Deficit = account.Deficit
	}
	return s
}
