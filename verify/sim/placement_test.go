package sim

import (
	"millrace"
	"millrace/orchestrator/planner"
)

// placed checks a plan against its selection. The plan has each segment once, whole or in all its slices. Different
// ranks have the slices, in one microbatch. No row or array exceeds the shape, and a complete step has no empty
// microbatch.
func placed(sel *planner.Selection, plan *millrace.Plan, shape millrace.Shape) error {
	slices, columns := map[millrace.Segment][]millrace.Assignment{}, map[[3]uint32]uint32{}
	most := shape.SequenceLength
	if shape.Layout == millrace.Varlen {
		most = shape.CapTokens
	}
	for _, a := range plan.Assignments {
		slices[a.Segment] = append(slices[a.Segment], a)
		row := [3]uint32{uint32(a.Rank), a.Microbatch, a.Row}
		if columns[row] += a.Columns(sel.PadMultiple); columns[row] > most {
			return millrace.Errorf(millrace.ErrMismatch, "step %s: %v has %d columns of %d", sel.Step, row,
				columns[row], most)
		}
	}
	for _, s := range sel.Segments {
		of := slices[s]
		ranks, parts := map[millrace.Rank]bool{}, map[uint32]bool{}
		for _, a := range of {
			if a.Microbatch == of[0].Microbatch {
				ranks[a.Rank], parts[a.Part] = true, true
			}
		}
		if len(of) == 0 || len(ranks) != len(of) || len(parts) != len(of) || len(of) != max(1, int(of[0].Parts)) {
			return millrace.Errorf(millrace.ErrMismatch, "step %s: a segment is placed as %+v", sel.Step, of)
		}
	}
	for r := range millrace.Rank(plan.Ranks) {
		for m := range plan.Microbatches {
			if len(plan.Part(r, m)) == 0 && !sel.Incomplete {
				return millrace.Errorf(millrace.ErrMismatch, "step %s: rank %d has nothing in microbatch %d", sel.Step,
					r, m)
			}
		}
	}
	if len(slices) != len(sel.Segments) {
		return millrace.Errorf(millrace.ErrMismatch, "step %s: %d segments are placed of %d", sel.Step, len(slices),
			len(sel.Segments))
	}
	return nil
}
