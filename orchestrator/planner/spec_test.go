package planner_test

import (
	"errors"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/pack"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

func TestSpecRefused(t *testing.T) {
	for name, change := range map[string]func(*planner.Spec){
		"no length":         func(s *planner.Spec) { s.SequenceLength = 0 },
		"pad multiple":      func(s *planner.Spec) { s.PadMultiple = 3 },
		"too long":          func(s *planner.Spec) { s.SequenceLength = pack.MaxUnits + 1 },
		"no bins":           func(s *planner.Spec) { s.GlobalBatch = 0 },
		"too many bins":     func(s *planner.Spec) { s.GlobalBatch = planner.MaxBins + 1 },
		"sideways":          func(s *planner.Spec) { s.Packing = "sideways" },
		"unit":              func(s *planner.Spec) { s.Unit = "bytes" },
		"last step":         func(s *planner.Spec) { s.LastStep = "" },
		"no sources":        func(s *planner.Spec) { s.Sources = nil },
		"no schedule":       func(s *planner.Spec) { s.Schedule = nil },
		"weights":           func(s *planner.Spec) { s.Schedule = plannertest.Constant(t, "1") },
		"not sorted":        func(s *planner.Spec) { s.Sources[0].Name = "z" },
		"two of a name":     func(s *planner.Spec) { s.Sources[0].Name = "b" },
		"exhausted unsaid":  func(s *planner.Spec) { s.Sources[1].OnExhausted = "" },
		"exhausted unknown": func(s *planner.Spec) { s.Sources[1].OnExhausted = "again" },
		"a stage at 0": func(s *planner.Spec) {
			s.Stages = []planner.Stage{{SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad}}
		},
		"stages go back": func(s *planner.Spec) {
			at := planner.Stage{From: mixing.Point{Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad}
			s.Stages = []planner.Stage{at, at}
		},
		"stages in two measures": func(s *planner.Spec) {
			at := planner.Stage{From: mixing.Point{Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad}
			later := at
			later.From = mixing.Point{Measure: mixing.Tokens, Count: 500}
			s.Stages = []planner.Stage{at, later}
		},
		"a stage's packing": func(s *planner.Spec) {
			s.Stages = []planner.Stage{
				{From: mixing.Point{Count: 5}, SequenceLength: 8, GlobalBatch: 4, Packing: "loose"},
			}
		},
		"a ramp that goes down": func(s *planner.Spec) {
			s.Rampup = millrace.Rampup{
				Start: 8, Increment: 1, Samples: 10,
			}
		},
		"a ramp that misses": func(s *planner.Spec) {
			s.Rampup = millrace.Rampup{
				Start: 1, Increment: 2, Samples: 10,
			}
		},
		"a ramp without a length": func(s *planner.Spec) { s.Rampup = millrace.Rampup{Start: 1, Increment: 1} },
		"a ramp from a token": func(s *planner.Spec) {
			s.Stages = []planner.Stage{{From: mixing.Point{
				Measure: mixing.Tokens, Count: 5,
			}, SequenceLength: 8, GlobalBatch: 4, Packing: millrace.Pad,
				Rampup: millrace.Rampup{Start: 1, Increment: 1, Samples: 10}}}
		},
	} {
		spec := plannertest.NewSpec(t, 16, 4, "1", "1")
		change(spec)
		if _, err := planner.NewSelector(spec, progress.New(2)); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := planner.NewSelector(plannertest.NewSpec(t, 16, 4, "1", "1"), progress.New(3)); !errors.Is(err,
		millrace.ErrMismatch) {
		t.Errorf("a state of three sources: got %v", err)
	}
}
