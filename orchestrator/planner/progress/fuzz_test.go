package progress_test

import (
	"errors"
	"testing"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

// FuzzDelta applies changes of any bytes to a state. A change that fits leads to the next step.
func FuzzDelta(f *testing.F) {
	for _, st := range []progress.State{progress.New(3), carrying(bigState())} {
		after := st.Clone()
		after.Step++
		after.Sources[1].Ordinal, after.Sources[1].Samples = after.Sources[1].Ordinal+5, after.Sources[1].Samples+5
		delta, err := progress.NewDiffer(millrace.UnitTokens, nil).Diff(st, after)
		if err == nil {
			f.Add([]byte(delta))
		}
	}
	f.Add([]byte{1, 1, 1, 2, 3, 4, 5})
	f.Add([]byte{2, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, delta []byte) {
		for _, st := range []progress.State{progress.New(3), carrying(bigState())} {
			before := st.Step
			err := progress.NewDiffer(millrace.UnitTokens, nil).Apply(&st, delta)
			if err != nil && !errors.Is(err, millrace.ErrInvalid) {
				t.Fatal(err)
			}
			if err == nil && st.Step != before+1 {
				t.Fatalf("step %s follows step %s", st.Step, before)
			}
		}
	})
}
