package planner

import (
	"slices"

	"millrace/mixing"
	"millrace/orchestrator/planner/progress"
)

// division divides the mixture among the sources that have not ended. It keeps the last result, because the next step
// mostly has the same one. One owner; not for concurrent use.
type division struct {
	spec   *Spec
	mix    mixing.Proportions
	active []bool
	shares []uint32
}

// NewDiffer returns the Differ of a spec. Without a spec it applies counters only: deficits stay as they are.
func NewDiffer(spec *Spec) *progress.Differ {
	if spec == nil {
		return progress.NewDiffer("", nil)
	}
	return progress.NewDiffer(spec.Unit, &division{spec: spec})
}

// At returns the shares in force at a place in the schedule; the caller does not change them. They are all zero when no
// source can be drawn any more. The schedule may give every remaining source a weight of 0 now, but a later phase with
// weight. That phase is then in force already.
func (d *division) At(st *progress.State, at progress.Position) []uint32 {
	schedule := d.spec.Schedule
	mix, active := schedule.At(at.Step, at.Tokens), d.spec.activeSources(st)
	if d.shares == nil || !slices.Equal(mix, d.mix) || !slices.Equal(active, d.active) {
		d.mix, d.active, d.shares = mix, active, schedule.Divide(mix, active)
	}
	if !hasShare(d.shares) {
		if ahead, ok := nextPhase(schedule, at, active); ok {
			return schedule.Divide(schedule.At(at.Step+ahead, at.Tokens+ahead), active)
		}
	}
	return d.shares
}

// activeSources reports, per source, whether it has not ended. After a source with on_exhausted: stop has ended, none
// is active.
func (s *Spec) activeSources(st *progress.State) []bool {
	active := make([]bool, len(st.Sources))
	if _, over := s.stoppedBy(st); over {
		return active
	}
	for i := range active {
		active[i] = !st.Sources[i].Finished
	}
	return active
}

func hasShare(shares []uint32) bool {
	return slices.ContainsFunc(shares, func(s uint32) bool { return s > 0 })
}

// nextPhase returns the distance, in the schedule's own measure, to the next phase in which an active source has
// weight. CanReceive is true up to the last place at which a source has weight, so bisection finds that place. The
// earliest such place is in the next phase, if phases follow each other.
func nextPhase(schedule *mixing.Schedule, from progress.Position, active []bool) (ahead uint64, ok bool) {
	const horizon = 1 << 62
	for i, can := range schedule.CanReceive(from.Step, from.Tokens) {
		if !can || !active[i] {
			continue
		}
		// the source can receive at low; high is the first place that is not tried
		low, high := uint64(0), uint64(horizon)
		for low+1 < high {
			if mid := low + (high-low)/2; schedule.CanReceive(from.Step+mid, from.Tokens+mid)[i] {
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
