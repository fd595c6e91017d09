package planner

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/mixing"
)

// point is a place in the schedule: a step, and the document tokens placed before it.
type point struct{ step, tokens uint64 }

// point is where the state stands.
func (s *State) point() point { return point{uint64(s.Step), s.Tokens} }

// walk moves a state through the events of one window. Drawing and replaying go through the same three moves, so that the state
// after a prefix of the draws is the same however it is reached.
type walk struct {
	spec     *Spec
	division *division
	stage    Stage // of the window's steps
	state    State // Step and Tokens stay those before the window; deficits are in mix
	at       point // of the step whose share of the draws it is
	mix      *mixing.Apportioner
	shares   []uint32 // in force; all zero when nothing can be drawn any more
	drawn    uint64   // document tokens
}

func newWalk(division *division, before State) (*walk, error) {
	mix, err := before.apportioner()
	if err != nil {
		return nil, fmt.Errorf("plan step %s: %w", before.Step, err)
	}
	spec := division.spec
	w := &walk{spec: spec, division: division, stage: spec.stageAt(before.point()), state: before.Clone(), mix: mix}
	w.turn(before.point())
	return w, nil
}

// turn goes on to a step's share of the draws.
func (w *walk) turn(at point) {
	w.at = at
	w.share()
}

// share puts the mixture of the step in force for the sources that are left.
func (w *walk) share() {
	w.shares = w.division.at(&w.state, w.at)
	w.mix.SetShares(w.shares)
}

// mixtureAt returns the mixture of a place in the schedule, and which sources a state has left: none are once a stop source has ended.
func (s *Spec) mixtureAt(st *State, at point) (mix mixing.Proportions, active []bool) {
	active = make([]bool, len(st.Sources))
	for i := range active {
		active[i] = !st.Sources[i].Finished
	}
	if _, over := s.stoppedBy(st); over {
		clear(active)
	}
	return s.Schedule.At(at.step, at.tokens), active
}

// division divides mixtures among the sources that are left. It remembers the last one, which is mostly that of the next step as well. One owner;
// not for concurrent use.
type division struct {
	spec   *Spec
	mix    mixing.Proportions
	active []bool
	shares []uint32
}

// at returns the shares in force in a place of the schedule; nobody changes them. Where the mixture gives none of the sources that are left a share but a
// later part of the schedule does, that part holds already: time does not pass without steps.
func (d *division) at(st *State, at point) []uint32 {
	schedule := d.spec.Schedule
	mix, active := d.spec.mixtureAt(st, at)
	if d.shares == nil || !slices.Equal(mix, d.mix) || !slices.Equal(active, d.active) {
		d.mix, d.active, d.shares = mix, active, schedule.Divide(mix, active)
	}
	if !positive(d.shares) {
		if ahead, ok := nextPhase(schedule, at.step, at.tokens, active); ok {
			return schedule.Divide(schedule.At(at.step+ahead, at.tokens+ahead), active)
		}
	}
	return d.shares
}

// stoppedBy returns the stop source that has ended, if one has.
func (s *Spec) stoppedBy(st *State) (source int, ok bool) {
	for i := range st.Sources {
		if st.Sources[i].Finished && s.Sources[i].OnExhausted == millrace.StopRun {
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
	w.drawn += uint64(seg.Length)
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
	case w.spec.Unit == millrace.UnitTokens:
		return int64(length)
	case offset == 0:
		return 1
	default:
		return 0
	}
}

// after returns the state once that many steps are over, which placed so many document tokens and carry what they had no room for.
func (w *walk) after(steps int, placed uint64, carried []Carried) State {
	s := w.state.Clone()
	s.Step += millrace.Step(steps)
	s.Tokens += placed
	s.Carried = carried
	for i, account := range w.mix.State() {
		s.Sources[i].Deficit = account.Deficit
	}
	return s
}
